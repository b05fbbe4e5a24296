"""The chapter's four planners over one sequence of changes, and the sequences it tried (§2.5)."""

from __future__ import annotations

import numpy as np

from papers.views.curves import Curves
from penstock.kernels.views.lgm import Action, Instance, carry_out, opt_lgm
from penstock.kernels.views.naive import Naive
from penstock.kernels.views.online import AHEAD, Online
from penstock.kernels.views.simulate import Simulate

NAMES = ("NAIVE", "ONLINE", "ONLINE, looking ahead", "SIMULATE", "OPT-LGM")
#: The horizon that SIMULATE expects.
T0 = 500
#: p and σ of the four kinds of unsteady arrivals.
KINDS = {
    "slow, stable": (0.5, 1.0),
    "slow, unstable": (0.5, 5.0),
    "fast, stable": (0.9, 1.0),
    "fast, unstable": (0.9, 5.0),
}


def instance(curves: Curves, arrivals: tuple[tuple[int, ...], ...], bound: float) -> Instance:
    return Instance((curves.costs["Supplier"], curves.costs["PartSupp"]), arrivals, bound)


def uniform(steps: int) -> tuple[tuple[int, ...], ...]:
    return ((1, 1),) * steps


def unsteady(kind: str, steps: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """With probability p, changes come: as many as a normal number with mean 1 says, given that it is positive."""
    p, sigma = KINDS[kind]
    rng = np.random.default_rng(seed)
    draws = rng.normal(1.0, sigma, (20 * steps, 2))
    columns = []
    for table in range(2):
        positive = np.maximum(np.round(draws[:, table][draws[:, table] > 0]), 1).astype(int)[:steps]
        columns.append(np.where(rng.random(steps) < p, positive, 0).tolist())
    return tuple(zip(*columns, strict=True))


def compare(problem: Instance) -> dict[str, tuple[float, tuple[Action, ...]]]:
    """Cost and actions of each planner."""
    naive = carry_out(Naive(), problem)
    online = carry_out(Online(), problem)
    looking = carry_out(Online(ahead=AHEAD), problem)
    simulate = carry_out(Simulate(T0, (1.0, 1.0), steps=T0), problem)
    best = opt_lgm(problem)
    return {
        "NAIVE": (naive.cost, naive.actions),
        "ONLINE": (online.cost, online.actions),
        "ONLINE, looking ahead": (looking.cost, looking.actions),
        "SIMULATE": (simulate.cost, simulate.actions),
        "OPT-LGM": (best.cost, best.actions),
    }
