"""Figure 2.4: what batches of changes of PartSupp (flat) and of Supplier (linear) cost, in the chapter's view."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.views.curves import Curves, view_curves
from papers.views.figure2_1 import draw, growth


def run(quick: bool, say: Say) -> Curves:
    say("measuring batches")
    return view_curves(quick)


def claims(curves: Curves) -> Sequence[Claim]:
    flat, steep = growth(curves.points["PartSupp"]), growth(curves.points["Supplier"])
    lawful = all(
        cost(a + b) <= cost(a) + cost(b) + 1e-12
        for cost in curves.costs.values()
        for a in range(1, 400, 7)
        for b in range(1, 400, 13)
    )
    return [
        Claim(
            "figure2_4",
            "changes of Supplier: linear in their number",
            "“approximately linear”",
            f"{steep:.1f} × from ≤ 10 to 400",
            steep > 8,
        ),
        Claim(
            "figure2_4",
            "changes of PartSupp: fairly stable",
            "“fairly stable”",
            f"{flat:.1f} × from ≤ 10 to 400",
            flat < steep / 4,
        ),
        Claim("figure2_4", "costs are monotone and subadditive", "assumed", "yes" if lawful else "no", lawful),
    ]


def plot(curves: Curves, path: Path) -> None:
    draw(curves.points, "MIN(supplycost) over PartSupp ⋈ Supplier ⋈ Nation ⋈ Region", path)


FIGURE = Figure("figure2_4", "cost of batches of PartSupp and of Supplier", run, claims, plot)
