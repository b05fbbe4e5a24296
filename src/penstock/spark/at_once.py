"""Hosts kernels that keep nothing from one micro-batch to the next, in the tasks that read the stream.

Such a kernel needs no state store, and so no row has to go where its state is: rows come from Spark, and results go
back to it, in one task. Exactly once is Spark's own: a task that is run again gives the same rows again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import KernelFault
from penstock.kernels.contract import SET_ASIDE, SET_ASIDE_SCHEMA, Batch, Emission, Portion
from penstock.spark.crash import crash_point
from penstock.spark.host import FAMILIES, NUMBERS, now, numbers_of, told
from penstock.spark.live import LiveKernels
from penstock.spark.outbox import Attempt, Outbox, unwrap
from penstock.spark.processor import PackedPlan, query_id
from penstock.spark.signals import ignore_interrupts
from penstock.spark.wire import Batches, Reader, split_corrupt

if TYPE_CHECKING:
    from penstock.plan.base import Plan
    from penstock.spark.reports import Teller

_TOLD = (pa.field(NUMBERS, pa.list_(pa.float64())), pa.field(FAMILIES, pa.string()))
_live = LiveKernels()


def answerer(
    plan: Plan, read: Reader, wanted: Mapping[str, pa.Schema], teller: Teller
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that takes rows of the stream, and gives what a reader makes of what leaves the
    kernel on some channels. The numbers of the step are told.
    """
    packed = PackedPlan(plan)

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        step = _Step(packed)
        yield from read(step.answers(batches, wanted))
        teller.tell(step.query, step.attempt.batch, step.attempt.partition, step.numbers)

    return run


def answerer_in_few_rows(
    plan: Plan, read: Reader, wanted: Mapping[str, pa.Schema], made: pa.Schema
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The same for a reader that makes few rows, of a schema: the numbers are a row beside them, in columns of their
    own, as those of kernels with state are.
    """
    packed = PackedPlan(plan)

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        step = _Step(packed)
        schema = pa.schema([*made, *_TOLD])
        for rows in read(step.answers(batches, wanted)):
            nothing = [pa.nulls(rows.num_rows, field.type) for field in _TOLD]
            yield pa.RecordBatch.from_arrays([*rows.columns, *nothing], schema=schema)
        said = [None] * len(made) + list(told(packed.plan, step.numbers))
        columns = [pa.array([value], field.type) for value, field in zip(said, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return run


class _Step:
    """One step of a task's own kernel."""

    def __init__(self, packed: PackedPlan) -> None:
        self.query, self.attempt = query_id(), Attempt.here()
        #: Of the step, once it is done.
        self.numbers: dict[str, float] = {}
        self._packed = packed
        self._malformed = 0
        self._outbox: Outbox | None = None

    def answers(self, batches: Batches, wanted: Container[str]) -> Iterator[Emission]:
        """What becomes of the rows, on some channels."""
        ignore_interrupts()
        return (emission for emission in self._answers(batches) if emission.channel in wanted)

    def _answers(self, batches: Batches) -> Iterator[Emission]:
        began, name, batch = time.perf_counter(), self._packed.fingerprint, self.attempt.batch
        kernel = _live.take(self.query, name, name, batch) or self._packed.plan.make(self.attempt.partition)
        yield from kernel.step(Batch(self._portions(batches)), now())
        if kernel.pending() or kernel.changes().new:
            raise KernelFault(f"A kernel of {self._packed.plan.name} keeps rows where none are to be kept.")
        for parcel in self._outbox.close() if self._outbox else ():
            yield from (Emission(SET_ASIDE, rows) for rows in unwrap(parcel, SET_ASIDE_SCHEMA))
        self.numbers = numbers_of(kernel, seconds=time.perf_counter() - began, malformed=self._malformed)
        _live.keep(self.query, name, name, batch, kernel)

    def _portions(self, batches: Batches) -> Iterator[Portion]:
        schema = self._packed.plan.sides[0].schema
        for batch in batches:
            rows, bad = split_corrupt(batch, schema)
            if bad is not None:
                # They go round the kernel, which is at work, and are sent later.
                self._outbox = self._outbox or Outbox.here(self.query, self.attempt.partition)
                self._outbox.keep(SET_ASIDE, bad)
                self._malformed += bad.num_rows
            yield Portion(0, rows)
        crash_point("after-read")
