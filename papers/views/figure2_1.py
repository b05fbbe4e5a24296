"""Figure 2.1: what batches of changes of R and S cost, R with an index on the join column and S without.

Changes of S are joined by index look-ups (linear); changes of R by one scan of S (flat). On these curves the example of
the opening is played again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.views.curves import Curves, Points, join_curves
from penstock.kernels.views.costs import Linear
from penstock.kernels.views.lgm import Instance, carry_out, opt_lgm
from penstock.kernels.views.naive import Naive
from penstock.models.view_cost import nearest_line


@dataclass(frozen=True)
class Outcome:
    """The curves; NAIVE and OPT-LGM on them, in seconds for each change."""

    curves: Curves
    naive: float
    best: float


def run(quick: bool, say: Say) -> Outcome:
    say("measuring batches")
    curves = join_curves(quick)
    # Lines through the curves, as the chapter's own example has them.
    lines = [nearest_line((x, y, 1.0) for x, y in curves.points[name]) for name in ("S", "R")]
    costs = tuple(Linear(line.each, line.setup) for line in lines)
    # As in the chapter: NAIVE refreshes after 180 changes of each.
    bound = sum(cost(180) for cost in costs)
    steps = 600 if quick else 6000
    instance = Instance(costs, ((1, 1),) * steps, bound)
    naive, best = carry_out(Naive(), instance).cost, opt_lgm(instance).cost
    return Outcome(curves, naive / (2 * steps), best / (2 * steps))


def growth(points: Points) -> float:
    """How many times more the largest batch costs than a small one."""
    small = [seconds for size, seconds in points if size <= 10]
    return points[-1][1] / (sum(small) / len(small))


def claims(found: Outcome) -> Sequence[Claim]:
    points = found.curves.points
    flat, steep = growth(points["R"]), growth(points["S"])
    ratio = found.naive / found.best
    return [
        Claim(
            "figure2_1",
            "c_ΔR starts high and increases little: 400 changes against ≤ 10",
            "0.29 s → 0.35 s (1.2 ×)",
            f"{points['R'][0][1] * 1e3:.1f} ms → {points['R'][-1][1] * 1e3:.1f} ms ({flat:.1f} ×)",
            flat < 1.5,
        ),
        Claim(
            "figure2_1",
            "c_ΔS is low and linear",
            "0.25 ms a change",
            f"{points['S'][-1][1] / points['S'][-1][0] * 1e6:.1f} µs a change, {steep:.1f} × from ≤ 10 to 400",
            steep > 3 and points["S"][0][1] < points["R"][0][1] / 2,
        ),
        Claim("figure2_1", "NAIVE against the better plan, on these curves", "2.3 ×", f"{ratio:.1f} ×", ratio > 1.8),
    ]


def plot(found: Outcome, path: Path) -> None:
    draw(found.curves.points, "Batches of changes of R (indexed) and S (not)", path)


def draw(points: dict[str, Points], title: str, path: Path) -> None:
    canvas = Canvas(figsize=(5.5, 3.8), layout="constrained")
    axes = canvas.subplots()
    for name, measured in points.items():
        axes.plot(
            [x for x, _ in measured], [y * 1e3 for _, y in measured], "o-", markersize=3, label=f"changes of {name}"
        )
    axes.set(xlabel="size of the batch", ylabel="milliseconds", ylim=(0, None), title=title)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(path, dpi=110)


FIGURE = Figure("figure2_1", "cost of batches of R and of S", run, claims, plot)
