"""Histograms of intervals: exact counts, buckets that are the best, and the SSI histogram between equal width and
optimum.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadOption
from penstock.kernels.standing.partition import canonical, points
from penstock.models.interval_histogram import EqualWidth, _best_cuts, estimate, optimal, ssi, stabbed

whole = st.integers(0, 20).map(float)
pairs = st.lists(st.tuples(whole, whole).map(sorted), min_size=1, max_size=12)


@settings(max_examples=40)
@given(pairs, st.lists(whole, min_size=1, max_size=6))
def test_stabbed_counts_what_contains_a_point(found, asked):
    lo, hi = np.array(found).T
    want = [sum(a <= x <= b for a, b in found) for x in asked]
    assert stabbed(lo, hi, np.array(asked)).tolist() == want


@settings(max_examples=40)
@given(pairs, st.integers(1, 8))
def test_equal_width_has_the_mean_of_each_bucket(found, buckets):
    lo, hi = np.array(found).T
    histogram = EqualWidth(0.0, 20.0, buckets)
    histogram.add(lo, hi)
    width = 20 / buckets
    for bucket in range(buckets):
        a, b = bucket * width, (bucket + 1) * width
        want = sum(max(0.0, min(b, y) - max(a, x)) / width for x, y in found)
        assert histogram(np.array([(a + b) / 2]))[0] == pytest.approx(want, abs=1e-9)
    histogram.add(lo[1:], hi[1:], -1.0)
    alone = EqualWidth(0.0, 20.0, buckets)
    alone.add(lo[:1], hi[:1])
    everywhere = np.linspace(0, 20, 41)
    assert histogram(everywhere) == pytest.approx(alone(everywhere), abs=1e-9)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=7), st.integers(1, 4))
def test_cuts_are_the_best_there_are(steps, buckets):
    heights, weights = (np.array(side, float) for side in zip(*steps, strict=True))

    def error(ends):
        total = 0.0
        for a, b in itertools.pairwise([0, *ends]):
            mean = np.average(heights[a:b], weights=weights[a:b])
            total += float((weights[a:b] * (heights[a:b] - mean) ** 2).sum())
        return total

    count = min(buckets, len(heights))
    tried = [(*inner, len(heights)) for inner in itertools.combinations(range(1, len(heights)), count - 1)]
    assert error(_best_cuts(heights, weights, buckets).tolist()) == pytest.approx(min(map(error, tried)), abs=1e-9)


def test_ssi_is_near_the_optimum_where_queries_are_clustered():
    rng = np.random.default_rng(1)
    # Clustered, as standing queries are: what many look at together rises and falls within a few buckets of equal
    # width.
    middle = rng.choice([1_500.0, 4_000.0, 8_000.0], 4_000) + rng.normal(0, 40, 4_000)
    length = rng.normal(900, 45, 4_000)
    lo, hi = np.clip(middle - length / 2, 0, 10_000), np.clip(middle + length / 2, 0, 10_000)
    found = canonical(lo, hi)
    asked = rng.uniform(0, 10_000, 2_000)
    true = stabbed(lo, hi, asked)
    asked, true = asked[true > 0], true[true > 0]

    def error(guess):
        return float(np.mean(np.abs(guess - true) / true))

    plain = EqualWidth(0.0, 10_000.0, 20)
    plain.add(lo, hi)
    flanks = ssi(lo, hi, found.group, points(found.low, found.high), 20, 0.0, 10_000.0)
    assert sum(flank.buckets for flank in flanks) <= 20
    by_ssi, by_width = error(estimate(flanks, asked)), error(plain(asked))
    best = error(optimal(lo, hi, 20, 0.0, 10_000.0, places=400)(asked))
    assert by_ssi < by_width / 2
    assert by_ssi < 1.2 * best, "near the optimum, which is so for the squared error, on the places it was made for"


def test_no_buckets_are_no_histogram():
    with pytest.raises(BadOption, match="0 buckets"):
        EqualWidth(0.0, 1.0, 0)
