"""Costs that are measured: lawful whatever was measured, and right where it was lawful."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.view_cost import MeasuredCost, nearest_line

points = st.lists(st.tuples(st.integers(1, 10_000), st.floats(0, 100)), min_size=1, max_size=60)


@given(points)
def test_a_line_is_lawful_whatever_was_measured(measured):
    cost = MeasuredCost()
    for changes, seconds in measured:
        cost.measured(changes, seconds)
    line = cost.line
    assert line(0) == 0
    assert line.each >= 0
    assert line.setup >= 0
    assert cost.excess >= 1


@given(st.floats(0, 10), st.floats(0, 0.01), st.lists(st.integers(1, 10_000), min_size=2, max_size=20, unique=True))
def test_a_line_is_found_again(setup, each, sizes):
    line = nearest_line((n, setup + each * n, 1.0) for n in sizes)
    assert all(line(n) == pytest.approx(setup + each * n, rel=1e-6, abs=1e-6) for n in sizes)


def test_it_follows_a_system_that_becomes_slower():
    cost = MeasuredCost(advance=[(1, 0.1), (1000, 0.2)])
    for number in range(100):
        cost.measured(1 + number % 7 * 100, 0.5 if number < 60 else 2.0)
    assert cost.line(300) == pytest.approx(2.0, rel=0.1)


def test_one_size_alone_keeps_the_slope_that_was_tried():
    cost = MeasuredCost(advance=[(1, 0.5), (1000, 1.5)])
    for _ in range(50):
        cost.measured(100, 0.6)
    assert cost.line(100) == pytest.approx(0.6, rel=0.05)
    assert cost.line(2000) > cost.line(100) + 1


@given(points)
def test_what_is_kept_is_read_back(measured):
    cost = MeasuredCost(advance=[(1, 0.5)])
    for changes, seconds in measured:
        cost.measured(changes, seconds)
    assert MeasuredCost.from_json(cost.as_json()).line == cost.line
    assert MeasuredCost.from_json(cost.as_json()).excess == cost.excess


def test_room_is_left_for_all_but_a_twentieth():
    cost = MeasuredCost(advance=[(1, 1.0), (1000, 1.0)])
    for number in range(1000):
        cost.measured(100, 1.0 if number % 10 else 1.3)
    assert cost.excess == pytest.approx(1.3, rel=0.05)
    for number in range(1000):
        cost.measured(100, 1.0 if number % 50 else 3.0)
    assert cost.excess < 1.1
    assert len(cost.ratios) == 100
