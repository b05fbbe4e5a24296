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

from penstock.kernels.contract import Metric
from penstock.spark.chunks import all_copies, forget
from penstock.spark.crash import crash_point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

#: Micro-batches remembered by each flow.
REMEMBERED = 1000
#: Micro-batches that say how fast rows arrive now.
RECENT = 20
#: How Spark makes one watermark of several. By the smallest, a flow without rows holds the others back.
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
_COMBINE: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}


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


def combined(slots: Iterable[str], reports: Iterable[Metric]) -> dict[str, float]:
    """The numbers of families, as each slot wrote them, put together.

    >>> combined(['{"wait_a": 2, "wait_b": 1}', '{"wait_a": 5}'], [Metric("wait_", "max")])
    {'wait_a': 5.0, 'wait_b': 1.0}
    """
    families = sorted((metric for metric in reports if metric.is_family), key=lambda one: len(one.name))
    found: dict[str, list[float]] = {}
    for said in slots:
        for name, value in json.loads(said).items():
            found.setdefault(name, []).append(float(value))
    # The longest name that fits is that of its family.
    ways = {name: [one.combine for one in families if name.startswith(one.name)][-1] for name in found}
    return {name: _COMBINE[ways[name]](values) for name, values in found.items()}


class Listener:
    """Hands each progress event to the flow whose metrics it carries.

    Spark's own listeners get an event as Python objects, made by hundreds of calls into the JVM, which take some 100 ms
    of processor time for each micro-batch. This one takes it as JSON, by two.
    """

    def __init__(self, copies: Path) -> None:
        self.copies = copies
        self.flows: WeakValueDictionary[str, Any] = WeakValueDictionary()

    def onQueryStarted(self, event: JavaObject) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: JavaObject) -> None:
        """One micro-batch is committed."""
        crash_point("after-commit")
        progress = json.loads(event.progress().json())
        told = [(self.flows.get(name), numbers) for name, numbers in progress.get("observedMetrics", {}).items()]
        ours = [(flow, numbers) for flow, numbers in told if flow is not None]
        for flow, numbers in ours:
            flow._on_progress(progress, numbers)
        if len(ours) > 1 and ours[0][0]._spark.conf.get(_POLICY) != "max":
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


def listen(spark: SparkSession, name: str, flow: Any) -> None:
    """Have a flow told of the micro-batches whose metrics are observed under `name`."""
    listener = _listeners.get(spark)
    if listener is None:
        listener = _listeners[spark] = Listener(all_copies())
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        streaming = gateway.jvm.org.apache.spark.sql.streaming
        spark.streams._jsqm.addListener(streaming.PythonStreamingQueryListenerWrapper(listener))
    listener.flows[name] = flow
