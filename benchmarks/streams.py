"""Streaming queries as turns: one warm session for all, micro-batches of one size, times as Spark reports them."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.harness import Sample, Turn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Every contestant has as many cores, and the same heap.
CORES = 2
HEAP = "4g"
#: Longest that one micro-batch may take.
_PATIENCE = 600.0


@cache
def session() -> SparkSession:
    """The one session of the process; what Spark plans by itself must not turn a contestant into another."""
    import penstock as ps

    made = ps.session("penstock-bench", cores=CORES, spark_driver_memory=HEAP)
    made.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    return made


def numbers(rows: int) -> DataFrame:
    """A stream of consecutive numbers in column `value`, `rows` of them in every micro-batch from 0 on."""
    source = session().readStream.format("rate-micro-batch")
    return source.option("rowsPerBatch", rows).option("numPartitions", CORES).load().select("value")


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        # Spark may upload a snapshot of a stopped query's state once more, and make its directory anew.
        atexit.register(shutil.rmtree, place, ignore_errors=True)


def discard(results: DataFrame, checkpoint: Path) -> StreamingQuery:
    """Start a query whose results are produced in full and thrown away."""
    return results.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


def batches_of(
    query: StreamingQuery, count: int, turn: Turn, stop: Callable[[], None] | None = None
) -> list[dict[str, Any]]:
    """Spark's progress report of the first `count` micro-batches; the query is stopped then."""
    try:
        done: list[dict[str, Any]] = []
        turn.say(f"micro-batch 1 of {count}")
        since, spent = time.monotonic(), busy()
        seen = None
        while len(done) < count:
            # All reports are costly to ask for, and so only where there is a new one.
            last = query.lastProgress
            found = done if last is None or last["batchId"] == seen else reports(query)[:count]
            seen = last and last["batchId"]
            if len(found) > len(done):
                new, now = found[len(done) :], busy()
                # What a process had used is forgotten where it ended without anybody waiting for it.
                each = (now - spent) / len(new) if now >= spent else None
                done += [report | {"busy": each} for report in new]
                since, spent = time.monotonic(), now
                took = done[-1]["durationMs"]["triggerExecution"] / 1000
                turn.say(f"{len(done)} of {count} micro-batches, the last took {took:.2f} s")
                continue
            failure = query.exception()
            if failure is not None:
                raise failure
            if not query.isActive:
                raise RuntimeError(f"The query ended after {len(done)} of {count} micro-batches.")
            if time.monotonic() - since > _PATIENCE:
                raise TimeoutError(f"Micro-batch {len(done) + 1} takes more than {_PATIENCE:.0f} s.")
            time.sleep(0.05)
        return done
    finally:
        with suppress(Exception):
            (stop or query.stop)()


def busy() -> float:
    """Seconds of processor time that Spark and its Python workers have used so far."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            # Those of children that have ended are in their parent's.
            total += sum(process.cpu_times()[:4])
    return total


def reports(query: StreamingQuery) -> list[dict[str, Any]]:
    """Spark's progress reports of micro-batches with input."""
    found = (json.loads(report.json) for report in query.recentProgress)
    return [report for report in found if report["numInputRows"]]


def samples(reports: Sequence[dict[str, Any]], rows: int, warm: int) -> list[Sample]:
    """Reports as samples, without the first `warm`, which start workers and compile."""
    for report in reports:
        if report["numInputRows"] != rows:
            raise RuntimeError(f"Micro-batch {report['batchId']} has {report['numInputRows']} rows instead of {rows}.")
    return [
        Sample(
            rows,
            report["durationMs"]["triggerExecution"] / 1000,
            report.get("busy"),
            report.get("observedMetrics", {}).get("check", {}).get("rows"),
            {"batch": report["batchId"], "ms": report["durationMs"], "observed": report.get("observedMetrics", {})},
        )
        for report in reports[warm:]
    ]
