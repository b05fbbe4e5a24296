"""Figure 2.6: the cost of the planners until a reader comes at T, one change of each table a step, C = 12.

ONLINE is the chapter's equation 2.1 to the letter (`test_online_is_the_rule_of_the_chapter`): what was spent since the
last reader and the cost of the set, over the time from that reader to the next forced action; arrivals are uniform, so
the rates that it sees are the true ones from the first step on.

The chapter's curves are not known, but their proportions: a change of PartSupp costs less than 12 seconds, and NAIVE
refreshes more than 20 times in 1,000 steps at C = 20, so that 47 changes of Supplier and as many of PartSupp together
cost 20. On lines like that ONLINE is OPT-LGM wherever NAIVE is far above it: with a flat cost of 5 to 11 seconds that
grows by half in 1,000 changes. With one of 4 it is 1.11 times OPT-LGM, with 2 seconds 1.25 times, and NAIVE only 1.15.

On the curves measured here the claim fails, for another proportion: with B-trees in memory a change of Supplier costs
1/140 of the flat cost, where the chapter's cost more than 1/74. So more changes of PartSupp come to wait, and they all
but fill the bound before T. Then ONLINE goes on to clear the other table for ever shorter times, since a cheap past is
spread over each of them: up to 1.72 times OPT-LGM at the bound of `curves.bounds`, 1.5 times the flat cost. With twice
the flat cost it is OPT-LGM. What views run looks some actions ahead instead of back, and is not caught.

SIMULATE clears everything when something must be done after T0, not at T0 itself, as the chapter has it: with uniform
arrivals that is up to 1% less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.views.curves import bounds, view_curves
from papers.views.planners import NAMES, compare, instance, uniform
from penstock.kernels.views.costs import Linear
from penstock.kernels.views.lgm import Instance

NEAR = 1.15
FAR = 1.5
#: Seconds of the chapter's flat cost, as far as they are known, and the share by which a change may add to them.
FLAT = (5.0, 8.0, 11.0)
GROWTH = 0.0005


@dataclass(frozen=True)
class Outcome:
    """Seconds of each planner, one for each T."""

    times: tuple[int, ...]
    costs: dict[str, list[float]]
    #: On lines of the chapter's proportions: the greatest multiple of OPT-LGM of each planner, the least of NAIVE.
    proportional: dict[str, float]

    def ratios(self, name: str) -> list[float]:
        return [cost / best for cost, best in zip(self.costs[name], self.costs["OPT-LGM"], strict=True)]


def run(quick: bool, say: Say) -> Outcome:
    curves = view_curves(quick)
    bound, _ = bounds(curves.costs)
    times = tuple(range(100, 1001, 100))
    costs: dict[str, list[float]] = {name: [] for name in NAMES}
    for time in times:
        say(f"T = {time}")
        for name, (cost, _) in compare(instance(curves, uniform(time), bound)).items():
            costs[name].append(cost)
    say("lines of the chapter's proportions")
    return Outcome(times, costs, _on_lines(times))


def _on_lines(times: Sequence[int]) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for setup in FLAT:
        flat = Linear(setup * GROWTH, setup)
        steep = Linear((20.0 - flat(47)) / 47, 0.0)
        for time in times:
            costs = compare(Instance((steep, flat), uniform(time), 12.0))
            for name in NAMES:
                found[name].append(costs[name][0] / costs["OPT-LGM"][0])
    return {name: min(ratios) if name == "NAIVE" else max(ratios) for name, ratios in found.items()}


def claims(found: Outcome) -> Sequence[Claim]:
    said = []
    for name in ("ONLINE", "ONLINE, looking ahead", "SIMULATE"):
        for where, worst in (
            ("", max(found.ratios(name))),
            (", on lines of the chapter's proportions", found.proportional[name]),
        ):
            claim = f"{name} is close to OPT-LGM at every T{where}"
            said.append(Claim("figure2_6", claim, "“very close”", f"{worst:.3f} × at most", worst <= NEAR))
    least = min(found.ratios("NAIVE"))
    said.append(
        Claim("figure2_6", "NAIVE is far above", "“much better than NAIVE”", f"{least:.2f} × at least", least >= FAR)
    )
    return said


def plot(found: Outcome, path: Path) -> None:
    canvas = Canvas(figsize=(5.5, 3.8), layout="constrained")
    axes = canvas.subplots()
    for name in NAMES:
        axes.plot(found.times, [cost * 1e3 for cost in found.costs[name]], "o-", markersize=3, label=name)
    axes.set(xlabel="T: steps until the reader comes", ylabel="cost (ms)", ylim=(0, None), title="Uniform arrivals")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(path, dpi=110)


FIGURE = Figure("figure2_6", "planners over the time until a reader comes", run, claims, plot)
