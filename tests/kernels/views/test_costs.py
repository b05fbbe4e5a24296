"""Costs are monotone and subadditive, whatever was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.views.costs import EXACT_UP_TO, Cost, Linear, Stepwise

linear = st.builds(Linear, each=st.integers(0, 5), setup=st.integers(0, 20))
stepwise = st.lists(st.integers(0, 50), min_size=1, max_size=12).map(lambda values: Stepwise([0, *values]))
costs = st.one_of(linear, stepwise)


def cheapest(cost: Cost, total: int, largest: int) -> float:
    """Every split, by recursion."""
    if total == 0:
        return 0.0
    return min(cost(size) + cheapest(cost, total - size, largest) for size in range(1, min(total, largest) + 1))


@given(costs, st.integers(0, 40), st.integers(0, 40))
def test_monotone_and_subadditive(cost, a, b):
    assert cost(0) == 0
    assert cost(a) <= cost(a + 1)
    assert cost(a + b) <= cost(a) + cost(b)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12))
def test_stepwise_keeps_what_is_lawful(values):
    once = Stepwise([0, *values])
    kept = [once(k) for k in range(len(values) + 1)]
    again = Stepwise(kept)
    assert [again(k) for k in range(len(kept))] == kept
    assert all(cost <= max(values[:k], default=0) for k, cost in enumerate(kept))


@given(costs, st.integers(1, 11), st.integers(1, 6))
def test_least_is_the_cheapest_split(cost, total, largest):
    assert cost.least(total, largest) == pytest.approx(cheapest(cost, total, largest))


@given(stepwise, st.integers(1, 30), st.integers(1, 30))
def test_least_beyond_the_exact_range_is_a_lower_bound(cost, batch, largest):
    total, batch = EXACT_UP_TO + 100, min(batch, largest)
    assert cost.least(total, largest) <= cost(batch) + cost.least(total - batch, largest) + 1e-6


@given(costs, st.integers(0, 200))
def test_most_is_the_largest_batch_within_a_bound(cost, bound):
    most = cost.most(bound)
    assert cost(most) <= bound
    assert most == 1 << 40 or cost(most + 1) > bound


def test_a_cost_that_falls_is_refused():
    with pytest.raises(ValueError, match="negative"):
        Linear(-1, 0)
    with pytest.raises(ValueError, match="nothing costs nothing"):
        Stepwise([1, 2])
