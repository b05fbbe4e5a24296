"""The hash table over the window against a dict of lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import KernelFault
from penstock.kernels.mesh.index import BYTES_PER_ROW, Cursor, build, probe, sift
from penstock.tables.keys import hash_range

WHOLE = (0, 1 << 64)
#: Few hashes, so that they repeat; the ends of the range, and some that share their leading or trailing bits.
POOL = [0, 1, 5, 1 << 16, (1 << 16) + 5, 1 << 32, 1 << 57, 1 << 63, (1 << 63) + 5, (1 << 64) - 1]


def index_of(hashes, lo, hi, cut):
    parts = [(0, hashes[:cut]), (cut, hashes[cut:])]
    return build(parts, parts, len(hashes), lo, hi)


def pairs(index, page, first_live, room):
    """All candidate pairs, collected in outputs of `room` pairs each."""
    survivors = np.empty(len(page), np.int32)
    survivors = survivors[: sift(index, page, survivors)]
    found, at = [], Cursor()
    page_rows, window_rows = np.empty(room, np.int64), np.empty(room, np.int64)
    while at.survivor < survivors.size:
        count, at = probe(index, page, survivors, at, first_live, page_rows, window_rows)
        assert count <= room
        found += zip(page_rows[:count].tolist(), window_rows[:count].tolist(), strict=True)
    return found


def twin(window, page, first_live):
    """Who has the same hash, written out."""
    rows = {}
    for number, hashed in enumerate(window.tolist()):
        rows.setdefault(hashed, []).append(number)
    return [(r, w) for r, hashed in enumerate(page.tolist()) for w in rows.get(hashed, []) if w >= first_live]


@given(
    window=st.lists(st.sampled_from(POOL), min_size=1, max_size=60),
    page=st.lists(st.sampled_from(POOL), max_size=30),
    cut=st.integers(0, 60),
    first_live=st.integers(0, 60),
    room=st.integers(1, 9),
)
def test_probe_finds_all_equal_hashes_among_its_candidates(window, page, cut, first_live, room):
    window, page = np.array(window, np.uint64), np.array(page, np.uint64)
    found = pairs(index_of(window, *WHOLE, min(cut, len(window))), page, first_live, room)
    assert len(found) == len(set(found)), "a pair came twice"
    assert all(w >= first_live for _, w in found), "an expired row came back"
    # A tag is a part of the hash: candidates may be more than the equal ones, never fewer.
    assert [pair for pair in found if page[pair[0]] == window[pair[1]]] == twin(window, page, first_live)


@pytest.mark.parametrize("slots", [1, 2, 3, 64])
def test_probe_of_a_slot_takes_pages_with_hashes_of_other_slots(slots):
    rng = np.random.default_rng(slots)
    for slot in range(min(slots, 3)):
        lo, hi = hash_range(slot, slots)
        window = rng.integers(lo, hi - 1, 500, dtype=np.uint64, endpoint=True)
        page = np.concatenate([window[:50], rng.integers(0, 2**64 - 1, 500, dtype=np.uint64)])
        found = pairs(index_of(window, lo, hi, 100), page, 0, 7)
        assert [p for p in found if page[p[0]] == window[p[1]]] == twin(window, page, 0)


def test_a_row_of_another_slot_is_refused_and_not_written_out_of_bounds():
    lo, hi = hash_range(0, 2)
    for stray in (hi, (1 << 64) - 1):
        hashes = np.array([lo, hi - 1, stray], np.uint64)
        with pytest.raises(KernelFault, match="does not belong to"):
            index_of(hashes, lo, hi, 1)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100, 1_000, 65_536, 100_001])
@pytest.mark.parametrize("slots", [1, 2, 3, 64])
def test_index_takes_no_more_than_it_is_counted_for(count, slots):
    lo, hi = hash_range(slots - 1, slots)
    hashes = np.random.default_rng(count).integers(lo, hi - 1, count, dtype=np.uint64, endpoint=True)
    # A few buckets more than the rows pay for, however few the rows are.
    assert index_of(hashes, lo, hi, count // 2).nbytes <= BYTES_PER_ROW * count + 200


def test_almost_every_candidate_is_a_match():
    rng = np.random.default_rng(3)
    window, page = (rng.integers(0, 2**64 - 1, 50_000, dtype=np.uint64) for _ in range(2))
    assert len(pairs(index_of(window, *WHOLE, 0), page, 0, 1_000)) < 100
