"""Kernels of subscriptions beyond ranges of one column: two-dimensional minima by the size of the table, and a join."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Benchmark, Contestant, Sample, Turn

_PLACES = pa.schema(
    [("key", pa.int64()), ("x", pa.float64()), ("z", pa.float64()), ("y", pa.float64()), ("at", pa.int64())]
)
_ORDERS = pa.schema([("key", pa.int64()), ("who", pa.int64()), ("x", pa.float64()), ("at", pa.int64())])
_PEOPLE = pa.schema([("id", pa.int64()), ("z", pa.float64()), ("at", pa.int64())])
#: Orders of each customer.
_EACH = 10


def benchmark(quick: bool) -> Benchmark:
    """Updates for each processor second, with the messages that they make."""
    sizes, batch = ((1_000, 4_000), 200) if quick else ((1_000, 10_000, 100_000), 2_000)
    return Benchmark(
        "subscriptions/beyond",
        f"batches of {batch:,} updates through one kernel, processor seconds of one core",
        lambda: [
            *(Contestant(f"MIN of two dimensions, {n:,} rows", lambda turn, n=n: _two(turn, n, batch)) for n in sizes),
            Contestant(f"select-join, {sizes[-1]:,} rows", lambda turn: _join(turn, sizes[-1], batch)),
        ],
    )


def _timed(turn: Turn, kernel: Any, batches: Iterator[tuple[int, pa.Table]], batch: int) -> list[Sample]:
    """The first batch fills the table, the second one warms up."""
    from penstock.kernels.contract import RESULTS, Batch, Portion

    samples = []
    for number, (side, rows) in enumerate(batches):
        (whole,) = rows.combine_chunks().to_batches()
        began = time.process_time()
        told = sum(e.rows.num_rows for e in kernel.step(Batch([Portion(side, whole)]), 0) if e.channel == RESULTS)
        kernel.changes()
        kernel.head()
        if number > 1 and rows.num_rows == batch:
            samples.append(Sample(batch, time.process_time() - began, details={"messages": told / batch}))
    mean = sum(sample.details["messages"] for sample in samples) / len(samples)
    turn.say(f"{mean:.1f} messages an update")
    return samples


def _two(turn: Turn, rows: int, batch: int) -> Sequence[Sample]:
    from penstock.kernels.subscriptions.intake import Columns
    from penstock.kernels.subscriptions.range_kernel import RangeSubscriptions

    def batches() -> Iterator[tuple[int, pa.Table]]:
        rng = np.random.default_rng(1)
        places = rng.uniform(0, 10_000, (2, rows))
        for number in range(5):
            keys = np.arange(rows) if number == 0 else rng.integers(0, rows, batch)
            at = number * 1_000_000 + np.arange(len(keys))
            yield 0, pa.table([keys, *places[:, keys], rng.uniform(0, 10_000, len(keys)), at], schema=_PLACES)

    columns = Columns(x="x", x2="z", y="y", key=("key",), order="at")
    return _timed(turn, RangeSubscriptions(_PLACES, columns, "min", memory=1 << 30), batches(), batch)


def _join(turn: Turn, rows: int, batch: int) -> Sequence[Sample]:
    from penstock.kernels.subscriptions.intake import Columns
    from penstock.kernels.subscriptions.select_join import SelectJoinSubscriptions

    def batches() -> Iterator[tuple[int, pa.Table]]:
        """Orders, their customers, and then moves of either by turns: one partner, or ten."""
        rng, people = np.random.default_rng(1), rows // _EACH
        for number in range(8):
            side = number % 2
            count = (people if side else rows) if number < 2 else batch
            keys = np.arange(count) if number < 2 else rng.integers(0, people if side else rows, count)
            at, place = number * 1_000_000 + np.arange(count), rng.uniform(0, 10_000, count)
            columns = [keys, place, at] if side else [keys, keys % people, place, at]
            yield side, pa.table(columns, schema=_PEOPLE if side else _ORDERS)

    columns = Columns("x", ("key",), "at", on=("who",)), Columns("z", ("id",), "at", on=("id",))
    return _timed(turn, SelectJoinSubscriptions((_ORDERS, _PEOPLE), columns, memory=1 << 30), batches(), batch)
