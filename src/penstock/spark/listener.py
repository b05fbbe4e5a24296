"""Metrics on their way to people: Spark's own progress events, gathered by flow."""

from __future__ import annotations

import json
import threading
import warnings
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from pyspark.java_gateway import ensure_callback_server_started

from penstock.spark.chunks import all_copies, forget
from penstock.spark.crash import crash_point
from penstock.spark.reports import Reports, Teller

if TYPE_CHECKING:
    from pathlib import Path

    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

    from penstock.spark.flow import Flow

#: Micro-batches remembered by each flow.
REMEMBERED = 1000
#: Micro-batches that say how fast rows arrive now.
RECENT = 20
#: How Spark makes one watermark of several. By the smallest, a flow without rows holds the others back.
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


class Progress:
    """The numbers of a flow's micro-batches, newest last. Filled by the listener, read by anybody."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        self._totals: dict[str, float] = {}

    def add(self, batch: dict[str, Any], counted: set[str], standing: set[str]) -> None:
        """Take in a micro-batch; the metrics in `counted` are also summed over all.

        A metric is None where no kernel had anything to do: those in `standing` (what is held, say) are as they were.
        """
        with self._lock:
            before = self._batches[-1] if self._batches else {}
            for name in [name for name, value in batch.items() if value is None]:
                batch[name] = before.get(name, 0.0) if name in standing else 0.0
            self._batches.append(batch)
            for name in counted & batch.keys():
                self._totals[name] = self._totals.get(name, 0) + batch[name]

    @property
    def batches(self) -> list[dict[str, Any]]:
        """The last micro-batches."""
        with self._lock:
            return list(self._batches)

    def arrival_rate(self) -> float:
        """Rows a second that came lately: those between the begin of an earlier micro-batch and that of the last."""
        recent = self.batches[-RECENT:]
        begins = [datetime.fromisoformat(batch["time"]) for batch in recent]
        seconds = (begins[-1] - begins[0]).total_seconds() if begins else 0.0
        return sum(batch["rows_in"] for batch in recent[1:]) / seconds if seconds > 0 else 0.0

    @property
    def totals(self) -> dict[str, float]:
        """Sums since the flow was started in this process."""
        with self._lock:
            return dict(self._totals)


class Listener:
    """Hands each progress event to the flows whose numbers it carries, or that told theirs meanwhile.

    Spark's own listeners get an event as Python objects, made by hundreds of calls into the JVM, which take some 100 ms
    of processor time for each micro-batch. This one takes it as JSON, by two.
    """

    def __init__(self, copies: Path, reports: Reports) -> None:
        self.copies = copies
        self.reports = reports
        self.flows: WeakValueDictionary[str, Flow] = WeakValueDictionary()

    def onQueryStarted(self, event: JavaObject) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: JavaObject) -> None:
        """One micro-batch is committed."""
        crash_point("after-commit")
        progress = json.loads(event.progress().json())
        told = self.reports.take(progress["id"], progress["batchId"])
        ours = []
        for name, numbers in [*progress.get("observedMetrics", {}).items(), *told.items()]:
            if (flow := self.flows.get(name)) is not None:
                flow._on_progress(progress, numbers)
                ours.append(flow)
        waiting = [flow for flow in ours if not flow._plan.keeps_nothing]
        if len(waiting) > 1 and waiting[0]._spark.conf.get(_POLICY) != "max":
            warnings.warn(
                "Flows that are united in one query wait for each other: what is pending in one comes only once all "
                f'have rows, and at the end never. Before it is started: spark.conf.set("{_POLICY}", "max"); or start '
                "each in a query of its own.",
                stacklevel=1,
            )

    def onQueryIdle(self, event: JavaObject) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: JavaObject) -> None:
        """Its copies of chunks would stay as long as the application."""
        forget(self.copies, event.id().toString())

    class Java:
        """What py4j asks of a Python object that Java calls."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


#: Not by its id, which a later session may have again.
_listeners: WeakKeyDictionary[SparkSession, Listener] = WeakKeyDictionary()


def listen(spark: SparkSession, flow: Flow) -> Teller:
    """Have a flow told of its micro-batches; gives what its slots tell by."""
    listener = _listeners.get(spark)
    if listener is None:
        listener = _listeners[spark] = Listener(all_copies(), Reports(spark.sparkContext))
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        streaming = gateway.jvm.org.apache.spark.sql.streaming
        spark.streams._jsqm.addListener(streaming.PythonStreamingQueryListenerWrapper(listener))
    listener.flows[flow.id] = flow
    return Teller(flow.id, listener.reports.told)
