"""The offline optimum against every set of rows there is, and against the paper's program with its faults mended."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.mesh.shed.optofflineshed import loss_by_table, optofflineshed


def can_be_kept(kept, w, c_loop, first_request):
    """Whether a buffer of w rows, handed over when full and asked for, can take exactly these rows."""
    held, asked = 0, first_request
    for now, wanted in enumerate(kept):
        if held == w and now >= asked:
            held, asked = 0, now + c_loop
        if wanted:
            if held == w:
                return False
            held += 1
    return True


def brute_force(worth, w, c_loop, first_request):
    """The least loss over all sets of rows that can be kept."""
    sets = product([False, True], repeat=len(worth))
    return min(
        sum(value for value, kept in zip(worth, chosen, strict=True) if not kept)
        for chosen in sets
        if can_be_kept(chosen, w, c_loop, first_request)
    )


def as_printed(worth, w, c_loop, *, line_11):
    """Figure 9; with `line_11`, as it is printed there: the row dropped from beside a full buffer costs nothing."""
    n = len(worth)
    after = np.zeros((n + 1, w + 1))
    for i in reversed(range(n)):
        now = np.zeros((n + 1, w + 1))
        for lt in range(n + 1):
            for sb in range(w):
                now[lt, sb] = min(after[lt, sb] + worth[i], after[lt, sb + 1])
            if i < lt:
                now[lt, w] = after[lt, w] + (0 if line_11 else worth[i])
        now[: i + 1, w] = now[min(i + c_loop, n), 0]
        after = now
    return after[0, 0]


streams = st.lists(st.integers(0, 9), max_size=11)
small = st.integers(1, 4)


@settings(max_examples=300)
@given(worth=streams, w=small, c_loop=st.integers(1, 7), first_request=st.integers(0, 13))
def test_equal_to_brute_force(worth, w, c_loop, first_request):
    expected = brute_force(worth, w, c_loop, first_request)
    assert optofflineshed(worth, w, c_loop, first_request=first_request).loss == expected
    assert loss_by_table(worth, w, c_loop, first_request=first_request) == expected


@settings(max_examples=300)
@given(
    worth=st.lists(st.integers(0, 30), max_size=70),
    w=st.integers(0, 9),
    c_loop=st.integers(1, 25),
    first_request=st.integers(0, 80),
)
def test_equal_to_the_table_of_figure_9(worth, w, c_loop, first_request):
    found = optofflineshed(worth, w, c_loop, first_request=first_request)
    assert found.loss == loss_by_table(worth, w, c_loop, first_request=first_request)


@given(
    worth=st.lists(st.integers(0, 30), max_size=70),
    w=st.integers(0, 9),
    c_loop=st.integers(1, 25),
    first_request=st.integers(0, 80),
)
def test_the_kept_rows_can_be_kept(worth, w, c_loop, first_request):
    found = optofflineshed(worth, w, c_loop, first_request=first_request)
    assert w == 0 or can_be_kept(found.kept, w, c_loop, first_request)
    assert found.loss == sum(value for value, kept in zip(worth, found.kept, strict=True) if not kept)


@pytest.mark.parametrize("seed", range(5))
def test_equal_to_the_table_on_longer_streams(seed):
    rng = np.random.default_rng(seed)
    worth = rng.integers(0, 50, 400)
    worth[rng.integers(0, 350) :][:50] *= 10  # worth that comes in a cluster is what stalling is for
    for w, c_loop in ((7, 10), (10, 20), (20, 7), (1, 1), (3, 500)):
        assert optofflineshed(worth, w, c_loop).loss == loss_by_table(worth, w, c_loop)


def test_stalling_pays_where_worth_comes_late():
    # The losses of Figure 8, whose stream is in the drawing alone: w = 2, c_loop = 4; TOPW loses 10, the optimum 4.
    worth = [1, 1, 1, 1, 4, 4, 4, 4]
    topw = sum(sorted(worth[:4])[:2]) + sum(sorted(worth[4:])[:2])
    assert topw == 10
    assert optofflineshed(worth, 2, 4, first_request=4).loss == brute_force(worth, 2, 4, 4) == 4
    # Asked for at time 0, as in Figure 9, a first packet can leave before the worth comes.
    assert optofflineshed(worth, 2, 4).loss == brute_force(worth, 2, 4, 0) == 2


def test_line_11_as_printed_loses_rows_for_nothing():
    worth = [5, 5, 5, 5, 5]
    assert as_printed(worth, 1, 3, line_11=True) == 0
    assert as_printed(worth, 1, 3, line_11=False) == brute_force(worth, 1, 3, 0) == 10
    assert loss_by_table(worth, 1, 3) == optofflineshed(worth, 1, 3).loss == 10


@pytest.mark.parametrize("w", [1, 2, 3])
def test_a_full_buffer_takes_no_further_row(w):
    # Taking sb up to w, as printed, would read a column w + 1: one more row would be kept than there is room for.
    worth = list(range(1, 2 * w + 2))
    assert optofflineshed(worth, w, 100, first_request=100).loss == sum(sorted(worth)[: w + 1])
    assert loss_by_table(worth, w, 100, first_request=100) == sum(sorted(worth)[: w + 1])


@pytest.mark.parametrize("c_loop", [3, 4, 5, 6, 1000])
def test_requests_beyond_the_end_are_never_made(c_loop):
    worth = [9, 1, 1, 9, 9]
    assert optofflineshed(worth, 1, c_loop).loss == brute_force(worth, 1, c_loop, 0)
    assert loss_by_table(worth, 1, c_loop) == brute_force(worth, 1, c_loop, 0)


@given(worth=st.lists(st.integers(0, 9), max_size=30), w=small)
def test_nothing_is_lost_when_the_join_is_fast_enough(worth, w):
    assert optofflineshed(worth, w, w).loss == 0


def test_streams_without_rows_and_buffers_without_room():
    assert optofflineshed([], 3, 5).loss == loss_by_table([], 3, 5) == 0
    assert optofflineshed([1, 2], 0, 5).loss == loss_by_table([1, 2], 0, 5) == 3
    for worth, w, c_loop in (([1], -1, 1), ([1], 1, 0), ([-1], 1, 1), ([float("nan")], 1, 1)):
        with pytest.raises(ValueError, match="No stream is shed"):
            optofflineshed(worth, w, c_loop)
