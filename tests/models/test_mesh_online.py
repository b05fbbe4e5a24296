"""Online tuning, and Theorem 3.2 of 000 in its corrected form: correct and bounded as long as λ ≤ μ_i."""

from collections import Counter, deque

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.models.mesh_online import OnlineTuner
from penstock.models.mesh_tuner import fastest, least_memory, smallest
from tests.models.coefficients import coefficients
from tests.models.test_mesh_tuner import papers_table

BUDGET = 40 << 20


def told(tuner, rate, seconds=600.0):
    """Rows came at this rate for a long time."""
    for _ in range(int(seconds / 10)):
        tuner.observe(rate * 10, 10)
    return tuner.advise()


@pytest.mark.parametrize("rate", [10, 1_000, 20_000, 60_000, 10_000_000])
def test_online_tuner_serves_the_arrival_rate(rate):
    advice = told(OnlineTuner(papers_table(), BUDGET), rate)
    assert advice.choice.memory.total <= BUDGET
    if advice.must_shed:
        assert advice.choice.rate < rate
        assert advice.excess == pytest.approx(1 - advice.choice.rate / rate)
    else:
        assert advice.choice.rate >= rate


def test_more_arrivals_take_more_memory_until_none_is_left():
    tuner = OnlineTuner(papers_table(), BUDGET)
    asked = [told(tuner, rate) for rate in (1_000, 5_000, 20_000, 40_000, 1_000_000)]
    taken = [advice.choice.memory.total for advice in asked]
    assert taken == sorted(taken)
    assert [advice.must_shed for advice in asked] == [False] * 4 + [True]


def test_memory_is_given_back_when_arrivals_slow_down():
    tuner = OnlineTuner(papers_table(), BUDGET)
    high = told(tuner, 40_000)
    low = told(tuner, 2_000)
    assert low.choice.memory.total < high.choice.memory.total / 2


def test_online_tuner_is_calm():
    tuner = OnlineTuner(papers_table(), BUDGET)
    first = told(tuner, 20_000)
    assert told(tuner, 20_800) is first
    assert told(tuner, 19_300) is first
    assert told(tuner, 30_000) is not first


def test_buffer_stays_unless_it_is_to_be_tuned():
    fixed, free = OnlineTuner(papers_table(), BUDGET), OnlineTuner(papers_table(), BUDGET, tune_buffer=True)
    rates = (2_000, 20_000, 50_000)
    assert len({told(fixed, rate).choice.b for rate in rates}) == 1
    assert len({told(free, rate).choice.b for rate in rates}) > 1


def test_the_first_seconds_do_not_look_like_a_slow_stream():
    tuner = OnlineTuner(papers_table(), BUDGET)
    tuner.observe(5_000, 1)
    assert tuner.arrival_rate == pytest.approx(5_000)


def run_ring(pages, settings_, arrivals):
    """AMESHJOIN on paper (000, Figure 6): what each packet met, and how many rows waited outside at the most."""
    at = 0
    queue: deque[tuple[int, int]] = deque()
    met: dict[int, Counter] = {}
    backlog = most = 0.0
    left = []
    for number, ((w, b), came) in enumerate(zip(settings_, arrivals, strict=True)):
        backlog += came
        taken = min(w, backlog)
        backlog -= taken
        most = max(most, backlog)
        queue.append((number, at))
        met[number] = Counter()
        for _ in range(b):
            for packet, _start in queue:
                met[packet][at] += 1
            if at == (queue[0][1] - 1) % pages:
                left.append(queue.popleft()[0])
            at = (at + 1) % pages
            if not queue:
                break
    return met, left, most


@settings(max_examples=30)
@given(coefficients(most_pages=12), st.lists(st.floats(0.05, 0.99), min_size=30, max_size=60), st.floats(5e3, 1e5))
def test_theorem_3_2_every_packet_meets_every_page_once_and_none_waits(c, loads, M):
    assume(1.2 * least_memory(c) <= M)
    limit = fastest(c, M).rate
    chosen, arrivals = [], []
    for load in loads:
        best = smallest(c, load * limit * (1 - 1e-9))
        assert best.rate >= load * limit * (1 - 1e-6), "λ ≤ μ_i"
        chosen.append((best.w, best.b))
        # What arrives while an iteration takes its mean time is what the next one admits.
        arrivals.append(load * limit * (1 - 1e-6) * float(c.loop(best.w, best.b).total))
    met, left, most = run_ring(c.N_R, chosen, arrivals)
    assert most < 1e-6 * limit + 1, "no row waits outside the window"
    assert left == sorted(left)
    assert all(met[packet] == Counter(range(c.N_R)) for packet in left)


def test_theorem_3_2_as_printed_would_let_the_backlog_grow():
    c = papers_table()
    best = smallest(c, 10_000)
    seconds = float(c.loop(best.w, best.b).total)
    slow = [2 * best.rate * seconds] * 200
    _, _, short = run_ring(40, [(best.w, 3)] * 100, slow[:100])
    _, _, long = run_ring(40, [(best.w, 3)] * 200, slow)
    assert long == pytest.approx(2 * short, rel=0.05)
