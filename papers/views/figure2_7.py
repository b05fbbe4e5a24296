"""Figure 2.7: unsteady arrivals, slow or fast, stable or not; SIMULATE still follows its plan for steady ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.views.curves import bounds, view_curves
from papers.views.planners import KINDS, NAMES, compare, instance, unsteady

ROBUST = 1.25
NEAR = 1.15


@dataclass(frozen=True)
class Outcome:
    """Costs as multiples of OPT-LGM's, the mean over some sequences: by kind and planner."""

    ratios: dict[tuple[str, str], float]


def run(quick: bool, say: Say) -> Outcome:
    curves = view_curves(quick)
    _, bound = bounds(curves.costs)
    steps, seeds = (500, 2) if quick else (1000, 5)
    ratios = {}
    for kind in KINDS:
        say(kind)
        runs = [compare(instance(curves, unsteady(kind, steps, seed), bound)) for seed in range(seeds)]
        for name in NAMES:
            ratios[kind, name] = sum(one[name][0] / one["OPT-LGM"][0] for one in runs) / seeds
    return Outcome(ratios)


def claims(found: Outcome) -> Sequence[Claim]:
    said = []
    for kind in KINDS:
        ours = found.ratios[kind, "SIMULATE"]
        said.append(
            Claim("figure2_7", f"{kind}: SIMULATE is robust", "“quite robust”", f"{ours:.3f} × OPT-LGM", ours <= ROBUST)
        )
    for kind in KINDS:
        ours, stable = found.ratios[kind, "ONLINE"], ", stable" in kind
        paper = "close to OPT-LGM" if stable else "not as good as SIMULATE"
        said.append(
            Claim("figure2_7", f"{kind}: ONLINE", paper, f"{ours:.3f} × OPT-LGM", ours <= NEAR if stable else None)
        )
    least = min(
        found.ratios[kind, "NAIVE"] - found.ratios[kind, other] for kind in KINDS for other in ("ONLINE", "SIMULATE")
    )
    naive = ", ".join(f"{found.ratios[kind, 'NAIVE']:.2f}" for kind in KINDS)
    said.append(
        Claim("figure2_7", "both are better than NAIVE for all four", "yes", f"NAIVE: {naive} × OPT-LGM", least > 0)
    )
    return said


def plot(found: Outcome, path: Path) -> None:
    canvas = Canvas(figsize=(7, 3.8), layout="constrained")
    axes = canvas.subplots()
    for number, name in enumerate(NAMES):
        places = [place + 0.16 * (number - 2) for place in range(len(KINDS))]
        axes.bar(places, [found.ratios[kind, name] for kind in KINDS], 0.16, label=name)
    axes.set_xticks(range(len(KINDS)), list(KINDS))
    axes.set(ylabel="cost, as a multiple of OPT-LGM's", title="Unsteady arrivals")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(path, dpi=110)


FIGURE = Figure("figure2_7", "planners for unsteady arrivals", run, claims, plot)
