"""`./dev run python -m benchmarks.soak`: a query at a steady rate for minutes; does anything grow?

Rows come in real time from Spark's rate source. Every two seconds it looks at the resident memory of the JVM and of the
Python workers, the heap in use, open files, threads, files of the checkpoint and of the temporary directory, and how
long micro-batches take. After a third of the time everything has been seen once (windows full, caches warm, old files
deleted); the median of the last third may be at most a tenth above that of the second, or a little more where numbers
are small. The heap is resident from the start, so what the JVM gains is beside it; of the heap in use the least counts,
which is what garbage collections leave.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY = 2.0
RATE = 10_000
HEAP = "1g"
#: How much more of each is no growth: what a measurement may differ by.
SLACK = {
    "jvm_bytes": 128 << 20,
    "heap_bytes": 64 << 20,
    "worker_bytes": 24 << 20,
    "open_files": 24,
    "threads": 12,
    "checkpoint_files": 40,
    "temporary_files": 40,
    "batch_ms": 400,
}


@dataclass(frozen=True)
class Look:
    """What there was at one moment."""

    jvm_bytes: float
    heap_bytes: float
    worker_bytes: float
    open_files: float
    threads: float
    checkpoint_files: float
    temporary_files: float
    batch_ms: float


def look(checkpoint: Path, temporary: Path, batch_ms: float) -> Look:
    """Weigh the JVM and its workers, and count."""
    jvm = workers = files = threads = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            held = process.memory_info().rss
            jvm, workers = (jvm + held, workers) if "java" in process.name() else (jvm, workers + held)
            files += process.num_fds()
            threads += process.num_threads()
    return Look(jvm, _heap(), workers, files, threads, _count(checkpoint), _count(temporary), batch_ms)


def _heap() -> float:
    """Bytes of the JVM's heap in use, garbage that was not collected yet among them."""
    beans = streams.session()._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    return float(beans.getMemoryMXBean().getHeapMemoryUsage().getUsed())


def _count(place: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(place))


def grown(looks: list[Look]) -> dict[str, tuple[float, float]]:
    """What grew from the second third of the looks to the last, and from what to what."""
    return {
        name: (before, after)
        for name, (before, after) in thirds(looks).items()
        if after > max(before * 1.1, before + SLACK[name])
    }


def thirds(looks: list[Look]) -> dict[str, tuple[float, float]]:
    """Each number in the second third of the looks and in the last: the median, of the heap the least."""
    third = len(looks) // 3
    found = {}
    for name in SLACK:
        typical = min if name == "heap_bytes" else statistics.median
        before, after = ([getattr(one, name) for one in part] for part in (looks[third : 2 * third], looks[-third:]))
        found[name] = (typical(before), typical(after))
    return found


def _sides() -> tuple[DataFrame, DataFrame]:
    made = []
    for time_name, value, salt in (("lt", "v", 1), ("rt", "w", 2)):
        source = streams.session().readStream.format("rate").option("rowsPerSecond", RATE).load()
        key = f"pmod(xxhash64(value, {salt}), 50000) as k"
        made.append(source.selectExpr(key, f"timestamp as {time_name}", f"value as {value}"))
    return made[0], made[1]


def _exact() -> DataFrame:
    import penstock as ps

    return ps.join_streams(*_sides(), on="k", within="5 seconds", time=("lt", "rt"), memory="64MB").results


def _evicting() -> DataFrame:
    import penstock as ps

    return ps.join_streams(
        *_sides(), on="k", within="20 seconds", time=("lt", "rt"), memory="8MB", policy="prob"
    ).results


QUERIES: dict[str, Callable[[], DataFrame]] = {"exact": _exact, "evicting": _evicting}


def _session() -> SparkSession:
    """The session of all benchmarks, made with a small heap that is resident from the start."""
    import penstock as ps

    java = f"-Xms{HEAP} -XX:+AlwaysPreTouch"
    ps.session("penstock-soak", cores=streams.CORES, spark_driver_memory=HEAP, spark_driver_extraJavaOptions=java)
    return streams.session()


def run(query: str, seconds: float, say: Callable[[str], None]) -> list[Look]:
    """The query for so long; what was seen every two seconds."""
    with streams.scratch() as place:
        temporary = place / "tmp"
        temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        _session().conf.set("spark.sql.streaming.minBatchesToRetain", "5")
        results = QUERIES[query]()
        writer = results.writeStream.format("noop").option("checkpointLocation", str(place / "checkpoint"))
        running = writer.trigger(processingTime="1 second").start()
        try:
            looks: list[Look] = []
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                time.sleep(EVERY)
                failure = running.exception()
                if failure is not None:
                    raise failure
                recent = [report["durationMs"]["triggerExecution"] for report in streams.reports(running)[-5:]]
                if recent:
                    looks.append(look(place / "checkpoint", temporary, statistics.median(recent)))
                    say(f"{query} · {time.monotonic() - began:.0f} of {seconds:.0f} s · micro-batch {recent[-1]} ms")
        finally:
            with suppress(Exception):
                running.stop()
    return looks


def plot(looks: list[Look], path: Path) -> None:
    """All numbers over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(SLACK), 1, figsize=(8, 2 * len(SLACK)), sharex=True, layout="constrained")
    minutes = [EVERY * number / 60 for number in range(len(looks))]
    for axis, name in zip(axes, SLACK, strict=True):
        scale = 1 << 20 if name.endswith("bytes") else 1
        axis.plot(minutes, [getattr(one, name) / scale for one in looks])
        axis.set(ylim=(0, None), title=name.replace("_bytes", " memory (MB)").replace("_", " "))
    axes[-1].set_xlabel("minutes")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(
    query: Annotated[str, typer.Argument(help="exact (all that is in the window) or evicting (a budget too small).")],
    minutes: Annotated[float, typer.Option(help="How long.")] = 10.0,
    results: Annotated[Path, typer.Option(help="Where numbers and plot go.")] = Path("benchmarks/results"),
) -> None:
    """Run a query at a steady rate and see whether anything grows."""
    if query not in QUERIES:
        raise typer.BadParameter(f"there is no query {query!r}; there are: {', '.join(QUERIES)}")
    looks = run(query, 60 * minutes, lambda text: print(text, file=sys.stderr, flush=True))
    results.mkdir(parents=True, exist_ok=True)
    (results / f"soak-{query}.json").write_text(json.dumps([asdict(one) for one in looks]))
    plot(looks, results / f"soak-{query}.png")
    found = grown(looks)
    table = Table("", "second third", "last third", "", title=f"soak of {minutes:g} minutes, {RATE:,} rows/s a side")
    for name, both in thirds(looks).items():
        table.add_row(name, *(f"{number:,.0f}" for number in both), "GROWS" if name in found else "flat")
    Console(width=120).print(table)
    raise typer.Exit(1 if found else 0)


if __name__ == "__main__":
    typer.run(main)
