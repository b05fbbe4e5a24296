"""The rows of one side: what they cost, and that they come back as they were."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.contract import ChunkLog
from penstock.kernels.window import side as sides
from penstock.kernels.window.side import ENTRY, SIZED, SideRows
from penstock.tables.keys import hash_keys

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])


def rows_of(numbers):
    """A row for each number, which says it: its key is the number's last digit."""
    numbers = np.asarray(numbers, np.int64)
    return pa.RecordBatch.from_arrays([pa.array(numbers % 10), pa.array(numbers)], schema=SCHEMA)


def described(rows):
    return hash_keys([rows.column("k")]), rows.column("t").to_numpy()


class Kept:
    """A side, the chunks that it has stored, and a list of what it should have."""

    def __init__(self):
        self.side, self.log, self.stored, self.steps = SideRows("l", SCHEMA), ChunkLog(), {}, 0
        self.came, self.waiting, self.met = 0, [], set()

    def admit(self, count):
        new = np.arange(self.came, self.came + count)
        self.came += count
        self.side.admit(rows_of(new), *described(rows_of(new)), new)
        self.waiting += new.tolist()

    def evict(self, wanted):
        stay = np.array([not wanted(number) for number in self.waiting], bool)
        self.side.keep(stay, self.log)
        self.waiting = [number for number, stays in zip(self.waiting, stay, strict=True) if stays]

    def expire(self, count):
        first = self.waiting[min(count, len(self.waiting) - 1)] if self.waiting else 0
        dropped = self.side.drop_front(lambda moments, numbers: numbers < first, self.log)
        self.waiting = self.waiting[dropped:]

    def meet(self, which):
        places = np.flatnonzero([number % 7 == which for number in self.waiting])
        self.side.mark_met(places + self.side.first)
        self.met |= {self.waiting[place] for place in places}

    def store(self):
        self.side.merge(400, self.log)
        self.side.store(self.steps, self.log, flags=True)
        self.steps += 1
        changes = self.log.take()
        self.stored = {k: v for k, v in self.stored.items() if k not in changes.gone} | dict(changes.new)

    def restored(self):
        again = SideRows("l", SCHEMA)
        again.restore(self.side.head(), self.stored, described)
        return again

    def check(self, side):
        assert side.column("numbers").tolist() == self.waiting
        assert side.column("moments").tolist() == self.waiting
        assert side.column("met").astype(bool).tolist() == [number in self.met for number in self.waiting]
        everything = np.arange(side.first, side.end)
        assert side.take(everything).equals(rows_of(self.waiting))
        assert side.cost == pytest.approx(self.side.cost)


FEW = st.integers(1, 30)
#: What happens in a step: rows come; every so many go, or whole pieces, or the front; some meet a partner; or rows are
#: laid together.
HAPPENS = st.one_of(
    st.tuples(st.just("admit"), FEW),
    st.tuples(st.just("admit"), FEW),
    st.tuples(st.just("every"), st.integers(3, 9)),
    st.tuples(st.just("run"), st.tuples(st.integers(0, 3), st.integers(1, 3))),
    st.tuples(st.just("expire"), FEW),
    st.tuples(st.just("meet"), st.integers(0, 6)),
    st.tuples(st.just("lay"), st.integers(0, 2_000)),
)


@given(st.lists(st.tuples(HAPPENS, st.booleans()), min_size=10, max_size=50))
def test_a_side_comes_back_as_it_was(steps):
    kept = Kept()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sides, "_MOST_PIECES", 9)
        for (step, how), restart in steps:
            if step == "admit":
                kept.admit(how)
            elif step == "every":
                kept.evict(lambda number, how=how: number % how == 0)
            elif step == "run":
                ends = np.cumsum([0, *(piece.count for piece in kept.side.pieces)])
                first, last = (ends[min(place, len(ends) - 1)] for place in (how[0], sum(how)))
                kept.evict(set(kept.waiting[first:last]).__contains__)
            elif step == "expire":
                kept.expire(how)
            elif step == "lay":
                kept.side.lay_together(how)
                assert all(block.num_rows for block in kept.side.blocks)
            else:
                kept.meet(how)
            kept.check(kept.side)
            kept.store()
            kept.check(again := kept.restored())
            kept.side = again if restart else kept.side


def test_a_side_costs_what_it_says():
    rng, kept = np.random.default_rng(0), Kept()
    for _ in range(40):
        kept.admit(100)
    assert kept.side.nbytes <= kept.side.cost
    for _ in range(20):
        kept.side.keep(rng.random(len(kept.side)) < 0.8, kept.log)
        kept.side.drop_front(lambda moments, numbers: numbers < 100, kept.log)
        assert kept.side.nbytes <= kept.side.cost + 1_280
    assert kept.side.cost == pytest.approx(sum(p.size for p in kept.side.pieces) + ENTRY * len(kept.side))


@pytest.mark.parametrize("most", [3_000, 30])
@pytest.mark.parametrize("text", [False, True], ids=["rows of one size", "rows of many sizes"])
def test_a_side_costs_what_it_says_while_rows_come_and_go(text, most):
    """But for a kilobyte, however few rows it has."""
    rng = np.random.default_rng(1)
    side, log, came = SideRows("l", SCHEMA.append(pa.field("s", pa.string())) if text else SCHEMA), ChunkLog(), 0
    assert side.entry == ENTRY + (SIZED if text else 0)
    for step in range(300):
        many = int(rng.integers(1, most if step % 100 < 50 else most // 10))
        numbers = np.arange(came, came + many)
        batch = rows_of(numbers)
        if text:
            batch = batch.append_column("s", pa.array(["x" * (n % 9) for n in range(many)]))
        side.admit(batch, hash_keys([batch.column("k")]), numbers, numbers)
        came += many
        gone = came - int(rng.integers(most // 3, 10 * most))
        side.drop_front(lambda moments, numbers, gone=gone: numbers < gone, log)
        if step % 7 == 0:
            side.keep(rng.random(len(side)) < 0.9, log)
        assert side.nbytes <= side.cost + 1_280, step
        assert side.column("sizes").sum() / 8 == pytest.approx(sum(piece.size for piece in side.pieces))
