"""Figures 3 and 5: response times for rows that arrive together, by the paper's formulas and by the simulation.

`m` rows of one stream arrive at once and each meets all `S` rows of the other side in its window; a probe takes `t`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.shared.drawing import bars
from papers.shared.simulate import SCHEDULERS, Rows, run

F64 = npt.NDArray[np.float64]

#: The paper's: seconds, rows a second, rows at once, microseconds a probe.
WINDOWS = (1, 100, 200, 300, 400, 500, 600)
RATE, TOGETHER, PROBE = 100, 50, 0.01


def isolated(sizes: F64, m: int) -> F64:
    """A query alone: (m S_i + 1) / 2 probes."""
    return (m * sizes + 1) / 2


def lwo(sizes: F64, m: int) -> F64:
    """Equation (1): ((S_i + 1) + (m - 1) S_max) / 2 probes."""
    return ((sizes + 1) + (m - 1) * sizes.max()) / 2


def swf(sizes: F64, m: int) -> F64:
    """Equation (2): m S_{i-1} + (m + 1) / 2 (S_i - S_{i-1}) probes."""
    before = np.concatenate([[0.0], sizes[:-1]])
    return m * before + (m + 1) / 2 * (sizes - before)


def simulated(sizes: F64, m: int, name: str, hashed: bool) -> F64:
    """Probes from arrival to release, on average, for windows with so many rows of the other side."""
    windows = sizes.astype(np.int64)
    last = int(windows[-1])
    # One row at each instant before the burst, so that a window of n instants has n rows.
    waiting = Rows(np.arange(1, last + 1), np.zeros(last, np.int64))
    burst = Rows(np.full(m, last + 1), np.zeros(m, np.int64))
    scheduler = SCHEDULERS[name]
    order = scheduler.order(windows)
    tally = run(burst, waiting, windows, order, scheduler.early, begin=last + 1, hashed=hashed, lookup=0, pair=0)
    return tally.total / tally.pairs


class Times(NamedTuple):
    """Microseconds for each window: alone, by the formula, and by the simulation."""

    alone: list[float]
    formula: list[float]
    simulation: list[float]


def _run(name: str, quick: bool, say: Say) -> Times:
    say(f"{TOGETHER} rows at once")
    sizes = np.array(WINDOWS, np.float64) * (RATE / 10 if quick else RATE)
    formula = {"LWO": lwo, "SWF": swf}[name](sizes, TOGETHER)
    found = simulated(sizes, TOGETHER, name, hashed=True)
    alone = [simulated(sizes[i : i + 1], TOGETHER, "LWO", hashed=False)[0] for i in range(len(sizes))]
    return Times(*((PROBE * np.asarray(each)).tolist() for each in (alone, formula, found)))


def _same(figure: str, times: Times) -> Claim:
    apart = max(abs(a - b) / b for a, b in zip(times.simulation, times.formula, strict=True))
    return Claim(
        figure, "the simulation gives what the formula says", "", f"apart by {apart:.1e} at most", apart < 1e-9
    )


def _claims_lwo(times: Times) -> list[Claim]:
    ratio, last = times.simulation[0] / times.alone[0], times.simulation[-1] / times.alone[-1]
    return [
        _same("figure3", times),
        Claim("figure3", "under LWO the smallest window waits far longer than alone", "severely penalised",
              f"{ratio:.0f} times", ratio > 100),
        Claim("figure3", "the largest does not", "the same", f"{last:.3f} times", abs(last - 1) < 0.01),
    ]  # fmt: skip


def _claims_swf(times: Times) -> list[Claim]:
    first, last = times.simulation[0] / times.alone[0], times.simulation[-1] / times.alone[-1]
    return [
        _same("figure5", times),
        Claim("figure5", "under SWF the smallest window waits about as long as alone", "greatly reduced",
              f"{first:.2f} times", first < 1.1),
        Claim("figure5", "the largest waits longer", "at its expense", f"{last:.2f} times", last > 1.5),
    ]  # fmt: skip


def _plot(name: str, times: Times, path: Path) -> None:
    bars(
        path,
        {"": {"alone": times.alone, f"{name}, formula": times.formula, f"{name}, simulation": times.simulation}},
        [f"{w} s" for w in WINDOWS],
        "µs",
    )


FIGURE3 = Figure(
    "figure3", "LWO against each query alone, rows arriving together", lambda quick, say: _run("LWO", quick, say),
    _claims_lwo, lambda times, path: _plot("LWO", times, path),
)  # fmt: skip
FIGURE5 = Figure(
    "figure5", "SWF against each query alone, rows arriving together", lambda quick, say: _run("SWF", quick, say),
    _claims_swf, lambda times, path: _plot("SWF", times, path),
)  # fmt: skip
