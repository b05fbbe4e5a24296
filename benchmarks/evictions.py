"""What letting rows go costs a window join, over the number of distinct keys: processor time of the kernel alone.

The same rows, memory and window; only the keys differ, 10³ to 10⁶ of them, uniform, and those of the two sides are
different ones, so that nothing is spent on results. Memory is full: for every row that comes, one goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from benchmarks.harness import Benchmark, Contestant, Ratio, Sample
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.window.heeb import Heeb
from penstock.kernels.window.life import Life
from penstock.kernels.window.policy import Policy
from penstock.kernels.window.prob import Prob
from penstock.kernels.window.shape import Shape
from penstock.kernels.window.windowjoin import WindowJoin
from penstock.kernels.window.windows import TimeWindow

KEYS = (1_000, 10_000, 100_000, 1_000_000)
POLICIES: dict[str, Callable[[], Policy]] = {"PROB": Prob, "LIFE": Life, "HEEB": Heeb}
_SIDES = tuple(pa.schema([("k", pa.int64()), (t, pa.timestamp("us")), (v, pa.int64())]) for t, v in ("lv", "rw"))
_SHAPE = Shape(*_SIDES, (("k", "k"),))


def benchmark(quick: bool) -> Benchmark:
    """A thousand times the keys at most double the time of a step."""
    rows = 20_000 if quick else 400_000
    few, many = KEYS[0], KEYS[-1]
    return Benchmark(
        "join_streams/evictions",
        f"the kernel alone in processor time, memory for about {rows:,} rows and as many keys as said, "
        "for every row that comes one goes, no results",
        lambda: [Contestant(_name(p, k), lambda turn, p=p, k=k: _turn(p, k, rows)) for p in POLICIES for k in KEYS],
        tuple(Ratio(_name(policy, many), _name(policy, few), 0.5) for policy in POLICIES),
    )


def _name(policy: str, keys: int) -> str:
    return f"{policy}, {keys:,} keys"


def _turn(policy: str, keys: int, rows: int) -> Sequence[Sample]:
    """Ten steps of a twentieth of the memory each, once it is full."""
    window = TimeWindow(100 * rows, 100 * rows)
    kernel = WindowJoin(_SHAPE, window, POLICIES[policy](), budget=107 * rows, times=("l", "r"))
    samples = []
    for number, batch in enumerate(_batches(keys, rows // 40, 45)):
        began = time.process_time()
        for _ in kernel.step(batch, 0):
            pass
        kernel.changes()
        samples.append((time.process_time() - began, kernel.metrics()["rows_evicted"], number))
    counted = [(seconds, gone) for seconds, gone, number in samples if number >= 25]
    if not sum(gone for _, gone in counted):
        raise RuntimeError("No row was evicted: the memory is not full.")
    return [Sample(len(counted) * 2 * (rows // 40), sum(seconds for seconds, _ in counted))]


def _batches(keys: int, rows: int, steps: int) -> Iterator[Batch]:
    rng = np.random.default_rng(keys)
    for step in range(steps):
        times = np.arange(step * rows, (step + 1) * rows)
        portions = []
        for side, schema in enumerate(_SIDES):
            columns = [2 * rng.integers(0, keys, rows) + side, times.astype("datetime64[us]"), times]
            portions.append(Portion(side, pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=schema)))
        yield Batch(portions)
