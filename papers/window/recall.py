"""How much of the join each policy keeps, over memory: the kernel itself, with estimates of its own.

Not a figure of a paper: 002 gives its policies the frequencies of keys, here they are counted while rows flow, in the
same memory. Zipf(1.0) keys; memory from 0.05 to 1.5 of what the exact join needs for the same rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.window.trends import Lines, plot_lines
from penstock.errors import MemoryTooSmall
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.window.exact import Exact
from penstock.kernels.window.heeb import Heeb
from penstock.kernels.window.life import Life
from penstock.kernels.window.policy import Policy
from penstock.kernels.window.prob import Prob
from penstock.kernels.window.rand import Rand
from penstock.kernels.window.shape import Shape
from penstock.kernels.window.side import ENTRY
from penstock.kernels.window.windowjoin import WindowJoin
from penstock.kernels.window.windows import TimeWindow
from penstock.testing import zipf_keys

LEFT = pa.schema([("k", pa.int64()), ("lt", pa.timestamp("us")), ("v", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("rt", pa.timestamp("us")), ("w", pa.int64())])
SHAPE = Shape(LEFT, RIGHT, (("k", "k"),))
ROW = 24 + 3 / 8 + ENTRY
SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5)
POLICIES: dict[str, Policy] = {"PROB": Prob(), "HEEB": Heeb(fit=False), "LIFE": Life(), "RAND": Rand()}


def stream(side: int, keys: np.ndarray, first: int) -> Portion:
    times = pa.array(np.arange(first, first + len(keys))).cast(pa.timestamp("us"))
    columns = [pa.array(keys), times, pa.array(np.arange(first, first + len(keys)))]
    return Portion(side, pa.RecordBatch.from_arrays(columns, schema=(LEFT, RIGHT)[side]))


def results(policy: Policy, budget: int, keys: tuple[np.ndarray, np.ndarray], window: int, step: int) -> int:
    """Results once the window is full."""
    kernel = WindowJoin(SHAPE, TimeWindow(window, window), policy, budget=budget, times=("lt", "rt"))
    found = 0
    for begin in range(0, len(keys[0]), step):
        portions = [stream(side, keys[side][begin : begin + step], begin) for side in (0, 1)]
        came = sum(e.rows.num_rows for e in kernel.step(Batch(portions, begin - 1), 0) if e.channel == "results")
        kernel.changes()
        found += came if begin >= 2 * window else 0
    return found


def needed(keys: tuple[np.ndarray, np.ndarray], window: int, step: int) -> tuple[int, int]:
    """The memory that the exact join needs, to within a fiftieth, and its results."""
    low, found = int(2 * window * ROW), 0
    while not found:
        try:
            found = results(Exact(), low, keys, window, step)
        except MemoryTooSmall:
            low = int(low * 1.02)
    return low, found


def run(quick: bool, say: Say) -> Lines:
    window, domain = (2_000, 5_000) if quick else (8_000, 20_000)
    step = window // 40
    keys = (zipf_keys(3 * window, domain, 1.0, 1), zipf_keys(3 * window, domain, 1.0, 2))
    need, whole = needed(keys, window, step)
    shares = (0.25, 0.5) if quick else SHARES
    lines = Lines(list(shares))
    for share in shares:
        budget = max(int(share * need), 64 << 10)
        for name, policy in POLICIES.items():
            say(f"{name}, {share} windows")
            lines.found.setdefault(name, []).append(results(policy, budget, keys, window, step) / whole)
    return lines


def claims(lines: Lines) -> list[Claim]:
    quarter = lines.at.index(0.25)
    shown = ", ".join(f"{name} {values[quarter]:.1%}" for name, values in lines.found.items())
    return [
        Claim("recall", "a quarter of the memory keeps 85% of the results with PROB", "", shown,
              lines.found["PROB"][quarter] >= 0.85),
    ]  # fmt: skip


def plot(lines: Lines, path: Path) -> None:
    plot_lines({"share of the exact join": lines}, path, "memory (of what EXACT needs)")


FIGURE = Figure("recall", "how much of the join each policy keeps, over memory", run, claims, plot)
