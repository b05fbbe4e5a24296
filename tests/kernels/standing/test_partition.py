"""Stabbing partitions and hotspots: small enough, truly stabbed, and the invariants after every update."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadOption
from penstock.kernels.standing.hotspots import SCATTERED, HotspotTracker
from penstock.kernels.standing.partition import RULES, StabbingPartition, canonical, points

numbers = st.integers(-8, 8).map(float)
intervals = st.tuples(numbers, st.integers(0, 6).map(float)).map(lambda pair: (pair[0], pair[0] + pair[1]))
#: What may come next: an interval, or the going of the n-th that is there.
updates = st.lists(st.one_of(intervals, st.integers(0, 50)), max_size=40)


def fewest(found: list[tuple[float, float]]) -> int:
    """The smallest number of points that stab every interval, by trying all sets of right ends."""
    ends = sorted({hi for _, hi in found})
    for size in range(len(ends) + 1):
        for chosen in itertools.combinations(ends, size):
            if all(any(lo <= point <= hi for point in chosen) for lo, hi in found):
                return size
    raise AssertionError("right ends stab everything")


@settings(max_examples=40)
@given(st.lists(intervals, max_size=8))
def test_the_canonical_partition_is_the_smallest(found):
    lo, hi = (np.array([pair[side] for pair in found]) for side in (0, 1))
    partition = canonical(lo, hi)
    assert partition.size == fewest(found)
    stab = points(partition.low, partition.high)
    assert all(a <= stab[g] <= b for a, b, g in zip(lo, hi, partition.group, strict=True))
    witnesses = sorted((lo[w], hi[w]) for w in partition.witness)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(witnesses)), "no two witnesses meet"


def test_points_are_finite_also_where_an_interval_is_not():
    inf = np.inf
    low, high = np.array([-inf, -inf, 3.0, -1e308]), np.array([inf, 2.0, inf, 1e308])
    stab = points(low, high)
    assert np.isfinite(stab).all()
    assert ((low <= stab) & (stab <= high)).all()


class Living:
    """Intervals that are there, by slot, beside what is tested."""

    def __init__(self) -> None:
        self.there: dict[int, tuple[float, float]] = {}
        self.next = 0

    def apply(self, subject, update) -> None:
        if isinstance(update, tuple):
            self.there[self.next] = update
            subject.insert(self.next, *update)
            self.next += 1
        elif self.there:
            slot = sorted(self.there)[update % len(self.there)]
            del self.there[slot]
            subject.delete(slot)

    def tau(self) -> int:
        pairs = list(self.there.values())
        return canonical(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])).size


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@settings(max_examples=25)
@given(drawn=updates)
def test_a_dynamic_partition_stays_small(rule, epsilon, drawn):
    living, partition = Living(), StabbingPartition(epsilon, rule)
    for update in drawn:
        living.apply(partition, update)
        tau = living.tau() if living.there else 0
        assert partition.size <= (1 + epsilon) * tau
        low, high = partition.common()
        for slot, (lo, hi) in living.there.items():
            group = int(partition.groups(np.array([slot]))[0])
            assert lo <= low[group] <= high[group] <= hi
        assert partition.sizes().sum() == len(living.there)


def test_witnesses_spare_rebuilds():
    rng = np.random.default_rng(5)
    middle = rng.normal(0, 50, 3_000)
    lo, hi = middle - 10, middle + 10
    rebuilds = {}
    for rule in RULES:
        partition = StabbingPartition(1.0, rule)
        partition.build(np.arange(3_000), lo, hi)
        for slot in rng.permutation(3_000)[:1_000]:
            partition.delete(int(slot))
        rebuilds[rule] = partition.rebuilds
    assert rebuilds["witness"] * 10 < rebuilds["refined"] <= rebuilds["lazy"]


def check_invariants(tracker: HotspotTracker, living: Living, steps: int) -> None:
    n, alpha = len(living.there), tracker.alpha
    sizes = tracker.hot_sizes()
    assert all(size >= alpha / 2 * n and size > 0 for size in sizes.values()), "I1: only α/2-hotspots are hot"
    assert all(size < alpha * n for size in tracker.scattered.sizes() if size), "I1: all α-hotspots are hot"
    assert len(sizes) <= 2 / alpha
    assert tracker.size <= (1 + tracker.scattered.epsilon) * living.tau() + 2 / alpha, "I2"
    assert tracker.moves <= 5 * steps, "I3"
    assert sum(sizes.values()) + tracker.scattered.sizes().sum() == n


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_invariants_hold_after_every_update(alpha):
    rng = np.random.default_rng(17)
    living, tracker = Living(), HotspotTracker(alpha)
    for step in range(1, 4_001):
        centre = rng.choice([0, 40, 80]) if rng.random() < 0.7 else rng.uniform(0, 1_000)
        # What people care about drifts: the hot places of the second half are others.
        middle = rng.normal(centre + (300 if step > 2_000 else 0), 2)
        update = (middle - 3, middle + 3) if rng.random() < 0.6 else int(rng.integers(1 << 30))
        living.apply(tracker, update)
        if living.there:
            check_invariants(tracker, living, step)
    hot = tracker.hot()
    for slot, (lo, hi) in living.there.items():
        group = int(tracker.groups(np.array([slot]))[0])
        assert group == SCATTERED or lo <= hot[group][0] <= hot[group][1] <= hi


@settings(max_examples=30)
@given(drawn=updates, start=st.lists(intervals, max_size=12), alpha=st.sampled_from([0.2, 0.5, 1.0]))
def test_a_tracker_that_starts_with_many_is_like_one_that_took_them_in(drawn, start, alpha):
    living, tracker = Living(), HotspotTracker(alpha)
    living.there = dict(enumerate(start))
    living.next = len(start)
    tracker.build(np.arange(len(start)), *(np.array([pair[side] for pair in start]) for side in (0, 1)))
    for steps, update in enumerate(drawn, start=1):
        living.apply(tracker, update)
        if living.there:
            check_invariants(tracker, living, steps + 5 * len(start))


def test_bad_parameters_are_refused():
    with pytest.raises(BadOption, match="epsilon"):
        StabbingPartition(0.0)
    with pytest.raises(BadOption, match="lazy, refined, witness"):
        StabbingPartition(1.0, "eager")  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="alpha"):
        HotspotTracker(0.0)
