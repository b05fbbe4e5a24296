import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.models.curve import Curve
from penstock.models.mesh_cost import Coefficients
from tests.models.coefficients import coefficients

W = st.integers(1, 1_000)
B = st.integers(1, 80)


def by_hand(n_R=1_000, m=1.0):
    """Ten pages of 100 rows; every cost another power of two, so that each term can be told from the sum."""
    return Coefficients.of_papers(
        n_R=n_R, v_R=10, v_P=1_000, v_S=20, c_IO=Curve.line(1.0, 16.0), c_E=1 / 2, c_S=1 / 4, c_A=1 / 8, c_H=1 / 16,
        c_O=1 / 32, m=m,
    )  # fmt: skip


def test_equation_1_is_the_sum_of_buffers_queue_and_hash_table():
    memory = by_hand().memory(w=30, b=5)
    assert memory.disk_buffer == 5 * 1_000
    assert memory.stream_buffer == 30 * 20
    assert memory.queue == 30 * 2 * 4
    assert memory.hash_table == pytest.approx(30 * 4.8 * 2 * 20)
    assert memory.total == pytest.approx(5_000 + 600 + 240 + 5_760)


def test_equation_2_has_every_term():
    loop = by_hand().loop(w=32, b=5)
    assert loop.read == 5 + 16
    assert (loop.expire, loop.fetch, loop.append) == (16, 8, 4)
    assert loop.probe == 5 * 100 / 16
    # Two iterations hold 64 rows with one result each, half of which are found in five of the ten pages.
    assert loop.result == 32 / 32
    assert loop.total == pytest.approx(21 + 28 + 31.25 + 1)


def test_equations_3_and_4():
    c = by_hand()
    assert c.rate(32, 5) == pytest.approx(32 / 81.25)
    assert c.reads_per_row(32, 5) == pytest.approx(5 / 32)
    assert c.reads_per_second(32, 5) == pytest.approx(5 / 81.25)
    assert c.reads_per_second(32, 5) / c.reads_per_row(32, 5) == pytest.approx(c.rate(32, 5))


def test_more_results_than_probes_are_all_charged():
    one, many = by_hand(), by_hand(m=50.0)
    assert many.loop(32, 5).result == 50 * one.loop(32, 5).result
    # 64 rows wait; with 50 results each a probe of the 1,000 rows gives 3.2.
    assert many.loop(32, 5).result == pytest.approx(3.2 * 500 / 32)


def test_last_read_of_a_cycle_is_short():
    c = by_hand()
    assert c.iterations(4) == 3
    # 4 + 4 + 2 pages, and not three times four.
    assert c.cycle(90, 4).read == (4 + 16) + (4 + 16) + (2 + 16)
    assert c.cycle(90, 4).probe == 1_000 / 16


def test_a_buffer_without_a_match_is_not_opened():
    c = replace(by_hand(), c_P=Curve.constant(1.0))
    assert c.cycle(1e9, 2).open == pytest.approx(5)
    assert c.cycle(1e-6, 2).open < 1e-5
    assert replace(c, m=0.0).cycle(1e9, 2).open == 0


def test_results_beyond_a_slice_open_the_rows_again():
    c = replace(by_hand(), c_P=Curve.constant(1.0), slice_rows=100.0)
    # 2,000 results in five buffers: 400 each, and some have a few more.
    assert c.cycle(2_000, 2).open == pytest.approx(5 * 5)


def test_micro_batches_are_a_term_of_their_own():
    c = by_hand().with_batches(rows=1_000, overhead=3.0)
    assert c.loop(32, 5).batch == pytest.approx(32 * 3 / 1_000)
    assert c.loop(32, 5).total == pytest.approx(by_hand().loop(32, 5).total + 0.096)


def test_seconds_of_a_micro_batch_count_the_window_that_is_not_full():
    c = by_hand().with_batches(rows=100, overhead=3.0)
    full, rest = by_hand().cycle(64, 5).total, by_hand().cycle(36, 5).total
    assert c.batch_seconds(32, 5, 100) == pytest.approx(3 + full + rest)
    assert c.batch_seconds(32, 5, 128) == pytest.approx(3 + 2 * full)


def test_slots_divide_rows_or_pages():
    c = by_hand(m=2.0)
    by_key, by_pages = c.divided(4, "key"), c.divided(4, "pages")
    assert by_key.n_R == by_pages.n_R == 250
    assert (by_key.m, by_pages.m) == (2.0, 0.5)


@given(coefficients(), W, B)
def test_rate_is_the_window_over_the_cycle(c, w, b):
    assume(b <= c.N_R)
    k = int(c.iterations(b))
    assert c.rate(w, b) == pytest.approx(w * k / c.cycle(w * k, b).total)


@given(coefficients(), W, B)
def test_more_rows_never_cost_less(c, w, b):
    assume(b <= c.N_R)
    now, then = c.loop(w, b), c.loop(w + 1, b)
    assert all(later >= before - 1e-15 for before, later in zip(now, then, strict=True))


@given(coefficients(), st.floats(1_000, 1e6), B)
def test_most_rows_fill_the_budget_and_no_more(c, M, b):
    assume(b <= c.N_R)
    w = c.most_rows(M, b)
    assume(w > 0)
    assert c.memory(w, b).total <= M * (1 + 1e-12) < c.memory(w + 1, b).total * (1 + 1e-9)


@given(coefficients())
def test_coefficients_survive_json(c):
    assert Coefficients.loads(c.dumps()) == c


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"n_R": 1}'])
def test_other_json_is_refused(text):
    with pytest.raises(ValueError):
        Coefficients.loads(text)


@given(coefficients())
def test_arrays_give_what_single_values_give(c):
    b = np.arange(1, c.N_R + 1)
    w = np.full(len(b), 7)
    assert c.rate(w, b) == pytest.approx([float(c.rate(7, int(one))) for one in b])
    assert not math.isnan(float(c.rate(1, 1)))
