"""The buffer of a round, under every policy, against sorting all rows and cutting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadOption, StateDamaged
from penstock.kernels.mesh.shed.policy import Candidates, salt_of, scatter
from penstock.kernels.mesh.shed.reservoir import _APART, Reservoir, choose
from penstock.kernels.mesh.shed.shedder import POLICIES, Shedder, check_policy, make_policy
from penstock.models.frequency import Frequencies

TABLE = np.repeat(np.arange(8, dtype=np.uint64), [0, 1, 1, 2, 3, 5, 8, 13])


@pytest.fixture(scope="module")
def matches():
    counts = Frequencies(1 << 16)
    counts.add(TABLE)
    return counts


class Row:
    """A row with a key and something else; equal rows are frequent."""

    drawn = st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 20))

    @staticmethod
    def hashes(rows):
        return np.array([key for key, _, _ in rows], np.uint64)

    @staticmethod
    def fingerprints(rows):
        return np.array([(key << 32) + (other << 16) + size for key, other, size in rows], np.uint64)

    @staticmethod
    def sizes(rows):
        return np.array([size for _, _, size in rows], np.int64)


def run(policy, pieces, rows, size, **options):
    """All pieces through a reservoir: the kept rows and the shed rows, by number."""
    reservoir = Reservoir(policy, rows, size=size, seed=3, round=1, **options)
    shed = []
    for piece in pieces:
        shed += reservoir.offer(Row.hashes(piece), Row.fingerprints(piece), Row.sizes(piece)).tolist()
        assert reservoir.held <= rows
    return reservoir.close(), shed


def twin(policy, everything, rows, size):
    """The longest beginning of all rows, sorted, that fits; as a bag of rows."""
    seen, draws = {}, []
    for row in everything:
        number = seen.get(row, 0)
        seen[row] = number + 1
        told = (int(Row.fingerprints([row])[0]) + number * int(_APART)) % 2**64
        draws.append(scatter(np.array([told], np.uint64), salt_of(3, 1))[0])
    scores = policy.scores(Candidates(Row.hashes(everything), np.array(draws, np.uint64)), salt_of(3, 1))
    kept, used = [], 0
    for _, _, row in sorted(zip(scores, draws, everything, strict=True), reverse=True):
        used += row[2]
        if len(kept) == rows or (size is not None and used > size):
            break
        kept.append(row)
    return sorted(kept)


pieces = st.lists(st.lists(Row.drawn, max_size=15), max_size=4)
limits = {"rows": st.integers(0, 25), "size": st.none() | st.integers(0, 200)}


@pytest.mark.parametrize("name", POLICIES)
@given(pieces=pieces, **limits)
def test_reservoir_equals_its_naive_twin(name, matches, pieces, rows, size):
    everything = [row for piece in pieces for row in piece]
    policy = make_policy(name, matches)
    kept, _ = run(policy, pieces, rows, size)
    assert sorted(everything[number] for number in kept.rows) == twin(policy, everything, rows, size)


@pytest.mark.parametrize("name", POLICIES)
@given(pieces=pieces, **limits)
def test_every_row_is_kept_or_shed_once(name, matches, pieces, rows, size):
    kept, shed = run(make_policy(name, matches), pieces, rows, size)
    total = sum(len(piece) for piece in pieces)
    assert sorted([*kept.rows.tolist(), *shed]) == list(range(total))
    assert kept.rows.tolist() == sorted(kept.rows.tolist())
    assert kept.offered == total


@pytest.mark.parametrize("tell_repeats", [True, False])
@pytest.mark.parametrize("name", POLICIES)
@given(data=st.data(), pieces=pieces, **limits)
def test_what_is_kept_depends_on_the_bag_alone(name, tell_repeats, matches, data, pieces, rows, size):
    everything = [row for piece in pieces for row in piece]
    shuffled = data.draw(st.permutations(everything))
    cut = data.draw(st.integers(0, len(shuffled)))
    policy = make_policy(name, matches)
    one, _ = run(policy, pieces, rows, size, tell_repeats=tell_repeats)
    two, _ = run(policy, [shuffled[:cut], shuffled[cut:]], rows, size, tell_repeats=tell_repeats)
    bag = sorted(everything[number] for number in one.rows)
    assert sorted(shuffled[number] for number in two.rows) == bag


@pytest.mark.parametrize("name", POLICIES)
def test_rounds_and_seeds_differ_and_repeat(name, matches):
    hashes = np.arange(8, dtype=np.uint64).repeat(40)
    rows = np.arange(len(hashes), dtype=np.uint64)

    def kept(seed, number):
        return choose(make_policy(name, matches), hashes, rows, rows=100, seed=seed, round=number).rows.tolist()

    assert kept(1, 1) == kept(1, 1)
    assert kept(1, 1) != kept(1, 2)
    assert kept(1, 1) != kept(2, 1)


def test_a_shedder_never_opens_a_round_twice():
    first = Shedder(make_policy("samplew"), seed=5)
    rows = np.arange(50, dtype=np.uint64)

    def next_round(shedder):
        reservoir = shedder.open(10)
        reservoir.offer(rows, rows)
        return reservoir.close().rows.tolist()

    before = next_round(first)
    again = Shedder(make_policy("samplew"), seed=5)
    again.restore(first.head())
    after = next_round(first)
    assert next_round(again) == after != before
    assert len(first.head()) < 50
    with pytest.raises(StateDamaged, match="cannot be read"):
        again.restore(b"{}")


def test_memory_is_that_of_the_rows_held():
    reservoir = Reservoir(make_policy("samplew"), 1000, tell_repeats=False)
    numbers = np.arange(100_000, dtype=np.uint64)
    for piece in np.array_split(numbers, 10):
        reservoir.offer(piece, piece)
    assert reservoir.held == 1000
    assert reservoir.memory() <= 64 * 1024
    told = Reservoir(make_policy("samplew"), 1000)
    for piece in np.array_split(numbers, 10):
        told.offer(piece, piece)
    assert 32_000 + 18 * len(numbers) < told.memory() < 64_000 + 60 * len(numbers)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(BadOption, match=r'"keepw".*"samplew".*"topw".*"cluster".*\n.*shed="topw"'):
        check_policy("TOP-W")
    with pytest.raises(BadOption, match="needs to know how many table rows"):
        make_policy("cluster")
    with pytest.raises(ValueError, match="No reservoir holds -1 rows"):
        Reservoir(make_policy("keepw"), -1)
