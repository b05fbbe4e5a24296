"""What an eviction costs, over the number of distinct keys: seconds of the whole step for each row that goes.

The same rows, memory and window; only the keys differ, 10³ to 10⁶ of them, uniform. Measured for PROB, which looks
every key up. One warm-up; the least of some rounds, since the machine may do other work.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.window.recall import SHAPE, stream
from papers.window.trends import Lines, plot_lines
from penstock.kernels.contract import Batch
from penstock.kernels.window.prob import Prob
from penstock.kernels.window.windowjoin import WindowJoin
from penstock.kernels.window.windows import TimeWindow


def cost(distinct: int, rows: int, rounds: int) -> float:
    """Microseconds for each evicted row, without those for finding results: the window is too short for any."""
    rng = np.random.default_rng(distinct)
    kernel = WindowJoin(SHAPE, TimeWindow(10 * rows, 10 * rows), Prob(), budget=rows * 200, times=("lt", "rt"))
    step, best, first = rows // 10, np.inf, 0
    for number in range(20 + 10 * rounds):
        # Keys of the two sides are different ones, so that nothing is spent on results.
        keys = [2 * rng.integers(0, distinct, step) + side for side in (0, 1)]
        portions = [stream(side, keys[side], first) for side in (0, 1)]
        first += step
        began = time.perf_counter()
        for _ in kernel.step(Batch(portions, None), 0):
            pass
        took, gone = time.perf_counter() - began, kernel.metrics()["rows_evicted"]
        kernel.changes()
        if number >= 20 and gone:
            best = min(best, took / gone)
    return best * 1e6


def run(quick: bool, say: Say) -> Lines:
    sizes = [1_000, 10_000] if quick else [1_000, 10_000, 100_000, 1_000_000]
    lines = Lines([float(size) for size in sizes])
    cost(1_000, 20_000, 1)
    for size in sizes:
        say(f"{size:,} keys")
        lines.found.setdefault("PROB", []).append(cost(size, 20_000 if quick else 200_000, 1 if quick else 4))
    return lines


def claims(lines: Lines) -> list[Claim]:
    costs = lines.found["PROB"]
    return [
        Claim("eviction", f"{lines.at[-1]:,.0f} distinct keys at most double the cost of {lines.at[0]:,.0f}", "",
              ", ".join(f"{one:.2f} µs" for one in costs), costs[-1] <= 2 * costs[0]),
    ]  # fmt: skip


def plot(lines: Lines, path: Path) -> None:
    plot_lines({"µs for each evicted row": lines}, path, "distinct keys")


FIGURE = Figure("eviction", "what an eviction costs, over distinct keys", run, claims, plot)
