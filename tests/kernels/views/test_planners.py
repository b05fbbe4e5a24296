"""The planners against every plan there is, and against what the chapter proves of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.views.costs import Linear, Stepwise
from penstock.kernels.views.lgm import Follow, Instance, TooManyStates, carry_out, opt_lgm
from penstock.kernels.views.naive import Naive
from penstock.kernels.views.online import Online
from penstock.kernels.views.planner import minimal_sets, within
from penstock.kernels.views.simulate import Simulate
from tests.kernels.views.brute_force import best_lgm_plan, best_plan

linear = st.builds(Linear, each=st.integers(0, 4), setup=st.integers(0, 8))
stepwise = st.lists(st.integers(1, 20), min_size=1, max_size=8).map(lambda values: Stepwise([0, *values]))


@st.composite
def instances(draw, cost, tables=3, steps=7, most=3):
    count = draw(st.integers(1, tables))
    arrivals = st.tuples(*[st.integers(0, most)] * count)
    return Instance(
        draw(st.tuples(*[cost] * count)),
        tuple(draw(st.lists(arrivals, min_size=1, max_size=steps))),
        draw(st.integers(1, 25)),
    )


any_cost = st.one_of(linear, stepwise)


@given(instances(any_cost))
def test_opt_lgm_is_the_best_lgm_plan(instance):
    plan = opt_lgm(instance)
    assert plan.cost == pytest.approx(best_lgm_plan(instance))
    assert opt_lgm(instance, estimate=False).cost == pytest.approx(plan.cost)


@settings(max_examples=30)
@given(instances(any_cost, tables=2, steps=5, most=2))
def test_opt_lgm_against_the_best_plan(instance):
    best, plan = best_plan(instance), opt_lgm(instance)
    assert best - 1e-9 <= plan.cost <= 2 * best + 1e-9
    if all(isinstance(cost, Linear) for cost in instance.costs):
        assert plan.cost == pytest.approx(best)


@given(instances(any_cost, steps=12))
def test_a_plan_carried_out_costs_what_it_said(instance):
    plan = opt_lgm(instance)
    outcome = carry_out(Follow(plan), instance)
    assert outcome.cost == pytest.approx(plan.cost)
    assert outcome.actions == plan.actions


@given(instances(any_cost, steps=20, most=5), st.integers(1, 30))
def test_planners_keep_the_bound(instance, horizon):
    least, steady = opt_lgm(instance).cost, (1.0,) * len(instance.costs)
    simulated = [Simulate(horizon, steps=40), Simulate(horizon, steady, steps=40)]
    for planner in (Naive(), Online(), Online(memory=2), Online(ahead=1), Online(ahead=4), *simulated):
        outcome = carry_out(planner, instance)
        assert outcome.waited <= instance.bound * (1 + 1e-9)
        if isinstance(planner, (Online, Simulate)):
            assert all(action.tables for action in outcome.actions[:-1])
        if isinstance(planner, Online):  # lazy, greedy and minimal, so never below the best of those
            assert outcome.cost >= least - 1e-9


@given(
    st.lists(linear, min_size=1, max_size=3),
    st.integers(5, 40),
    st.integers(1, 120),
    st.integers(4, 30),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
)
def test_simulate_is_near_the_optimum(costs, horizon, steps, bound, rates):
    """Theorem 6: with linear costs and arrivals as expected, ⌈T/T0⌉ setups of every table above the optimum."""
    rates = tuple(rates[: len(costs)])
    instance = Instance(tuple(costs), (rates,) * steps, bound)
    outcome = carry_out(Simulate(horizon, rates, steps=horizon), instance)
    setups = sum(cost.setup for cost in costs)
    assert outcome.cost <= opt_lgm(instance).cost + -(-steps // horizon) * setups + 1e-9


@pytest.mark.parametrize(("inverse", "rounds"), [(2, 5), (10, 5), (50, 3)])
def test_the_tight_example(inverse, rounds):
    """Example 1: one table, ε = 1/inverse; 2/ε + 1 changes a step; twice the optimum, nearly."""
    epsilon, bound, batch = 1 / inverse, 1.0, 2 * inverse
    values = [k * epsilon / 2 for k in range(batch + 1)] + [1 + epsilon / 2] * 2 * batch
    instance = Instance((Stepwise(values),), ((batch + 1,),) * (2 * rounds), bound)
    plan = opt_lgm(instance)
    assert plan.cost == pytest.approx((2 + epsilon) * rounds)
    known = rounds * (1 + epsilon)  # one change now, all the others with the next step's
    if inverse == 2:
        assert best_plan(instance) == pytest.approx(known)
    assert plan.cost / known >= 2 - epsilon


def test_a_star_expands_fewer_states_than_uniform_search():
    """The opening example of the chapter, over 1,000 changes of each table: at most a twentieth of the states."""
    instance = Instance((Linear(0.25, 0), Linear(0.107, 286)), ((1, 1),) * 1000, 350)
    informed, uniform = opt_lgm(instance), opt_lgm(instance, estimate=False)
    assert informed.cost == pytest.approx(uniform.cost)
    assert 20 * informed.expanded <= uniform.expanded


@given(instances(any_cost, steps=15, most=4))
def test_a_star_never_expands_more(instance):
    assert opt_lgm(instance).expanded <= opt_lgm(instance, estimate=False).expanded


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 20))
def test_minimal_sets(costs, bound):
    found = minimal_sets(costs, bound)
    assert found
    for tables in found:
        left = [cost for table, cost in enumerate(costs) if table not in tables]
        assert sum(left) <= bound
        assert all(sum(left) + costs[table] > bound for table in tables)


def test_many_tables_are_served_by_some_of_the_minimal_sets():
    costs = [float(1 + table % 7) for table in range(20)]
    for bound in (1.0, 10.0, 40.0, 76.0):
        found = minimal_sets(costs, bound)
        assert 1 <= len(found) <= 22
        for tables in found:
            left = [cost for table, cost in enumerate(costs) if table not in tables]
            assert within(left, bound)
            assert not any(within([*left, costs[table]], bound) for table in tables)


def test_what_is_ahead_is_no_trap():
    """A table that fills the bound leaves ever less for the other, which the chapter's account goes on clearing."""
    instance = Instance((Linear(0.032, 0.2), Linear(0.005, 2.58)), ((1, 1),) * 400, 1.5 * 2.58)
    best = opt_lgm(instance).cost
    assert carry_out(Online(), instance).cost > 1.3 * best
    assert carry_out(Online(ahead=1), instance).cost < 1.1 * best
    assert carry_out(Online(ahead=4), instance).cost < 1.05 * best


def test_a_plan_is_found_in_time_also_where_the_search_is_long(monkeypatch):
    costs, steps = (Linear(0.032, 0.2), Linear(0.0003, 2.58)), 150
    instance = Instance(costs, ((1, 1),) * steps, 1.2 * 2.58)
    with pytest.raises(TooManyStates):
        opt_lgm(instance, most=5)
    monkeypatch.setattr("penstock.kernels.views.simulate._MOST", 5)
    outcome = carry_out(Simulate(steps, (1.0, 1.0), steps=steps), instance)
    assert outcome.cost < 1.1 * opt_lgm(instance).cost


def test_online_sees_rates_as_they_are():
    online = Online(memory=10)
    for step in range(30):
        online.arrived(step, (2, 1 if step % 2 else 0))
    assert online.rates[0] == pytest.approx(2, rel=0.05)
    assert online.rates[1] == pytest.approx(0.5, rel=0.1)


def test_planners_refuse_what_makes_no_sense():
    for wrong in (lambda: Simulate(0), lambda: Simulate(10, steps=0), lambda: Online(memory=0)):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(ValueError, match="each table"):
        Instance((Linear(1, 1),), ((1, 2),), 3)
