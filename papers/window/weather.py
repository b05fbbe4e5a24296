"""Figures 7 and 8 of 002: cloud reports of two Septembers, joined by place; window 5,000.

The original data set is not to be had. The generator has its shape: land stations on the globe, each in one of the
18 × 36 cells of 10 degrees, about 650 of them in use, a report every three hours from each, the stations of both years
mostly the same ones. What matters to the join is how unequal cells are: some have hundreds of stations, many have one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.window.simulate import PROB, RAND, exact, simulate

SHARES = (0.1, 0.25, 0.5, 1.0, 1.5)


def reports(length: int, year: int) -> np.ndarray:
    """The cell of each report, stations taking turns in an order of their own."""
    globe = np.random.default_rng(1985)
    # Stations stand where people live: few cells have most of them.
    weight = globe.lognormal(0.0, 2.0, 648)
    stations = globe.choice(648, 7_000, p=weight / weight.sum())
    rng = np.random.default_rng(year)
    moved = rng.random(len(stations)) < 0.05
    stations = np.where(moved, rng.permutation(stations), stations)
    rounds = [stations[rng.permutation(len(stations))] for _ in range(-(-length // len(stations)))]
    return np.concatenate(rounds)[:length]


@dataclass
class Outcome:
    exact: int = 0
    found: dict[str, list[int]] = field(default_factory=dict)
    allocation: np.ndarray = field(default_factory=lambda: np.zeros(0))


def run(quick: bool, say: Say) -> Outcome:
    window, warm, length = (500, 1_000, 3_000) if quick else (5_000, 10_000, 30_000)
    left, right = reports(length, 1985), reports(length, 1986)
    chances = tuple(np.bincount(side, minlength=648) / length for side in (left, right))
    outcome = Outcome(exact(left, right, window, warm))
    for share in SHARES:
        say(f"memory {share} w")
        memory = 2 * round(share * window / 2)
        for name, policy, fixed in (("RAND", RAND, True), ("PROB", PROB, True), ("PROBV", PROB, False)):
            got = simulate(
                left, right, window=window, memory=memory, policy=policy, chances=chances, fixed=fixed, warm_up=warm
            )  # type: ignore[arg-type]
            outcome.found.setdefault(name, []).append(got.results)
            if name == "PROBV" and share == 1.0:
                outcome.allocation = got.left_share[warm:]
    return outcome


def claims(outcome: Outcome) -> list[Claim]:
    half = SHARES.index(1.0)  # a memory of 2 w holds everything
    parts = [outcome.found[name][half] / outcome.exact for name in ("PROB", "PROBV")]
    low, high = outcome.allocation.min(), outcome.allocation.max()
    return [
        Claim("figure7", "PROB and PROBV with half the memory", "over 90% of EXACT",
              f"{parts[0]:.1%} and {parts[1]:.1%}", bool(min(parts) > 0.9)),
        Claim("figure8", "the allocation stays near 50:50", "“more or less at the 50-50 mark”",
              f"{low:.0%} to {high:.0%} for the left", low > 0.4 and high < 0.6),
    ]  # fmt: skip


def plot(outcome: Outcome, path: Path) -> None:
    canvas = Canvas(figsize=(9.2, 3.8), layout="constrained")
    panel, share = canvas.subplots(1, 2)
    for name, counts in outcome.found.items():
        panel.plot(SHARES, counts, "o-", label=name)
    panel.axhline(outcome.exact, color="0.4", linestyle="--", label="EXACT")
    panel.set(xlabel="memory (windows)", ylabel="results", ylim=(0, None))
    panel.legend(frameon=False, fontsize=8)
    share.plot(outcome.allocation)
    share.set(xlabel="instant", ylabel="share of memory with left rows", ylim=(0, 1))
    canvas.savefig(path, dpi=110)


FIGURE7 = Figure("figure7", "002, Figures 7 and 8: weather reports, generated in their shape", run, claims, plot)
