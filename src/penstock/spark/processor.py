"""What Spark pickles and sends: the stateful processor, which knows kernels only once rows arrive.

Whenever a query starts, Spark runs this class in a new Python process just to learn the names of its states. Loading
tables, kernels and their libraries there would take seconds, so the plan travels packed, and what works on it is
imported by the first step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext, cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.spark.signals import ignore_interrupts

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

    from penstock.plan.base import Plan


def query_id() -> str:
    """The query that this task belongs to."""
    context = TaskContext.get()
    return (context.getLocalProperty("sql.streaming.queryId") if context else None) or "none"


class PackedPlan:
    """A plan as it travels."""

    def __init__(self, plan: Plan) -> None:
        self._packed: bytes = cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]
        #: Of the plan, with all its terms.
        self.fingerprint = hashlib.blake2b(self._packed, digest_size=16).hexdigest()

    @cached_property
    def plan(self) -> Plan:
        """Unpacked when first needed."""
        plan: Plan = cloudpickle.loads(self._packed)
        return plan


class Processor(StatefulProcessor):
    """Runs the kernels of a plan, one for each slot; see `host` for how."""

    def __init__(self, plan: Plan, ids: tuple[int, ...]) -> None:
        self.packed = PackedPlan(plan)
        self.ids = ids

    @property
    def plan(self) -> Plan:
        """What is to run."""
        return self.packed.plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark at the start of each task."""
        ignore_interrupts()
        self.handle = handle
        self.head = handle.getValueState("head", "body binary")
        self.chunks = handle.getMapState("chunks", "name string", "blob binary")
        self.query = query_id()

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """One micro-batch of one slot."""
        from penstock.spark.host import step

        return step(self, self.ids.index(key[0]), rows)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """No rows came for the slot since its last step: it finishes what is pending."""
        from penstock.spark.host import tick

        return tick(self, self.ids.index(key[0]))

    def close(self) -> None:
        """Nothing to let go: what is kept, is kept for the next task of this worker."""
