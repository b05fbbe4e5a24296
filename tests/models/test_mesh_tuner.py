import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.errors import BadOption, MemoryTooSmall
from penstock.models.curve import Curve
from penstock.models.mesh_cost import Coefficients
from penstock.models.mesh_tuner import (
    breakdown,
    buffers,
    choice,
    curve,
    default_buffer,
    fastest,
    knee,
    least_memory,
    smallest,
    with_buffer,
)
from tests.models.coefficients import coefficients

BUDGETS = st.floats(2_000, 300_000)


def papers_table(seek=100e-6):
    """3.5 M rows of 120 B and a stream of 20 B rows (001, Table 2): reading a page costs 40 µs, a read `seek` more."""
    return Coefficients.of_papers(
        n_R=3_500_000, v_R=120, v_P=4096, v_S=20, c_IO=Curve.line(40e-6, seek), c_E=3e-7, c_S=3e-7, c_A=1e-6, c_H=2e-7,
        c_O=5e-7,
    )  # fmt: skip


def every_choice(c, M):
    """The rate of every b with every w that fits."""
    for b in range(1, c.N_R + 1):
        most = int(c.most_rows(M, b))
        if most:
            w = np.arange(1, most + 1)
            yield b, w, c.rate(w, b)


@settings(max_examples=30)
@given(coefficients(), BUDGETS)
def test_fastest_equals_brute_force(c, M):
    assume(least_memory(c) <= M)
    assume(c.most_rows(M, 1) < 20_000)
    best = max(float(rates.max()) for _, _, rates in every_choice(c, M))
    found = fastest(c, M)
    assert found.memory.total <= M * (1 + 1e-12)
    assert found.rate == pytest.approx(float(c.rate(found.w, found.b)))
    assert found.rate >= best * (1 - 5e-3)
    assert found.rate <= best * (1 + 1e-9)


@settings(max_examples=30)
@given(coefficients(), st.floats(0.05, 0.95), BUDGETS)
def test_smallest_equals_brute_force(c, share, M):
    assume(least_memory(c) <= M)
    assume(c.most_rows(M, 1) < 20_000)
    rate = share * fastest(c, M).rate
    least = min(
        c.memory(int(w[np.flatnonzero(rates >= rate)[0]]), b).total
        for b, w, rates in every_choice(c, M)
        if (rates >= rate).any()
    )
    found = smallest(c, rate)
    assert found.rate >= rate * (1 - 1e-12)
    assert found.memory.total <= least * 1.02


@settings(max_examples=30)
@given(coefficients(), BUDGETS, st.floats(1, 3))
def test_more_memory_is_never_slower(c, M, more):
    assume(least_memory(c) <= M)
    assert fastest(c, M * more).rate >= fastest(c, M).rate * (1 - 5e-3)


@settings(max_examples=30)
@given(coefficients(), BUDGETS)
def test_the_two_objectives_are_inverse(c, M):
    assume(least_memory(c) <= M)
    best = fastest(c, M)
    assert smallest(c, best.rate * 0.995).memory.total <= M * 1.001


def test_buffers_of_a_large_table_are_few_and_enough():
    c = papers_table()
    tried = buffers(c)
    assert len(tried) < 700
    exact = max(float(c.rate(w, b)) for b in range(1, 4_000) if (w := int(c.most_rows(20 << 20, b))))
    assert fastest(c, 20 << 20).rate >= exact * (1 - 1e-9)


@pytest.mark.parametrize("memory", [20, 40, 80, 160, 320])
def test_default_buffer_is_good_enough(memory):
    c = papers_table()
    b = default_buffer(c)
    loss = 1 - with_buffer(c, memory << 20, b).rate / fastest(c, memory << 20).rate
    assert loss < 0.03


def test_optimal_buffer_grows_with_the_budget_and_is_near_the_paper_s():
    c = papers_table(seek=1e-3)
    sizes = [fastest(c, memory << 20).b * c.v_P / 2**20 for memory in (20, 40, 80, 160)]
    assert sizes == sorted(sizes)
    # 001, §4.4: 0.93, 1.35, 1.91 and 2.63 MB.
    assert sizes == pytest.approx([0.93, 1.35, 1.91, 2.63], rel=0.35)


def test_rate_over_the_buffer_rises_to_a_knee_and_falls():
    c = papers_table()
    points = curve(c, 20 << 20)
    rates = [point.rate for point in points]
    best = int(np.argmax(rates))
    assert 0 < best < len(rates) - 1
    assert rates[0] < 0.5 * rates[best]
    assert rates[-1] < 0.5 * rates[best]
    assert points[0].b < knee(c, 20 << 20) <= points[best].b * 1.5


def test_a_budget_below_the_default_buffer_gets_a_smaller_one():
    c = papers_table()
    small = with_buffer(c, 430_000, default_buffer(c))
    assert small.memory.total <= 430_000
    assert small.rate > 0


def test_memory_too_small_says_how_much_would_do():
    c = papers_table()
    with pytest.raises(MemoryTooSmall, match="at least"):
        fastest(c, 0.9 * least_memory(c))
    assert fastest(c, least_memory(c) + 1).w == 1


def test_a_rate_beyond_reach_is_refused_with_the_limit():
    with pytest.raises(BadOption, match="limits it to"):
        smallest(papers_table(), 1e9)
    with pytest.raises(BadOption, match="more than 0"):
        smallest(papers_table(), 0)


def test_shares_of_the_loop_add_up():
    found = choice(papers_table(), 1_000, 230)
    assert sum(breakdown(found.loop).values()) == pytest.approx(1)
    assert found.window == 1_000 * found.k
