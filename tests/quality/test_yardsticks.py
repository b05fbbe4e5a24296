"""Yardsticks against brute force, and the papers' own examples."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.quality import measures
from penstock.quality.archive_metric import Stay, complete_rows
from penstock.quality.dominance import benefits_of_joins, dominated_subset
from penstock.quality.flowexpect import flow_expect
from penstock.quality.optoffline import opt_offline
from penstock.quality.static_join import best_of_group, drop_cheapest, keep_best, keep_best_apart

R, S = np.array([1, 1, 1, 3, 2]), np.array([2, 3, 1, 1, 3])


def exact(left, right, window):
    return {(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b and abs(i - j) < window}


def test_opt_offline_loses_the_two_pairs_of_figure_2():
    best = opt_offline(R, S, window=3, memory=2, longest=True)
    assert exact(R, S, 3) - best.pairs == {(1, 2), (1, 3)}


def brute(left, right, window, memory, variable):
    """Try every choice of what to keep, at every instant."""

    @cache
    def best(t, held):
        if t == len(left):
            return 0
        gain = sum(1 for s, u in held if (right if s == 0 else left)[t] == (left, right)[s][u])
        gain += int(left[t] == right[t])
        rows = [row for row in held if t + 1 - row[1] < window] + [(0, t), (1, t)]
        top = 0
        for size in range(min(memory, len(rows)) + 1):
            for keep in itertools.combinations(rows, size):
                if variable or max(sum(s == side for s, _ in keep) for side in (0, 1)) <= memory // 2:
                    top = max(top, best(t + 1, keep))
        return gain + top

    return best(0, ())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6), st.booleans())
def test_opt_offline_equals_brute_force(rows, variable):
    left, right = (tuple(side) for side in zip(*rows, strict=True))
    got = opt_offline(np.array(left), np.array(right), window=3, memory=2, variable=variable)
    assert got.results == brute(left, right, 3, 2, variable)
    assert got.pairs <= exact(left, right, 3)


def test_flow_expect_expects_1_6_where_1_75_can_be_had():
    """003 §3.3.4: one place in memory; "-" joins nothing."""
    # Of the rows now: the cached 1 of R, the new "-" of R, the new 2 of S; partners in the three steps to come.
    now = np.array([[0.0, 0.8, 0.8], [0, 0, 0], [1.0, 0.0, 0.5]])
    later = np.zeros((2, 3, 3))
    later[1, 0] = [0, 0.5, 0]  # S brings a 3 with probability 0.5, and R a 3 in the step after
    decision = flow_expect(now, later, 1)
    assert decision.expected == pytest.approx(1.6)
    assert decision.keep == [0]
    assert best_strategy() == pytest.approx(1.75)


def best_strategy():
    """Every strategy, decisions depending on what came."""
    steps = [  # of each step: what R and S may bring, with probabilities
        [(("R", 2), 1.0), (("S", 3), 0.5)],
        [(("R", 3), 1.0), (("S", 1), 0.8)],
        [(("R", 2), 0.5), (("S", 1), 0.8)],
    ]

    def value(step, kept):
        if step == len(steps):
            return 0.0
        total = 0.0
        for came in itertools.product((True, False), repeat=2):
            chance, rows = 1.0, []
            for (row, likely), is_there in zip(steps[step], came, strict=True):
                chance *= likely if is_there else 1 - likely
                rows += [row] if is_there else []
            if chance:
                gain = sum(row[1] == kept[1] and row[0] != kept[0] for row in rows)
                total += chance * (gain + max(value(step + 1, row) for row in [kept, *rows]))
        return total

    return max(value(0, row) for row in (("R", 1), ("S", 2)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3), st.integers(0, 6))
def test_the_static_join_equals_brute_force(groups, kept):
    ways = [itertools.product(range(m + 1), range(n + 1)) for m, n in groups]
    every = list(itertools.product(*map(list, ways)))
    most = min(kept, sum(m + n for m, n in groups))
    best = max(sum(a * b for a, b in choice) for choice in every if sum(a + b for a, b in choice) == most)
    result, split = keep_best(groups, kept)
    assert result == best == sum(a * b for a, b in split)
    assert sum(a + b for a, b in split) == most
    assert all(a <= m and b <= n for (a, b), (m, n) in zip(split, groups, strict=True))
    apart = max(
        sum(a * b for a, b in choice)
        for choice in every
        if sum(a for a, _ in choice) <= kept // 2 and sum(b for _, b in choice) <= kept - kept // 2
    )
    assert keep_best_apart(groups, kept // 2, kept - kept // 2) == apart


def test_one_group_as_printed():
    for m, n in itertools.product(range(6), range(6)):
        for kept in range(m + n + 1):
            best = max(a * (kept - a) for a in range(max(0, kept - n), min(m, kept) + 1))
            assert best_of_group(m, n, kept) == best


def test_dropping_the_cheapest_loses_at_most_as_many_times_the_optimum_as_there_are_relations():
    rng = np.random.default_rng(2)

    def size(relations):
        return sum(np.prod([list(r).count(key) for r in relations]) for key in range(3))

    for _ in range(30):
        relations = [rng.integers(0, 3, 4).tolist() for _ in range(3)]
        gone = drop_cheapest(relations, [1, 1, 1])
        left = [[k for at, k in enumerate(r) if at not in drop] for r, drop in zip(relations, gone, strict=True)]
        options = [[r[:i] + r[i + 1 :] for i in range(4)] for r in relations]
        optimum = max(size(choice) for choice in itertools.product(*options))
        assert size(relations) - size(left) <= 3 * (size(relations) - optimum)


def test_measures_of_a_part_grow_with_it():
    whole = [1, 1, 2, 3, 4, 4, 5, 6]
    parts = [whole[:n] for n in range(1, 9)]
    for measure in (measures.matching, measures.dice, measures.jaccard, measures.cosine):
        values = [measure(part, whole) for part in parts]
        assert values == sorted(values)
        assert len(set(values)) == len(values)
    assert [measures.symmetric_difference(part, whole) for part in parts] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert {measures.overlap(part, whole) for part in parts} == {1.0}
    assert {measures.earth_movers_distance(part, whole, lambda a, b: abs(a - b)) for part in parts} == {0.0}
    assert measures.match_and_compare(whole, whole, lambda a, b: abs(a - b)) == 0.0
    assert measures.match_and_compare([0], [1, 3], lambda a, b: abs(a - b)) > 0


def test_the_archive_metric_counts_complete_rows():
    # r(0) leaves before s(2) comes: r(0) and s(2) are incomplete, r(1) has met s(2), s(0) has no partner.
    left = [Stay(1, 0, 1), Stay(1, 1, 3), Stay(7, 2, 2)]
    right = [Stay(2, 0, 0), Stay(3, 1, 1), Stay(1, 2, 2)]
    assert complete_rows(left, right, 3) == 4
    assert complete_rows([Stay(1, 0, 2), *left[1:]], right, 3) == 6


def test_prob_is_optimal_when_stationary():
    """Without a window, rows with the lower probability are dominated, so PROB drops what an optimal policy drops."""
    chances = np.repeat(np.array([[0.3], [0.1], [0.2], [0.4]]), 10, axis=1)
    assert dominated_subset(benefits_of_joins(chances), 2) == [1, 2]
