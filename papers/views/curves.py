"""The measured costs that all figures use: measured once in a process, for each size of the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from papers.figure import Say
from papers.views.tpch import JOIN, VIEW, Database, Delta
from penstock.kernels.views.costs import Stepwise
from penstock.models.view_cost import nearest_line

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Setting:
    """The scale of TPC-H, batches that are measured, and runs of each."""

    scale: float = 1.0
    sizes: tuple[int, ...] = (1, 5, 10, 25, 50, 75, 100, 150, 200, 250, 300, 350, 400)
    repeats: int = 25
    #: Up to where the curve is drawn on, as the chapter did.
    upto: int = 1500


QUICK = Setting(sizes=(1, 10, 50, 100, 200, 400), repeats=9)


@dataclass(frozen=True)
class Curves:
    """Measured points of two tables, and the monotone, subadditive costs through them."""

    setting: Setting
    points: dict[str, Points]
    costs: dict[str, Stepwise]


@lru_cache(maxsize=2)
def database(scale: float) -> Database:
    return Database(scale)


def measured(setting: Setting, deltas: dict[str, Delta], say: Say) -> Curves:
    say(f"TPC-H at scale {setting.scale}")
    points = database(setting.scale).curves(deltas, setting.sizes, setting.repeats)
    costs = {name: Stepwise.from_points([*p, beyond(p, setting.upto)], setting.upto) for name, p in points.items()}
    return Curves(setting, points, costs)


def beyond(points: Points, upto: int) -> tuple[float, float]:
    """The last point of a curve that goes on as all its points do, not as the last two happen to."""
    slope = nearest_line((x, y, 1.0) for x, y in points).each
    size, seconds = points[-1]
    return float(upto), seconds + slope * (upto - size)


@lru_cache(maxsize=4)
def view_curves(quick: bool) -> Curves:
    """The costs of Figure 2.4, for the figures after it."""
    return measured(QUICK if quick else Setting(), VIEW, lambda text: None)


@lru_cache(maxsize=4)
def join_curves(quick: bool) -> Curves:
    """The costs of Figure 2.1."""
    return measured(QUICK if quick else Setting(), JOIN, lambda text: None)


def bounds(costs: dict[str, Stepwise]) -> tuple[float, float]:
    """The chapter's 12 and 20 seconds on our curves: its seconds say nothing on another machine.

    The choice is ours, and matters: 12 is one and a half times what a change of the flat table costs, 20 in proportion.
    Nearer to that cost, waiting changes of the flat table fill the bound within the 1,000 steps, and ONLINE is up to
    twice OPT-LGM; how flat the measured curve is decides whether that happens here as well.
    """
    flat = max(cost(1) for cost in costs.values())
    return 1.5 * flat, 2.5 * flat
