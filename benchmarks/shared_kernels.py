"""The kernels of `join_shared` and `join_streams` alone, without Spark: processor seconds of a micro-batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from benchmarks.harness import Benchmark, Contestant, Ratio, Sample, Turn
from penstock.kernels.contract import Batch, Kernel, Portion
from penstock.plan.join_shared import SCHEDULERS, JoinSharedPlan
from penstock.plan.join_streams import JoinStreamsPlan

SEVEN = "seven window joins"
WIDEST = "the widest alone"
TIMES = ("lt", "rt")
SCHEMAS = tuple(
    pa.schema([("k", pa.int64()), (time_, pa.timestamp("us")), (value, pa.int64())])
    for time_, value in zip(TIMES, "vw", strict=True)
)
#: The widest window in micro-batches, and micro-batches until it is full.
WINDOW, WARM, COUNTED = 4, 5, 3


def benchmark(quick: bool, shares: Sequence[float]) -> Benchmark:
    """Seven queries, windows small-large, as many keys as two micro-batches have rows of a side."""
    rows = 4_000 if quick else 50_000
    widths = [max(int(rows * WINDOW * share), 1) for share in shares]

    def alone(width: int) -> Kernel:
        plan = JoinStreamsPlan.checked(
            *SCHEMAS, on="k", within=f"{width} us", time=TIMES, memory="256MB", slots=1, archive=False
        )
        return plan.make(0)

    def shared(scheduler: str) -> Kernel:
        windows = {f"q{number}": f"{width} us" for number, width in enumerate(widths)}
        plan = JoinSharedPlan.checked(
            *SCHEMAS, on="k", windows=windows, time=TIMES, memory="512MB", slots=1, slice=None, scheduler=scheduler
        )
        return plan.make(0)

    def turn(make: Callable[[], Iterable[Kernel]]) -> Callable[[Turn], Sequence[Sample]]:
        return lambda _: _run(list(make()), rows)

    return Benchmark(
        "join_shared/kernels",
        f"kernels alone, seven queries, windows small-large; {rows:,} rows a side; seconds are of the processor",
        lambda: [
            Contestant(SEVEN, turn(lambda: [alone(width) for width in widths])),
            *(Contestant(_name(one), turn(lambda one=one: [shared(one)])) for one in SCHEDULERS),  # type: ignore[misc]
            Contestant(WIDEST, turn(lambda: [alone(widths[-1])])),
        ],
        tuple(Ratio(_name(one), SEVEN) for one in SCHEDULERS),
    )


def _name(scheduler: str) -> str:
    return f"one shared join, {SCHEDULERS[scheduler].describe()}"


@cache
def _batches(rows: int) -> list[list[Portion]]:
    rng = np.random.default_rng(1)
    made = []
    for number in range(WARM + COUNTED):
        at = number * rows + np.arange(rows)
        columns = [pa.array(at).cast(pa.timestamp("us")), pa.array(at)]
        keys = [pa.array(rng.integers(0, 2 * rows, rows)) for _ in SCHEMAS]
        made.append(
            [
                Portion(side, pa.RecordBatch.from_arrays([keys[side], *columns], schema=schema))
                for side, schema in enumerate(SCHEMAS)
            ]
        )
    return made


def _run(kernels: Sequence[Kernel], rows: int) -> list[Sample]:
    found = []
    for number, portions in enumerate(_batches(rows)):
        began, results = time.process_time(), 0
        for kernel in kernels:
            batch = Batch(portions, number * rows - 1 if number else None)
            results += sum(emission.rows.num_rows for emission in kernel.step(batch, 0))
            kernel.changes()
            kernel.head()
        seconds = time.process_time() - began
        memory = sum(kernel.memory() for kernel in kernels)
        found.append(Sample(2 * rows, seconds, seconds, results, {"batch": number, "memory": memory}))
    return found[WARM:]
