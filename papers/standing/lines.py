"""Figures that are rates of several strategies over one parameter, which most of chapter 4 are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say


@dataclass
class Curves:
    """Rates by strategy, over the values of a parameter."""

    over: list[float]
    rates: dict[str, list[float]] = field(default_factory=dict)

    def last(self, name: str) -> float:
        """At the end of the curve."""
        return self.rates[name][-1]

    def ratio(self, name: str) -> float:
        """The largest rate over the smallest."""
        return max(self.rates[name]) / min(self.rates[name])


def figure(
    name: str,
    about: str,
    axis: str,
    run: Callable[[bool, Say], Curves],
    claims: Callable[[Curves], Sequence[Claim]],
    what: str = "events/s",
) -> Figure:
    """A figure with one line for each strategy, both axes logarithmic."""

    def plot(curves: Curves, path: Path) -> None:
        canvas = Canvas(figsize=(6, 4.2), layout="constrained")
        panel = canvas.subplots()
        for strategy, rates in curves.rates.items():
            panel.plot(curves.over, rates, "o-", label=strategy, linewidth=1.2, markersize=4)
        panel.set(xscale="log", yscale="log", xlabel=axis, ylabel=what, title=f"{about}: 003, {name}")
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=8)
        canvas.savefig(path, dpi=110)

    return Figure(name, about, run, claims, plot)


def sweep(
    over: Sequence[float], strategies: Sequence[str], rate: Callable[[float, str], float], say: Say, what: str
) -> Curves:
    """The rate of each strategy at each value."""
    curves = Curves(list(over), {name: [] for name in strategies})
    for value in over:
        for name in strategies:
            say(f"{what} {value:g}, {name}")
            curves.rates[name].append(rate(value, name))
    return curves
