"""`join_shared` beside a join for each query, Spark's own and `join_streams`; and its schedulers under overload.

Seven queries over the same two streams, their windows those of the paper's "small-large". A contestant with a query for
each window runs them one after the other, each with both cores; its micro-batch takes as long as those of all seven.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks import shared_kernels, shared_overload, streams
from benchmarks.harness import Benchmark, Contestant, Ratio, Sample, Turn
from benchmarks.join_streams import Size, sides, spark_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.shared_flow import SharedFlow

SPARK = "Spark, seven stream-stream joins"
SEVEN = "Penstock, seven join_streams"
SHARED = "Penstock, join_shared"
WIDEST = "Penstock, join_streams, the widest alone"
#: Of the widest window.
SHARES = (1 / 600, 5 / 600, 15 / 600, 0.5, 0.85, 0.95, 1.0)


def benchmarks(quick: bool) -> list[Benchmark]:
    """Seven queries; and one of them that must not wait for the others."""
    size = Size(2_000, 2, 4_000, 16 << 20) if quick else Size(20_000, 2, 40_000, 24 << 20)
    return [
        Benchmark(
            "join_shared/seven",
            f"seven queries, windows small-large; {size.about}",
            lambda: contestants(size, 2),
            (Ratio(SHARED, SPARK, 5), Ratio(SHARED, SEVEN, 1), Ratio(SHARED, WIDEST)),
        ),
        shared_kernels.benchmark(quick, SHARES),
        shared_overload.benchmark(quick),
    ]


def contestants(size: Size, counted: int) -> list[Contestant]:
    """One join for all, one for each, and the widest alone."""
    widths = [max(int(size.batch * size.window * share), 1) for share in SHARES]
    whole: dict[int, int] = {}

    def separate(make: Callable[[int], DataFrame]) -> Callable[[Turn], Sequence[Sample]]:
        return lambda turn: _checked(_together([_turn(turn, size, counted, make(width)) for width in widths]), whole)

    return [
        Contestant(SPARK, separate(lambda width: spark_join(size, width))),
        Contestant(SEVEN, separate(lambda width: _alone(size, width))),
        Contestant(SHARED, lambda turn: _checked(_turn(turn, size, counted, _shared(size, widths)), whole)),
        Contestant(WIDEST, lambda turn: _turn(turn, size, counted, _alone(size, widths[-1]))),
    ]


def _alone(size: Size, width: int) -> DataFrame:
    import penstock as ps

    flow = ps.join_streams(*sides(size), on="k", within=f"{width} us", time=("lt", "rt"), memory=size.memory)
    return flow.results


def _shared(size: Size, widths: Sequence[int]) -> DataFrame:
    import penstock as ps

    windows = {f"q{number}": f"{width} us" for number, width in enumerate(widths)}
    flow = ps.join_shared(*sides(size), on="k", windows=windows, time=("lt", "rt"), memory=2 * size.memory, slice=None)
    return every_query(flow, list(windows))


def every_query(flow: SharedFlow, names: Sequence[str]) -> DataFrame:
    """The results of all queries of a flow, read in one Spark query."""
    from penstock.spark.wire import rows_alone

    schema = flow._channels[names[0]]
    return flow._emitted(rows_alone, dict.fromkeys(names, schema), schema, few=False)


def _turn(turn: Turn, size: Size, counted: int, results: DataFrame) -> Sequence[Sample]:
    from pyspark.sql import functions as fn

    observed = results.observe("check", fn.count("*").alias("rows"))
    with streams.scratch() as place:
        reports = streams.batches_of(streams.discard(observed, place / "checkpoint"), size.warm + counted, turn)
    found = streams.samples(reports, 2 * size.batch, size.warm)
    both = zip(found, reports[size.warm :], strict=True)
    return [replace(one, details=one.details | {"memory": _memory(report)}) for one, report in both]


def _memory(report: dict) -> float:  # type: ignore[type-arg]
    """Bytes of the kernels, or of Spark's state store."""
    for numbers in report.get("observedMetrics", {}).values():
        if "memory" in numbers:
            return float(numbers["memory"])
    return float(sum(one["memoryUsedBytes"] for one in report["stateOperators"]))


def _together(turns: Sequence[Sequence[Sample]]) -> list[Sample]:
    """The same micro-batch of all queries as one."""
    return [
        Sample(
            each[0].rows,
            sum(one.seconds for one in each),
            sum(one.busy or 0.0 for one in each),
            sum(one.results or 0 for one in each),
            {"batch": each[0].details["batch"], "memory": sum(one.details["memory"] for one in each)},
        )
        for each in zip(*turns, strict=True)
    ]


def _checked(found: Sequence[Sample], whole: dict[int, int]) -> Sequence[Sample]:
    for sample in found:
        expected = whole.setdefault(sample.details["batch"], sample.results or 0)
        if sample.results != expected:
            raise RuntimeError(f"Micro-batch {sample.details['batch']}: {sample.results} results, not {expected}.")
    return found
