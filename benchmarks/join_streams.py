"""`join_streams` beside Spark's own stream-stream join: the same rows, the same window, state in RocksDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import streams
from benchmarks.harness import Benchmark, Contestant, Ratio, Sample, Turn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK = "Spark, stream-stream join"
EXACT = "Penstock, exact"
QUARTER = "Penstock, PROB with a quarter of the memory"
RATIOS = (Ratio(EXACT, SPARK, 15), Ratio(QUARTER, SPARK, 15))


@dataclass(frozen=True)
class Size:
    """Rows of each side in a micro-batch, micro-batches in a window, distinct keys, memory of the exact join."""

    batch: int
    window: int
    keys: int
    memory: int

    @property
    def warm(self) -> int:
        """Micro-batches until the window is full."""
        return self.window + 1


def benchmarks(quick: bool) -> list[Benchmark]:
    """Uniform keys, about one result a row."""
    size = Size(5_000, 2, 10_000, 32 << 20) if quick else Size(100_000, 4, 400_000, 160 << 20)
    about = (
        f"two streams, micro-batches of {size.batch:,} rows a side with {size.keys:,} keys, a window of "
        f"{size.window} micro-batches, results discarded"
    )
    return [Benchmark("join_streams/discard", about, lambda: contestants(size, 2 if quick else 3), RATIOS)]


def contestants(size: Size, counted: int) -> list[Contestant]:
    """Exact in two ways, and with less memory than the window needs."""

    def turns(make: Callable[[Size], DataFrame]) -> Callable[[Turn], Sequence[Sample]]:
        return lambda turn: _turn(turn, size, counted, make(size))

    return [
        Contestant(SPARK, turns(_spark)),
        Contestant(EXACT, turns(lambda s: _penstock(s, "exact", s.memory))),
        Contestant(QUARTER, turns(lambda s: _penstock(s, "prob", s.memory // 4))),
    ]


def _sides(size: Size) -> tuple[DataFrame, DataFrame]:
    """Rows a microsecond apart; both sides draw from the same keys."""
    made = []
    for name, value, salt in (("lt", "v", 1), ("rt", "w", 2)):
        key = f"pmod(xxhash64(value, {salt}), {size.keys}) as k"
        moment = f"timestamp_micros(1700000000000000 + value) as {name}"
        made.append(streams.numbers(size.batch).selectExpr(key, moment, f"value as {value}"))
    return made[0], made[1]


def _spark(size: Size) -> DataFrame:
    left, right = _sides(size)
    width = f"make_dt_interval(0, 0, 0, {size.batch * size.window / 1e6})"
    left = left.withWatermark("lt", "0 seconds").alias("l")
    right = right.withWatermark("rt", "0 seconds").alias("r")
    from pyspark.sql import functions as fn

    near = f"l.k = r.k AND r.rt >= l.lt - {width} AND r.rt <= l.lt + {width}"
    return left.join(right, fn.expr(near)).select("l.k", "l.lt", "l.v", "r.rt", "r.w")


def _penstock(size: Size, policy: str, memory: int) -> DataFrame:
    import penstock as ps

    left, right = _sides(size)
    flow = ps.join_streams(
        left, right, on="k", within=f"{size.batch * size.window} us", time=("lt", "rt"), memory=memory, policy=policy
    )
    return flow.results


def _turn(turn: Turn, size: Size, counted: int, results: DataFrame) -> Sequence[Sample]:
    from pyspark.sql import functions as fn

    observed = results.observe("check", fn.count("*").alias("rows"))
    with streams.scratch() as place:
        reports = streams.batches_of(streams.discard(observed, place / "checkpoint"), size.warm + counted, turn)
    return streams.samples(reports, 2 * size.batch, size.warm)
