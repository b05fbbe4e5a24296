"""Figure 4.12 of 003: how well histograms with few buckets tell how many intervals contain a point.

The paper gives Normal(5000, 1500) for the middles and Normal(1000, 2000) for the lengths of its intervals, 18 groups,
and an error of more than 70% for equal width. With 1500 and 150 as deviations there are 20 groups, with 1500 and 45
(2000 as a variance) 15; either way every place asked has a hundred intervals at least, equal width is off by 14%, and
the optimum by 12%. Its intervals were others, or its buckets: if those of equal width count every interval that touches
them, whole, they are off by 62% with 20 and by 23% with 50 (the paper: more than 70%, and 15%). Where intervals are
clustered equal width is as bad as it says, and worse. Both are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from penstock.kernels.standing.partition import canonical, points
from penstock.models.interval_histogram import EqualWidth, estimate, optimal, ssi, stabbed

HIGH = 10_000.0
Errors = dict[str, dict[str, list[float]]]


def _intervals(kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    if kind == "spread":
        middle, length = rng.normal(5_000, 1_500, count), np.abs(rng.normal(1_000, 150, count))
    else:
        middle = rng.choice([1_200.0, 3_000.0, 5_500.0, 8_200.0], count) + rng.normal(0, 40, count)
        length = rng.normal(700, 45, count)
    return middle - length / 2, middle + length / 2


def _run(quick: bool, say: Say) -> tuple[tuple[int, ...], Errors]:
    buckets = (20, 40) if quick else (20, 30, 40, 50, 60, 70)
    errors: Errors = {}
    for kind in ("clustered", "spread"):
        lo, hi = _intervals(kind, 4_000 if quick else 100_000)
        found = canonical(lo, hi)
        stabs = points(found.low, found.high)
        asked = np.random.default_rng(8).uniform(0, HIGH, 5_000)
        true = stabbed(lo, hi, asked)
        asked, true = asked[true > 0], true[true > 0]
        errors[kind] = {"SSI-HIST": [], "EQW-HIST": [], "OPTIMAL": []}
        for count in buckets:
            say(f"{kind}, {count} buckets")
            plain = EqualWidth(0.0, HIGH, count)
            plain.add(lo, hi)
            guesses = {
                "SSI-HIST": estimate(ssi(lo, hi, found.group, stabs, count, 0.0, HIGH), asked),
                "EQW-HIST": plain(asked),
                "OPTIMAL": optimal(lo, hi, count, 0.0, HIGH, places=400 if quick else 1_000)(asked),
            }
            for name, guess in guesses.items():
                errors[kind][name].append(float(np.mean(np.abs(guess - true) / true)))
    return buckets, errors


def _claims(outcome: tuple[tuple[int, ...], Errors]) -> Sequence[Claim]:
    _, errors = outcome
    found = []
    for kind, by in errors.items():
        ssi_error, equal, best = (by[name][0] for name in ("SSI-HIST", "EQW-HIST", "OPTIMAL"))
        said = f"{ssi_error:.0%}, {equal:.0%}, {best:.0%}"
        found.append(
            Claim(
                "figure4_12",
                f"{kind} intervals, 20 buckets: error of SSI, equal width, optimum",
                "15%, 70%, less",
                said,
                None,
            )
        )
    clustered = errors["clustered"]
    ahead = all(a < b for a, b in zip(clustered["SSI-HIST"], clustered["EQW-HIST"], strict=True))
    near = max(a / b for a, b in zip(clustered["SSI-HIST"], clustered["OPTIMAL"], strict=True))
    spread = errors["spread"]
    return [
        *found,
        Claim(
            "figure4_12", "clustered: SSI is ahead of equal width with any number of buckets", "all the time", "", ahead
        ),
        Claim(
            "figure4_12",
            "clustered: SSI is near the optimum",
            "reduces the gap",
            f"at most {near:.1f} × its error",
            near < 2.5,
        ),
        Claim(
            "figure4_12",
            "spread: SSI is ahead of equal width",
            "all the time",
            f"{spread['SSI-HIST'][0]:.0%} against {spread['EQW-HIST'][0]:.0%}: so little changes from one bucket to "
            f"the next that the optimum itself has {spread['OPTIMAL'][0]:.0%}",
            None,
        ),
    ]


def _plot(outcome: tuple[tuple[int, ...], Errors], path: Path) -> None:
    buckets, errors = outcome
    canvas = Canvas(figsize=(10, 4.2), layout="constrained")
    for panel, (kind, by) in zip(canvas.subplots(1, 2), errors.items(), strict=True):
        for name, values in by.items():
            panel.plot(buckets, [100 * value for value in values], "o-", label=name)
        panel.set(xlabel="buckets", ylabel="mean relative error, %", yscale="log", title=f"{kind}: 003, Figure 4.12")
        panel.legend(frameon=False)
    canvas.savefig(path, dpi=110)


FIGURE = Figure("figure4_12", "histograms of intervals", _run, _claims, _plot)
