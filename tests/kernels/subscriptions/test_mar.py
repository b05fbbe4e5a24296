"""What Mar and Hull make of updates: the examples of the chapter, and its theorems on random tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.subscriptions.engine import Engine
from penstock.kernels.subscriptions.mar import (
    DIFFICULT,
    EASY,
    HAS_LEFT,
    HAS_NEW,
    HAS_OLD,
    HAS_RIGHT,
    HAS_VALUE,
    IGNORABLE,
    INNER_LEFT,
    INNER_RIGHT,
    LEFT,
    RIGHT,
    VALUE,
)

#: The stocks of Figure 5.1, as (risk, price-to-earnings): 20 and 100 hold the least.
STOCKS = [(20, 3), (30, 8), (40, 12), (50, 5), (70, 6), (100, 2)]


def engine_of(rows: list[tuple[int, int]]) -> Engine:
    engine = Engine("min")
    engine.tree.extend(np.array([(0, x, y) for x, y in rows], np.int64).reshape(-1, 3))
    return engine


def say(engine: Engine, old: tuple[int, int] | None, new: tuple[int, int] | None) -> set[tuple[int | None, ...]]:
    """The messages of one event as (new minimum, inner left, inner right, outer left, outer right)."""
    event = [0, (old is not None) * HAS_OLD + (new is not None) * HAS_NEW, *(old or (0, 0)), *(new or (0, 0))]
    out = set()
    for messages in engine.apply(np.array([event], np.int64)):
        for m in messages.tolist():
            value = m[VALUE] if m[HAS_VALUE] else None
            left, right = m[LEFT] if m[HAS_LEFT] else None, m[RIGHT] if m[HAS_RIGHT] else None
            out.add((value, m[INNER_LEFT], m[INNER_RIGHT], left, right))
    return out


def test_an_easy_update_is_one_message():
    engine = engine_of(STOCKS)
    assert say(engine, (40, 12), (40, 4)) == {(4, 40, 40, 20, 100)}
    assert engine.kinds[EASY] == 1


def test_a_difficult_update_is_one_message_for_each_exposed_row():
    engine = engine_of(STOCKS)
    assert say(engine, (50, 5), (50, 9)) == {(9, 50, 50, 30, 70), (8, 30, 50, 20, 70), (6, 50, 70, 20, 100)}
    assert engine.kinds[DIFFICULT] == 1


def test_an_update_above_another_row_of_the_same_place_is_ignorable():
    engine = engine_of([*STOCKS, (50, 9)])
    assert say(engine, (50, 9), (50, 7)) == set()
    assert engine.kinds[IGNORABLE] == 1


def test_a_deletion_leaves_empty_ranges_without_an_answer():
    assert say(engine_of([(5, 1)]), (5, 1), None) == {(None, 5, 5, None, None)}


def test_of_two_equal_rows_the_left_one_tells_those_who_see_both():
    engine = engine_of([(1, 4), (2, 0), (3, 4)])
    assert say(engine, (2, 0), None) == {(None, 2, 2, 1, 3), (4, 1, 2, None, None), (4, 2, 3, 1, None)}


def test_a_small_move_of_the_lowest_row_tells_only_those_who_lose_or_gain_it():
    engine = engine_of([(10, 5), (20, 1), (30, 5)])
    assert say(engine, (20, 1), (22, 1)) == {(None, 20, 20, 10, 22), (5, 10, 20, None, 22), (1, 22, 22, 20, None)}


def test_a_move_upwards_says_the_new_value_in_one_rectangle_where_it_can():
    engine = engine_of([(10, 0), (40, 0), (20, 1)])
    assert say(engine, (20, 1), (30, 2)) == {(None, 20, 20, 10, 30), (2, 30, 30, 10, 40)}


POINTS = st.tuples(st.integers(0, 7), st.integers(0, 4))


@given(st.lists(POINTS, max_size=10), st.none() | POINTS, st.none() | POINTS)
def test_every_subscription_whose_answer_changed_is_in_exactly_one_rectangle(others, old, new):
    engine = engine_of([*others, *([old] if old else [])])
    messages = say(engine, old, new)
    for x1 in range(-1, 9):
        for x2 in range(x1, 9):
            before, after = (
                min((y for x, y in [*others, *([row] if row else [])] if x1 <= x <= x2), default=None)
                for row in (old, new)
            )
            mine = [
                value
                for value, inner_left, inner_right, left, right in messages
                if (left is None or left < x1)
                and x1 <= inner_left
                and inner_right <= x2
                and (right is None or x2 < right)
            ]
            assert mine == ([] if before == after else [after])


@pytest.mark.parametrize("rows", [3_000, 20_000])
def test_skylines_and_messages_of_any_length_are_told_in_full(rows):
    """A row below two staircases: its deletion exposes every step of them."""
    stairs = [(x, rows - x) for x in range(1, rows)] + [(-x, rows - x) for x in range(1, rows)]
    engine = engine_of([(0, 0), *stairs])
    messages = say(engine, (0, 0), None)
    assert len(messages) == 2 * (rows - 1) + 1
    assert {value for value, *_ in messages} == {None, *range(1, rows)}
