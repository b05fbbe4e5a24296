"""What the runtime itself costs: rows through a kernel that does nothing, beside rows through Python without state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from benchmarks import streams
from benchmarks.harness import Benchmark, Contestant, Limit, Ratio, Sample, Turn

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SPARK = "Spark, mapInArrow"
PASS = "Penstock, pass-through"
KEEP = "Penstock, keeping a batch as state"


def benchmarks(quick: bool) -> list[Benchmark]:
    """Large micro-batches for the rate, small ones for the floor under their time."""
    large, small = (100_000, 1_000) if quick else (1_000_000, 1_000)
    return [
        Benchmark(
            "runtime/rate",
            f"two 8-byte columns, micro-batches of {large:,} rows, results discarded",
            lambda: contestants(large, *((1, 1) if quick else (3, 6))),
            ratios=(Ratio(PASS, SPARK),),
            limits=(Limit(PASS, rate=0.8e6, aim=1.5e6),),
        ),
        Benchmark(
            "runtime/floor",
            f"two 8-byte columns, micro-batches of {small:,} rows, results discarded",
            lambda: contestants(small, *((1, 2) if quick else (3, 12))),
            ratios=(Ratio(PASS, SPARK),),
            limits=(Limit(PASS, seconds=0.7, aim=0.4),),
        ),
    ]


def contestants(rows: int, warm: int, counted: int) -> list[Contestant]:
    """With and without state, and Spark's own way through Python. The first `warm` micro-batches are not counted."""
    return [
        Contestant(SPARK, lambda turn: _turn(turn, rows, warm, counted, _identity(_stream(rows)))),
        Contestant(PASS, lambda turn: _turn(turn, rows, warm, counted, _through(_stream(rows), 0))),
        Contestant(KEEP, lambda turn: _turn(turn, rows, warm, counted, _through(_stream(rows), rows // streams.CORES))),
    ]


def _stream(rows: int) -> DataFrame:
    return streams.numbers(rows).selectExpr("value as id", "value * 3 as number")


def _identity(stream: DataFrame) -> DataFrame:
    def same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return batches

    return stream.mapInArrow(same, stream.schema)


def _through(stream: DataFrame, keep: int) -> DataFrame:
    from penstock.plan.passthrough import PassThroughPlan
    from penstock.spark.runtime import run
    from penstock.spark.schema import arrow_schema

    plan = PassThroughPlan.checked(arrow_schema(stream), key=("id",), slots=streams.CORES, keep=keep)
    return run(plan, [stream]).results


def _turn(turn: Turn, rows: int, warm: int, counted: int, results: DataFrame) -> Sequence[Sample]:
    from pyspark.sql import functions as fn

    observed = results.observe("check", fn.count("*").alias("rows"), fn.sum("id").alias("ids"))
    with streams.scratch() as place:
        reports = streams.batches_of(streams.discard(observed, place / "checkpoint"), warm + counted, turn)
    for number, report in enumerate(reports):
        found = report["observedMetrics"]["check"]
        want = {"rows": rows, "ids": sum(range(number * rows, (number + 1) * rows))}
        if found != want:
            raise RuntimeError(f"Micro-batch {number} gave {found} where {want} was expected.")
    return streams.samples(reports, rows, warm)
