"""Figures 4.2 and 4.9 of 003: how much hotspots cover, and what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.standing.lines import Curves, figure, sweep
from papers.standing.workload import DOMAIN, Bench, Load

GROUPS = 5_000


def _coverage(quick: bool, say: Say) -> dict[float, np.ndarray]:
    """The share of queries in the k largest of 5,000 groups whose sizes follow Zipf's law, by its exponent."""
    found = {}
    for exponent in (1.0, 1.1, 1.2):
        sizes = np.arange(1, GROUPS + 1) ** -exponent
        found[exponent] = np.cumsum(sizes) / sizes.sum()
    return found


def _coverage_claims(found: dict[float, np.ndarray]) -> Sequence[Claim]:
    top = {exponent: float(shares[499]) for exponent, shares in found.items()}
    return [
        Claim(
            "figure4_2",
            "a tenth of the groups has most queries, at exponent 1",
            "about 70%",
            f"{top[1.0]:.0%}",
            0.65 < top[1.0] < 0.8,
        ),
        Claim(
            "figure4_2",
            "more with a larger exponent",
            "increases",
            ", ".join(f"{s:.0%}" for s in top.values()),
            list(top.values()) == sorted(top.values()),
        ),
    ]


def _plot_coverage(found: dict[float, np.ndarray], path: Path) -> None:
    canvas = Canvas(figsize=(6, 4.2), layout="constrained")
    panel = canvas.subplots()
    for exponent, shares in found.items():
        panel.plot(np.arange(1, GROUPS + 1), 100 * shares, label=f"exponent {exponent}")
    panel.set(xlabel="largest groups", ylabel="% of queries", title="What the largest groups cover: 003, Figure 4.2")
    panel.legend(frameon=False)
    canvas.savefig(path, dpi=110)


def _share(quick: bool, say: Say) -> Curves:
    """Microseconds an event over the share of queries in hotspots."""
    n = 5_000 if quick else 200_000
    shares = (10, 100) if quick else (10, 25, 50, 75, 100)

    def time_of(share: float, name: str) -> float:
        load = Load(queries=n, scattered=1 - share / 100, held=2_000 if quick else 100_000)
        bounds = load.bounds()
        # The scattered ones share no point with others: as short as they are many.
        loose = np.abs((bounds[:, 2] + bounds[:, 3]) / 2 % (DOMAIN / load.groups) - DOMAIN / load.groups / 2) > 1
        middle = (bounds[loose, 2] + bounds[loose, 3]) / 2
        bounds[loose, 2:] = np.stack([middle - 1e-3, middle + 1e-3], axis=1)
        bench = Bench(load, bounds=bounds)
        bench.set(name, alpha=0.005)
        return 1e6 / bench.rate(name)

    return sweep(shares, ("select_first", "hotspot"), time_of, say, "% in hotspots")


def _share_claims(curves: Curves) -> Sequence[Claim]:
    hot, plain = curves.rates["hotspot"], curves.rates["select_first"]
    full = len(curves.over) > 2
    line = float(np.corrcoef(curves.over, hot)[0, 1])
    return [
        Claim(
            "figure4_9",
            "time falls linearly with the share of queries in hotspots",
            "linear",
            f"correlation {line:.3f}",
            line < -0.95 if full else None,
        ),
        Claim(
            "figure4_9",
            "SJ-SelectFirst alone does not gain",
            "identical",
            f"{max(plain) / min(plain):.1f} × between best and worst",
            max(plain) / min(plain) < 2 if full else None,
        ),
        Claim(
            "figure4_9",
            "with all queries in hotspots",
            "far below",
            f"{plain[-1] / hot[-1]:.0f} × faster",
            plain[-1] > 5 * hot[-1] if full else None,
        ),
    ]


COVERAGE = Figure("figure4_2", "what the largest groups cover", _coverage, _coverage_claims, _plot_coverage)
SHARE = figure(
    "figure4_9", "time over the share in hotspots", "% of queries in hotspots", _share, _share_claims, "µs an event"
)
