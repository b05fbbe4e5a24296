"""HEEB beside dominance and PROB; the classics of caching beside each other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadOption
from penstock.kernels.window import caching
from penstock.kernels.window.heeb import Heeb
from penstock.kernels.window.policy import Arrivals, Candidates
from penstock.kernels.window.windows import Clock
from penstock.models.stream_models import (
    AutoRegressive,
    LinearTrend,
    Noise,
    Now,
    RandomWalk,
    Stationary,
    horizon,
    weights,
)
from penstock.quality.dominance import benefits_of_joins, dominates

MODELS = [
    Stationary(tuple(np.arange(1, 31) / 465)),
    LinearTrend(1.0, 0.0, Noise.uniform(10)),
    LinearTrend(1.0, 0.0, Noise.normal(2.0, 15)),
    RandomWalk(0.0, 1.0),
    AutoRegressive(5.59, 0.72, 4.22),
]


def candidates(values, life=10_000, partner=None):
    count = len(values)
    chances = np.full(count, 0.1) if partner is None else partner
    clock = Clock(None, (0, 0), (0, 0))
    numbers = np.arange(count)
    lives = np.full(count, life)
    return Candidates(
        0, numbers.astype(np.uint64), numbers, lives, numbers, clock, lambda: chances, lambda: pa.array(values)
    )


def told(policy, values, side=1):
    times = np.arange(len(values))
    policy.observe(Arrivals(side, times, 0, lambda: pa.array(values)))
    return policy


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODELS), st.lists(st.integers(0, 60), min_size=2, max_size=12), st.sampled_from([3.0, 15.0]))
def test_heeb_never_contradicts_a_dominance(model, values, alpha):
    policy = told(Heeb(right=model, alpha=alpha), np.arange(25))
    scores = policy.scores(candidates(values), 0)
    ahead = horizon(alpha)
    benefits = benefits_of_joins(model.chances(np.asarray(values, np.float64), Now(25, 24.0), ahead))
    # The surface of AR(1) is interpolated; a sum by table is cut where weights are negligible.
    close = 0.02 * scores.max() if isinstance(model, AutoRegressive) else 1e-6
    for x in range(len(values)):
        for y in range(len(values)):
            if dominates(benefits[x], benefits[y]):
                assert scores[x] >= scores[y] - close
    want = np.diff(benefits, axis=1, prepend=0) @ weights(alpha, ahead)
    assert scores == pytest.approx(want, abs=max(close, 1e-5))


def test_without_a_model_heeb_is_prob():
    partner = np.array([0.3, 0.1, 0.2])
    for policy in (Heeb(), told(Heeb(), np.random.default_rng(0).integers(0, 9, 500))):
        assert policy.model(1) == 0
        assert np.argsort(policy.scores(candidates([1, 2, 3], partner=partner), 0)).tolist() == [1, 2, 0]
    words = Heeb(right=MODELS[0])
    assert np.argsort(words.scores(candidates(["a", "b", "c"], partner=partner), 0)).tolist() == [1, 2, 0]


def test_a_trend_is_found_and_rows_that_it_has_passed_go_first():
    rng = np.random.default_rng(3)
    policy = told(Heeb(alpha=10.0), np.arange(1_000) + rng.integers(-10, 11, 1_000))
    assert policy.model(1) == LinearTrend.number
    scores = policy.scores(candidates([900, 1_005, 1_300]), 0)
    assert scores.argmax() == 1
    again = Heeb(alpha=10.0)
    again.restore(policy.head())
    assert (again.scores(candidates([900, 1_005, 1_300]), 0) == scores).all()


def test_alpha_follows_the_observed_life():
    policy = told(Heeb(), np.arange(100))
    before = policy.alpha
    for _ in range(50):
        policy.departed(0, np.full(10, 60))
    assert policy.alpha > 2 * before
    with pytest.raises(BadOption, match="alpha"):
        Heeb(alpha=0.0)
    with pytest.raises(BadOption, match="fade"):
        Heeb(fade="inv")


def test_a_fixed_look_ahead_counts_the_next_rows_alone():
    policy = told(Heeb(right=MODELS[0], fade="fixed", ahead=7), np.arange(25))
    assert policy.scores(candidates([4]), 0) == pytest.approx([7 * 5 / 465])
    assert policy.scores(candidates([4], life=3), 0)[0] < 7 * 5 / 465


def test_lfd_is_never_beaten_and_lfu_is_a0_when_stationary():
    rng = np.random.default_rng(1)
    chances = np.arange(1, 41) ** -1.0
    references = rng.choice(40, 3_000, p=chances / chances.sum()).tolist()
    hits = {
        name: caching.simulate(references, 8, scores).hits
        for name, scores in {
            "lfd": caching.lfd(references),
            "a0": caching.a0(lambda value: chances[value]),
            "lfu": caching.lfu(references),
            "lru": caching.lru(references),
            "rand": caching.random(0),
            "heeb": caching.heeb(Stationary(tuple(chances / chances.sum())), 8.0),
        }.items()
    }
    assert hits["lfd"] == max(hits.values())
    assert hits["heeb"] == hits["a0"], "a stationary model ranks by probability"
    assert hits["a0"] > hits["lru"] > hits["rand"]
    assert abs(hits["lfu"] - hits["a0"]) < 0.03 * hits["a0"]


def test_heeb_of_a_cache_is_the_exact_sum_over_the_chain():
    # AR(1) on whole numbers as a chain: r^d P^d summed over d is one solution of linear equations.
    model, alpha = AutoRegressive(55.9, 0.72, 42.2), 30.0
    values = np.arange(-60.0, 461.0)
    chain = np.stack([model.chances(values, Now(0, last), 1)[:, 0] for last in values])
    ratio = np.exp(-1 / alpha)
    every = np.linalg.solve(np.eye(len(values)) - ratio * chain, ratio * chain)
    first = every / (1 + np.diag(every))

    cached = [40, 120, 180, 200, 215, 260, 330]
    for last in (90, 200, 350):
        found = caching.heeb(model, alpha)(cached, 0, [last])
        wanted = first[last + 60, np.array(cached) + 60]
        assert found == pytest.approx(wanted, rel=0.01), f"after {last}"


def test_caching_is_a_join_of_numbered_references():
    references = [1, 2, 1, 1, 3, 2]
    asked, supplied = caching.as_join(references)
    pairs = [(i, j) for i, ask in enumerate(asked) for j, answer in enumerate(supplied) if j < i and ask == answer]
    assert pairs == [(2, 0), (3, 2), (5, 1)], "each reference joins the one before it, and no other"
