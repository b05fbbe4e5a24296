"""What each policy promises about the rows it keeps. Seeds are fixed; bounds are of the test's own statistics."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.mesh.shed.reservoir import Reservoir, choose
from penstock.kernels.mesh.shed.shedder import make_policy
from penstock.models.frequency import Frequencies
from penstock.tables.hashing import hash_words
from penstock.testing import zipf_keys


def hashed(keys):
    out = np.empty(len(keys), np.uint64)
    hash_words(np.ascontiguousarray(keys, np.int64), out)
    return out


def counted(keys, budget=1 << 20):
    counts = Frequencies(budget)
    counts.add(hashed(keys))
    return counts


def numbered(count):
    return np.arange(count, dtype=np.uint64)


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(0, 60))
def test_keepw_keeps_as_many_as_fit(keys, rows):
    kept = choose(make_policy("keepw"), hashed(keys), numbered(len(keys)), rows=rows)
    assert len(kept.rows) == min(rows, len(keys))
    assert kept.inclusion is None


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(0, 60), st.integers(0, 9))
def test_keepw_divides_at_most_one_key(keys, rows, seed):
    kept = choose(make_policy("keepw"), hashed(keys), numbered(len(keys)), rows=rows, seed=seed).rows
    shed = np.setdiff1d(np.arange(len(keys)), kept)
    both = {keys[number] for number in kept} & {keys[number] for number in shed}
    assert len(both) <= 1


def test_keepw_leaves_no_key_out_for_ever():
    keys = np.arange(10).repeat(20)
    policy = make_policy("keepw")
    times = np.zeros(10)
    for number in range(400):
        kept = choose(policy, hashed(keys), numbered(len(keys)), rows=100, round=number).rows
        times += np.bincount(keys[kept], minlength=10) / 20
    # Half of the rows each round: 200 times of 400 each, a standard deviation of 10.
    assert (abs(times - 200) < 50).all()


@pytest.mark.parametrize("duplicates", [False, True])
def test_samplew_gives_every_row_the_same_chance(duplicates):
    trials, count, rows = 3000, 40, 15
    # Equal rows cannot be told apart by what they are; that their draws differ is what gives each its own chance.
    fingerprints = numbered(count) // np.uint64(8) if duplicates else numbered(count)
    policy, times = make_policy("samplew"), np.zeros(count)
    for seed in range(trials):
        kept = choose(policy, hashed(np.zeros(count)), fingerprints, rows=rows, seed=seed)
        times[kept.rows] += 1
        assert (kept.inclusion == rows / count).all()
    groups = times.reshape(5, 8).sum(axis=1) / 8 if duplicates else times
    expected = trials * rows / count
    deviation = np.sqrt(expected * (1 - rows / count))
    assert abs(groups - expected).max() < 4 * deviation


def test_samplew_gives_every_pair_the_same_chance():
    trials, count, rows = 4000, 8, 3
    policy, times = make_policy("samplew"), dict.fromkeys(combinations(range(count), 2), 0)
    for seed in range(trials):
        kept = choose(policy, hashed(np.arange(count)), numbered(count), rows=rows, seed=seed).rows.tolist()
        for pair in combinations(kept, 2):
            times[pair] += 1
    expected = trials * rows * (rows - 1) / (count * (count - 1))
    assert max(abs(number - expected) for number in times.values()) < 4 * np.sqrt(expected)


def test_equal_rows_that_are_not_told_apart_stay_together():
    fingerprints = numbered(40) // np.uint64(8)
    reservoir = Reservoir(make_policy("samplew"), 16, seed=1, tell_repeats=False)
    reservoir.offer(fingerprints, fingerprints)
    assert sorted(np.bincount(fingerprints[reservoir.close().rows].astype(int), minlength=5)) == [0, 0, 0, 8, 8]


@given(st.lists(st.integers(0, 12), max_size=60), st.integers(0, 60), st.integers(0, 5))
def test_topw_keeps_the_most_results(keys, rows, seed):
    worth = np.arange(13)
    matches = counted(np.repeat(worth, worth))
    kept = choose(make_policy("topw", matches), hashed(keys), numbered(len(keys)), rows=rows, seed=seed)
    best = sorted((worth[key] for key in keys), reverse=True)[:rows]
    assert sum(worth[keys[number]] for number in kept.rows) == sum(best)


def test_topw_chooses_at_random_between_rows_that_match_alike():
    policy, times = make_policy("topw", counted(np.arange(20))), np.zeros(20)
    for seed in range(1000):
        times[choose(policy, hashed(np.arange(20)), numbered(20), rows=5, seed=seed).rows] += 1
    assert abs(times - 250).max() < 4 * np.sqrt(250 * 0.75)


STREAM = zipf_keys(400, 60, 0.7, seed=1)
TABLE = zipf_keys(3000, 60, 0.9, seed=2)
WORTH = np.bincount(TABLE, minlength=60)


@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("how", ["samplew", "cluster", "cluster with a sketch"])
def test_estimates_are_unbiased(how, sized):
    name, *sketched = how.split(" ", 1)
    matches = counted(TABLE)
    if sketched:
        # So many other keys that the counts are far too large, and differently so.
        matches = Frequencies(4096)
        matches.add(hashed(np.concatenate([TABLE, zipf_keys(3000, 9000, 0.5, seed=3) + 1000])))
        assert not matches.exact
    policy = make_policy(name, matches)
    sizes = np.random.default_rng(4).integers(1, 30, len(STREAM)) if sized else None
    # Two sums over the join: how many results, and the sum of something that belongs to the stream row.
    value = np.random.default_rng(5).normal(10, 5, len(STREAM))
    true = np.array([WORTH[STREAM].sum(), (WORTH[STREAM] * value).sum()])
    found = []
    for seed in range(1500):
        kept = choose(
            policy, hashed(STREAM), numbered(400), rows=400 if sized else 60, sizes=sizes, size=900 if sized else None,
            seed=seed,
        )  # fmt: skip
        results = WORTH[STREAM[kept.rows]] / kept.inclusion
        found.append([results.sum(), (results * value[kept.rows]).sum()])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    assert (abs(mean - true) < 4 * error).all(), (mean / true, error / true)


def test_the_size_of_the_join_is_known_within_its_bound():
    policy, true, rows = make_policy("cluster", counted(TABLE)), WORTH[STREAM].sum(), 60
    found = []
    for seed in range(500):
        kept = choose(policy, hashed(STREAM), numbered(400), rows=rows, seed=seed)
        found.append((WORTH[STREAM[kept.rows]] / kept.inclusion).sum() / true)
    assert np.sqrt(np.mean((np.array(found) - 1) ** 2)) <= 1 / np.sqrt(rows - 1)


def test_cluster_prefers_rows_in_proportion_to_their_matches():
    # One row in 500 is kept, so that none is near certainty: chances are as 1 to 5.
    keys = np.array([1, 5]).repeat(1000)
    policy, times = make_policy("cluster", counted([1, 5, 5, 5, 5, 5])), np.zeros(6)
    for seed in range(800):
        kept = choose(policy, hashed(keys), numbered(2000), rows=4, seed=seed).rows
        times += np.bincount(keys[kept], minlength=6)
    assert times[5] / times[1] == pytest.approx(5, rel=0.25)


def test_cluster_leaves_rows_without_a_match_to_the_last():
    keys = np.array([0, 1] * 10)
    policy = make_policy("cluster", counted([1]))
    assert set(keys[choose(policy, hashed(keys), numbered(20), rows=10).rows]) == {1}
    kept = choose(policy, hashed(keys), numbered(20), rows=12)
    assert (kept.inclusion == 1).all(), "every row that has results was kept"
    assert len(kept.rows) == 12
