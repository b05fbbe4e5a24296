"""Faults planted in planners must be found by what the other tests compare them with."""

from __future__ import annotations

import random

import pytest

from penstock.kernels.views.costs import Linear
from penstock.kernels.views.lgm import Instance, carry_out, opt_lgm
from penstock.kernels.views.online import Online
from penstock.kernels.views.planner import Planner, Situation, Tables, minimal_sets
from tests.kernels.views.brute_force import best_lgm_plan


def instances(count: int) -> list[Instance]:
    draw = random.Random(1)
    return [
        Instance(
            tuple(Linear(draw.randint(0, 4), draw.randint(0, 8)) for _ in range(2)),
            tuple((draw.randint(0, 3), draw.randint(0, 3)) for _ in range(7)),
            draw.randint(6, 25),
        )
        for _ in range(count)
    ]


class TooLittle(Planner):
    """Clears the cheapest table, whether or not that is enough."""

    def choose(self, situation: Situation) -> Tables:
        costs = situation.each()
        return (min((table for table, n in enumerate(situation.pending) if n), key=costs.__getitem__),)


def test_a_planner_that_clears_too_little_breaks_the_bound():
    assert any(carry_out(TooLittle(), one).waited > one.bound for one in instances(40))
    assert all(carry_out(Online(), one).waited <= one.bound * (1 + 1e-9) for one in instances(40))


def test_an_estimate_that_promises_too_much_misses_the_best_plan(monkeypatch: pytest.MonkeyPatch):
    best = [best_lgm_plan(one) for one in instances(60)]
    assert [opt_lgm(one).cost for one in instances(60)] == pytest.approx(best)
    honest = Linear.least
    monkeypatch.setattr(Linear, "least", lambda self, total, largest: 3 * honest(self, total, largest))
    assert [opt_lgm(one).cost for one in instances(60)] != pytest.approx(best)


def _by_the_formula(one: Instance, rate: tuple[int, ...]) -> float:
    """ONLINE as the chapter writes it, for arrivals that go on as they are: H(Z, t) = (B(t) + f(Z)) / (t + Δt_Z)."""
    pending, spent = [0] * len(rate), 0.0
    for t in range(one.last + 1):
        pending = [waiting + new for waiting, new in zip(pending, rate, strict=True)]
        costs = [f(n) for f, n in zip(one.costs, pending, strict=True)]
        if t == one.last:
            return spent + sum(costs)
        if sum(costs) <= one.bound:
            continue
        ranked = []
        for z in minimal_sets(costs, one.bound):
            rest, wait = [0 if table in z else n for table, n in enumerate(pending)], 0
            while sum(f(n) for f, n in zip(one.costs, rest, strict=True)) <= one.bound and wait < 10_000:
                wait += 1
                rest = [n + new for n, new in zip(rest, rate, strict=True)]
            price = sum(costs[table] for table in z)
            ranked.append(((spent + price) / (t + wait), price, z))
        _, price, z = min(ranked)
        spent += price
        pending = [0 if table in z else n for table, n in enumerate(pending)]
    raise AssertionError("the last step returns")


def test_online_is_the_rule_of_the_chapter():
    """Equation 2.1, written down once more; and optimal, or nearly, for a linear and a flat cost as in Figure 2.4."""
    draw = random.Random(2)
    # One change of each table a step, so that steps and time, in which ONLINE looks ahead, are the same.
    rate = (1, 1)
    for _ in range(30):
        costs = tuple(Linear(draw.randint(1, 20) / 16, draw.randint(0, 64) / 8) for _ in range(2))
        one = Instance(costs, (rate,) * 60, 12.0)
        assert carry_out(Online(), one).cost == pytest.approx(_by_the_formula(one, rate))
    for slope in (0.0, 0.002, 0.01):
        chapter = Instance((Linear(0.24, 0.0), Linear(slope, 8.0)), ((1, 1),) * 1_000, 12.0)
        assert carry_out(Online(), chapter).cost <= 1.15 * opt_lgm(chapter).cost
