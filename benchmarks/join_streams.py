"""`join_streams` beside Spark's own stream-stream join: the same rows, the same window, state in RocksDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import evictions, streams
from benchmarks.harness import Benchmark, Contestant, Ratio, Recall, Sample, Turn
from benchmarks.judge import Keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK = "Spark, stream-stream join"
EXACT = "Penstock, exact"
QUARTER = "Penstock, PROB with a quarter of the memory"


@dataclass(frozen=True)
class Size:
    """Rows of each side in a micro-batch, micro-batches in a window, distinct keys, what the exact join needs."""

    batch: int
    window: int
    keys: int
    memory: int
    zipf: bool = False

    @property
    def warm(self) -> int:
        """Micro-batches until the window is full."""
        return self.window + 1

    @property
    def about(self) -> str:
        """In words."""
        law = "Zipf(1.0) over" if self.zipf else "uniform over"
        return (
            f"two streams, micro-batches of {self.batch:,} rows a side, keys {law} {self.keys:,}, "
            f"a window of {self.window} micro-batches, results discarded"
        )


def benchmarks(quick: bool) -> list[Benchmark]:
    """Uniform keys with about one result a row; skewed ones with many, and memory that does not suffice."""
    many = Size(5_000, 2, 10_000, 32 << 20) if quick else Size(500_000, 2, 1_000_000, 400 << 20)
    skewed = Size(500, 8, 100_000, 2 << 20, zipf=True) if quick else Size(2_000, 20, 100_000, 10 << 20, zipf=True)
    counted = 2 if quick else 3
    return [
        Benchmark(
            "join_streams/discard",
            many.about,
            # As many more as take about as long as those with which Spark warms up.
            lambda: contestants(many, counted, 0 if quick else 20)[:2],
            (Ratio(EXACT, SPARK, 15),),
        ),
        Benchmark(
            "join_streams/quarter",
            skewed.about,
            lambda: contestants(skewed, 2 * counted),
            (Ratio(QUARTER, EXACT, 1), Ratio(QUARTER, SPARK, 1), Ratio(EXACT, SPARK)),
            recalls=(Recall(QUARTER, SPARK, 0.85), Recall(EXACT, SPARK, 1.0)),
        ),
        evictions.benchmark(quick),
    ]


def contestants(size: Size, counted: int, more: int = 0) -> list[Contestant]:
    """Exact in two ways, and with less memory than the window needs. Ours warm up by some `more` micro-batches."""
    whole: dict[int, int] = {}

    def turns(make: Callable[[Size], DataFrame], more: int, exact: bool = True) -> Callable[[Turn], Sequence[Sample]]:
        return lambda turn: _turn(turn, size, size.warm + more, counted, make(size), whole if exact else None)

    return [
        Contestant(SPARK, turns(spark_join, 0)),
        Contestant(EXACT, turns(lambda s: _penstock(s, "exact", s.memory), more)),
        Contestant(QUARTER, turns(lambda s: _penstock(s, "prob", s.memory // 4), more, exact=False)),
    ]


def sides(size: Size) -> tuple[DataFrame, DataFrame]:
    """Rows a microsecond apart; both sides draw from the same keys."""
    made = []
    for name, value, salt in (("lt", "v", 1), ("rt", "w", 2)):
        key = f"{Keys(zipf=size.zipf, salt=salt).of(size.keys)} as k"
        moment = f"timestamp_micros(1700000000000000 + value) as {name}"
        made.append(streams.numbers(size.batch).selectExpr(key, moment, f"value as {value}"))
    return made[0], made[1]


def spark_join(size: Size, microseconds: int | None = None) -> DataFrame:
    """Spark's own, over the whole window or a shorter one."""
    left, right = sides(size)
    width = f"make_dt_interval(0, 0, 0, {(microseconds or size.batch * size.window) / 1e6:.6f})"
    left = left.withWatermark("lt", "0 seconds").alias("l")
    right = right.withWatermark("rt", "0 seconds").alias("r")
    from pyspark.sql import functions as fn

    near = f"l.k = r.k AND r.rt >= l.lt - {width} AND r.rt <= l.lt + {width}"
    return left.join(right, fn.expr(near)).select("l.k", "l.lt", "l.v", "r.rt", "r.w")


def _penstock(size: Size, policy: str, memory: int) -> DataFrame:
    import penstock as ps

    left, right = sides(size)
    flow = ps.join_streams(
        left, right, on="k", within=f"{size.batch * size.window} us", time=("lt", "rt"), memory=memory, policy=policy
    )
    return flow.results


def _turn(
    turn: Turn, size: Size, warm: int, counted: int, results: DataFrame, whole: dict[int, int] | None
) -> Sequence[Sample]:
    from pyspark.sql import functions as fn

    observed = results.observe("check", fn.count("*").alias("rows"))
    with streams.scratch() as place:
        reports = streams.batches_of(streams.discard(observed, place / "checkpoint"), warm + counted, turn)
    measured = streams.samples(reports, 2 * size.batch, 0)
    if whole is not None:
        for sample in measured[size.warm :]:
            expected = whole.setdefault(sample.details["batch"], sample.results or 0)
            if sample.results != expected:
                raise RuntimeError(f"Micro-batch {sample.details['batch']}: {sample.results} results, not {expected}.")
    return measured[warm:]
