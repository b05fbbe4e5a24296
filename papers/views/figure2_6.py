"""Figure 2.6: the cost of the planners until a reader comes at T, one change of each table a step, C = 12.

ONLINE is the chapter's equation 2.1 to the letter (`test_online_is_the_rule_of_the_chapter`): what was spent since the
last reader and the cost of the set, over the time from that reader to the next forced action; arrivals are uniform, so
the rates that it sees are the true ones from the first step on. How near it comes to OPT-LGM is decided by the measured
curves and by the bound: where waiting changes of the flat table come to fill the bound before T, it goes on to clear
the other table for ever shorter times, since a cheap past is spread over each of them, and its claim fails and is shown
as failing. At full size and the bound of `curves.bounds`, 1.5 times the flat cost, it was within 7% up to T = 600 and
1.72 times OPT-LGM at T = 900; without the past ("marginal") 1.20 times at most. At T = 1,000 and 1.75 times the flat
cost both were within 9%, at twice the flat cost both were OPT-LGM. The chapter does not say what its flat cost is. That
NAIVE refreshes more than 20 times in 1,000 steps at C = 20 (Figure 2.5), and can at C = 12, says only that a change of
Supplier costs it more than 1/74 of the flat cost. Here, where the flat table is scanned in memory, the microsecond that
each of its changes takes is a third of the scan after 1,000 steps; beside the chapter's disk it would not be seen.

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

NEAR = 1.15
FAR = 1.5


@dataclass(frozen=True)
class Outcome:
    """Seconds of each planner, one for each T."""

    times: tuple[int, ...]
    costs: dict[str, list[float]]

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
    return Outcome(times, costs)


def claims(found: Outcome) -> Sequence[Claim]:
    said = []
    for name in ("ONLINE", "ONLINE, marginal", "SIMULATE"):
        worst = max(found.ratios(name))
        said.append(
            Claim(
                "figure2_6",
                f"{name} is close to OPT-LGM at every T",
                "“very close”",
                f"{worst:.3f} × at most",
                worst <= NEAR,
            )
        )
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
