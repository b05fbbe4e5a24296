"""Counts of keys: exact while they fit, bounded beyond, the same after they were written and read."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import KernelFault, MemoryTooSmall, StateDamaged
from penstock.models.countmin import DEPTH, CountMin
from penstock.models.counts import CountTable
from penstock.models.frequency import LEAST_BUDGET, Frequencies
from penstock.tables.hashing import hash_words
from penstock.testing import uniform_keys, zipf_keys

#: Hashes that share their leading or trailing bits, and the ends of the range.
POOL = [0, 1, 2, 1 << 32, (1 << 32) + 1, 1 << 57, 1 << 63, (1 << 63) + 1, (1 << 64) - 1]
pages = st.lists(st.lists(st.sampled_from(POOL) | st.integers(0, 200), max_size=80), max_size=5)


def hashed(keys):
    out = np.empty(len(keys), np.uint64)
    hash_words(np.ascontiguousarray(keys, np.int64), out)
    return out


def as_hashes(numbers):
    return np.array(numbers, np.uint64)


@given(pages)
def test_exact_counts_equal_a_dictionary(pages):
    counts, twin = Frequencies(1 << 16), Counter()
    for page in pages:
        counts.add(as_hashes(page))
        twin.update(page)
    asked = [*POOL, *range(210)]
    assert counts.exact
    assert counts.bound() == 0
    assert counts.estimate(as_hashes(asked)).tolist() == [twin[key] for key in asked]
    assert counts.total() == sum(twin.values())


@given(pages)
def test_numbers_count_the_occurrences(pages):
    table, twin = CountTable(1 << 40), Counter()
    for page in pages:
        expected = []
        for key in page:
            expected.append(twin[key])
            twin[key] += 1
        assert table.number(as_hashes(page)).tolist() == expected


def test_more_than_can_be_numbered_is_an_error():
    with pytest.raises(KernelFault, match="more than can be numbered in 2048 bytes"):
        CountTable(2048).number(np.arange(1000, dtype=np.uint64))


@pytest.mark.parametrize("keys", [1_000, 20_000, 200_000])
@pytest.mark.parametrize("half_life", [None, 10.0])
def test_never_above_the_budget(keys, half_life):
    for budget in (LEAST_BUDGET, 1 << 16, 1_000_003):
        counts = Frequencies(budget, half_life=half_life)
        for time, page in enumerate(np.array_split(hashed(np.arange(keys)), 7)):
            counts.add(page, now=float(time))
            assert counts.memory() <= budget
        assert counts.exact == (keys * 46 < budget)


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 1.5])
def test_the_sketch_keeps_its_bound(skew):
    keys = zipf_keys(200_000, 50_000, skew, seed=5)
    counts = Frequencies(1 << 17)
    for page in np.array_split(keys, 20):
        counts.add(hashed(page))
    assert not counts.exact
    assert counts.total() == len(keys)
    true = np.bincount(keys, minlength=50_000)
    excess = counts.estimate(hashed(np.arange(50_000))) - true
    assert excess.min() >= 0, "a count is too small"
    assert (excess > counts.bound()).mean() <= math.exp(-DEPTH)
    # Conservative update is better than its bound: worth its order dependence.
    assert excess.mean() < counts.bound() / 2


@pytest.mark.parametrize("fractions", [False, True])
def test_count_min_keeps_its_bound(fractions):
    keys = uniform_keys(100_000, 30_000, seed=3)
    sketch = CountMin(40_000, fractions=fractions)
    assert sketch.nbytes <= 40_000
    sketch.add(hashed(keys))
    excess = sketch.find(hashed(np.arange(30_000))) - np.bincount(keys, minlength=30_000)
    assert excess.min() >= 0
    assert (excess > sketch.bound()).mean() <= math.exp(-DEPTH)


def test_merged_sketches_keep_the_bound():
    keys = zipf_keys(200_000, 50_000, 0.8, seed=6)
    parts = [Frequencies(1 << 17), Frequencies(1 << 17)]
    for part, half in zip(parts, np.array_split(keys, 2), strict=True):
        part.add(hashed(half))
    parts[0].merge(parts[1])
    excess = parts[0].estimate(hashed(np.arange(50_000))) - np.bincount(keys, minlength=50_000)
    assert excess.min() >= 0
    assert (excess > parts[0].bound()).mean() <= math.exp(-DEPTH)
    assert parts[0].total() == len(keys)


@pytest.mark.parametrize(("first", "second"), [(50, 60), (50, 20_000), (20_000, 50), (20_000, 30_000)])
def test_merged_counts_hold_both(first, second):
    one, two = Frequencies(1 << 16), Frequencies(1 << 16)
    one.add(hashed(np.arange(first)))
    two.add(hashed(np.arange(second)))
    one.merge(two)
    asked = np.arange(max(first, second))
    true = (asked < first).astype(int) + (asked < second)
    found = one.estimate(hashed(asked))
    assert (found >= true).all()
    assert one.total() == first + second
    if one.exact:
        assert (found == true).all()
    with pytest.raises(ValueError, match="same budget"):
        one.merge(Frequencies(1 << 20))


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 40)), max_size=40), st.floats(0.1, 20))
def test_decayed_weights_equal_their_definition(events, half_life):
    events = sorted(events, key=lambda event: event[1])
    counts = Frequencies(1 << 16, half_life=half_life)
    for key, time in events:
        counts.add(as_hashes([key]), now=time)
    now = 41.0
    true = [sum(2 ** ((time - now) / half_life) for key, time in events if key == asked) for asked in range(6)]
    found = counts.estimate(as_hashes(range(6)), now)
    np.testing.assert_allclose(found, true, rtol=1e-9, atol=0.002)
    assert counts.total(now) == pytest.approx(sum(true), abs=0.02)


def test_decay_makes_room_for_new_keys():
    counts = Frequencies(LEAST_BUDGET, half_life=1.0)
    for time in range(0, 600, 20):
        counts.add(hashed(np.arange(time, time + 30)), now=float(time))
    assert counts.exact, "keys that no longer matter pushed it into the sketch"
    assert counts.memory() <= LEAST_BUDGET
    found = counts.estimate(hashed(np.arange(580, 610)), now=580.0)
    np.testing.assert_allclose(found, 1.0, atol=0.01)


def test_what_comes_as_counts_become_a_sketch_counts_no_more_than_other_keys():
    """Fifteen half-lives after the first: weights are large by then, and must not be those of another scale."""
    counts = Frequencies(LEAST_BUDGET, half_life=100.0)
    keys = np.random.default_rng(0).integers(0, 1 << 60, 300).astype(np.uint64)
    counts.add(keys[:10], 0.0)
    for step, some in enumerate(np.split(keys, 100)):
        counts.add(some, 1_500.0 + step)
        assert counts.estimate(some, 1_500.0 + step).max() < 20
    assert not counts.exact


@pytest.mark.parametrize("half_life", [None, 7.5])
@pytest.mark.parametrize("keys", [0, 300, 20_000])
def test_bytes_read_back_go_on_alike(keys, half_life):
    counts = Frequencies(1 << 16, half_life=half_life)
    counts.add(hashed(zipf_keys(2 * keys, max(keys, 1), 0.5, seed=1)), now=3.0)
    again = Frequencies.from_bytes(counts.to_bytes())
    assert again.to_bytes() == counts.to_bytes()
    more = hashed(zipf_keys(40_000, 30_000, 0.5, seed=2))
    for one in (counts, again):
        one.add(more, now=5.0)
    assert again.to_bytes() == counts.to_bytes()
    assert (again.exact, again.total(6.0)) == (counts.exact, counts.total(6.0))


def test_bytes_of_an_exact_table_do_not_depend_on_order():
    keys = hashed(zipf_keys(5_000, 500, 0.5, seed=1))
    one, two = Frequencies(1 << 16), Frequencies(1 << 16)
    one.add(keys)
    two.add(keys[::-1].copy())
    assert one.to_bytes() == two.to_bytes()


@pytest.mark.parametrize("data", [b"", b"{}\n", b"nonsense\n123", Frequencies(LEAST_BUDGET).to_bytes() + b"abc"])
def test_damaged_bytes_are_refused(data):
    with pytest.raises(StateDamaged, match="cannot be read"):
        Frequencies.from_bytes(data)


def test_bytes_of_another_format_are_refused():
    data = Frequencies(LEAST_BUDGET).to_bytes().replace(b'"format": 1', b'"format": 9')
    with pytest.raises(StateDamaged, match="format 9"):
        Frequencies.from_bytes(data)


def test_a_budget_too_small_is_refused():
    with pytest.raises(MemoryTooSmall, match="at least 4096 bytes"):
        Frequencies(100)


def test_read_only_hashes_are_taken():
    page = hashed(np.arange(10))
    page.flags.writeable = False
    counts = Frequencies(1 << 16)
    counts.add(page)
    assert counts.estimate(page).tolist() == [1.0] * 10
