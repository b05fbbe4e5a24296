"""The opening example of the chapter (§2.1), with the costs that it reads off its own Figure 2.1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from penstock.kernels.views.costs import Linear
from penstock.kernels.views.lgm import Instance, carry_out, opt_lgm
from penstock.kernels.views.naive import Naive
from penstock.kernels.views.online import Online
from penstock.kernels.views.planner import Planner

#: Milliseconds. S costs 0.25 for each change; R reaches 350 at 600 changes, and both together at 180 of each.
S = Linear(each=0.25, setup=0.0)
R = Linear(each=(350 - (350 - 45)) / 420, setup=350 - 600 * (350 - (350 - 45)) / 420)
BOUND = 350.0


@dataclass(frozen=True)
class Outcome:
    """Milliseconds for each change, and states that the search expanded with and without its estimate."""

    steps: int
    each: dict[str, float]
    expanded: tuple[int, int]


def run(quick: bool, say: Say) -> Outcome:
    steps = 3_000 if quick else 30_000
    arrivals = ((1, 1),) * steps
    instance = Instance((S, R), arrivals, BOUND)
    planners: dict[str, Planner] = {"naive": Naive(), "online": Online()}
    each = {name: carry_out(planner, instance).cost / (2 * steps) for name, planner in planners.items()}
    each["opt-lgm"] = opt_lgm(instance).cost / (2 * steps)
    short = Instance((S, R), arrivals[:1000], BOUND)
    return Outcome(steps, each, (opt_lgm(short).expanded, opt_lgm(short, estimate=False).expanded))


def claims(found: Outcome) -> Sequence[Claim]:
    naive, best = found.each["naive"], found.each["opt-lgm"]
    informed, uniform = found.expanded
    return [
        Claim(
            "opening", "NAIVE spends 0.97 ms for each change", "0.97 ms", f"{naive:.2f} ms", abs(naive - 0.97) < 0.02
        ),
        Claim("opening", "the better plan spends 0.42 ms", "0.42 ms", f"{best:.2f} ms", best < 0.42 * 1.12),
        Claim("opening", "ONLINE finds it without knowing what comes", "", f"{found.each['online']:.2f} ms", None),
        Claim(
            "opening",
            "A* expands fewer states than uniform search, at 1,000 changes of each table",
            "“optimally efficient”",
            f"{informed} against {uniform}: 1/{uniform / informed:.0f}",
            20 * informed <= uniform,
        ),
    ]


def plot(found: Outcome, path: Path) -> None:
    canvas = Canvas(figsize=(5, 3.6), layout="constrained")
    axes = canvas.subplots()
    axes.bar(list(found.each), list(found.each.values()), color=["C3", "C0", "C2"])
    axes.axhline(0.97, color="0.6", linestyle=":", linewidth=1)
    axes.axhline(0.42, color="0.6", linestyle=":", linewidth=1)
    axes.set(ylabel="ms for each change", title="The opening example: 0.97 and 0.42 ms in the chapter")
    axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(path, dpi=110)


FIGURE = Figure("opening", "the opening example: milliseconds for each change", run, claims, plot)
