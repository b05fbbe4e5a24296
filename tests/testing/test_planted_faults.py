"""A suite that checks nothing passes everything: broken kernels must be caught, each by the question meant for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from penstock.errors import KernelFault
from penstock.kernels.contract import RESULTS, Batch, Changes, ChunkLog, Emission, Kernel, Metric
from penstock.testing.conformance import (
    QUESTIONS,
    Case,
    after_restore,
    any_cut,
    check,
    equals_twin,
    every_prefix,
    side_of,
    within_budget,
)
from penstock.testing.strategies import streams, table_schema

SCHEMA = table_schema("nullable")


class Room(int):
    """A plan: how many rows may be held back; made anew for each example."""


def blob_of(batches: list[pa.RecordBatch]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for rows in batches:
            writer.write_batch(rows)
    return sink.getvalue()


class Delay(Kernel):
    """Honest: holds each batch back until the next one, if it has at most `room` rows; passes it on at once if not."""

    channels: ClassVar = {RESULTS: SCHEMA}
    reports = (Metric("held", help="rows held back"),)

    def __init__(self, room: int) -> None:
        self.room = room
        self.log = ChunkLog()
        self.held: pa.Buffer | None = None
        self.count = 0
        self.number = 0
        self.peak = 0

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        yield from self.release()
        fresh: list[pa.RecordBatch] = []
        for _, rows in batch:
            fresh.append(rows)
            if sum(piece.num_rows for piece in fresh) > self.room or self.count < 0:
                self.count = -1
                yield from self.emit(fresh)
                fresh = []
        self.count = 0
        self.hold([rows for rows in fresh if rows.num_rows])

    def release(self) -> Iterator[Emission]:
        if self.held is not None:
            yield from self.emit(list(pa.ipc.open_stream(self.held)))
            self.log.drop(self.name())
            self.held, self.count = None, 0

    def emit(self, batches: list[pa.RecordBatch]) -> Iterator[Emission]:
        for rows in batches:
            yield Emission(RESULTS, rows)

    def hold(self, fresh: list[pa.RecordBatch]) -> None:
        if fresh:
            self.number += 1
            self.held = blob_of(fresh)
            self.count = sum(rows.num_rows for rows in fresh)
            self.peak = max(self.peak, self.held.size + sum(rows.nbytes for rows in fresh))
            self.log.add(self.name(), self.held)

    def name(self) -> str:
        return f"batch {self.number}"

    def tick(self, now: int, watermark: int | None = None) -> Iterator[Emission]:
        yield from self.release()

    def pending(self) -> bool:
        return self.held is not None

    def memory(self) -> int:
        return max(self.peak, self.held.size if self.held else 0)

    def changes(self) -> Changes:
        self.peak = 0
        return self.log.take()

    def head(self) -> bytes:
        return json.dumps([self.number, self.count]).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        self.number, self.count = json.loads(head)
        self.held = chunks.get(self.name())

    def metrics(self) -> Mapping[str, float]:
        return {"held": self.count}


class DropsOneRow(Delay):
    def emit(self, batches):
        for emission in super().emit(batches):
            yield Emission(RESULTS, emission.rows.slice(1)) if emission.rows.num_rows > 2 else emission


class RepeatsAfterRestore(Delay):
    restored = False

    def restore(self, head, chunks):
        super().restore(head, chunks)
        self.restored = True

    def release(self):
        if self.restored and self.held is not None:
            yield from self.emit(list(pa.ipc.open_stream(self.held)))
        self.restored = False
        yield from super().release()


class ForgetsInRestore(Delay):
    def restore(self, head, chunks):
        self.number, self.count = json.loads(head)


class ForgetsInALongRun(Delay):
    def restore(self, head, chunks):
        super().restore(head, chunks)
        if self.number > 9:
            self.held = None


class RewritesChunk(Delay):
    def name(self):
        return "held"


class HoldsMoreThanItSays(Delay):
    def __init__(self, room):
        super().__init__(room)
        self.seen = []

    def emit(self, batches):
        self.seen += batches
        yield from super().emit(batches)


class HoldsMoreThanItMay(Delay):
    def __init__(self, room):
        super().__init__(10_000)


class DependsOnTheCut(Delay):
    def hold(self, fresh):
        super().hold(fresh[:1])


class DependsOnTheClock(Delay):
    def step(self, batch, now):
        for emission in super().step(batch, now):
            if now < 1_000_000_000 or emission.rows.num_rows != 1:
                yield emission


class DependsOnTheOrder(Delay):
    """Holds back whatever comes last: another row when the batch is run again."""

    def step(self, batch, now):
        yield from self.release()
        last = None
        for _, rows in batch:
            if rows.num_rows:
                if last is not None:
                    yield from self.emit([last])
                yield from self.emit([rows.slice(0, rows.num_rows - 1)])
                last = rows.slice(rows.num_rows - 1)
        self.hold([] if last is None else [last])


class KeepsStateElsewhere(Delay):
    """Remembers outside of its state what it has emitted, and does not again: but that run may have been lost."""

    def emit(self, batches):
        seen = self.room.__dict__.setdefault("seen", set())
        for number, emission in enumerate(super().emit(batches)):
            if (self.number, number) not in seen:
                yield emission
            seen.add((self.number, number))


class NeverPending(Delay):
    def pending(self):
        return False


@pytest.fixture(autouse=True)
def _no_shrinking():
    """That it is caught is enough here; the smallest example takes the longest to find."""
    before = settings()
    settings.register_profile("planted", before, phases=[Phase.generate])
    settings.load_profile("planted")
    yield
    settings.register_profile("before planted", before)
    settings.load_profile("before planted")


def case_of(kernel: type[Delay]) -> Case[int]:
    return Case(
        kernel.__name__,
        kernel,
        plans=st.sampled_from([0, 4, 2_000]).map(Room),
        make=kernel,
        inputs=lambda room: streams(SCHEMA, max_rows=12),
        twin=lambda room, portions: {RESULTS: side_of(portions, 0, SCHEMA)},
        # Each row that may be held, twice, and what is around them.
        budget=lambda room: 8_192 + 64 * room,
    )


def test_the_honest_kernel_passes():
    check(case_of(Delay), examples=25)


@pytest.mark.parametrize(
    ("kernel", "ask", "said"),
    [
        (DropsOneRow, equals_twin, "missing"),
        (DropsOneRow, every_prefix, "missing"),
        (NeverPending, equals_twin, "missing"),
        (NeverPending, every_prefix, "missing"),
        (DependsOnTheCut, any_cut, "cut in two ways"),
        (DependsOnTheClock, any_cut, "cut in two ways"),
        (RepeatsAfterRestore, after_restore, "after a restore.*differ"),
        (ForgetsInRestore, after_restore, "missing"),
        (RewritesChunk, after_restore, "wrote the chunk 'held' again"),
        (DependsOnTheOrder, after_restore, "run again from the same state"),
        (KeepsStateElsewhere, after_restore, "missing|no longer emits"),
        (HoldsMoreThanItSays, within_budget, "and said"),
        (HoldsMoreThanItMay, within_budget, "more than its budget"),
    ],
)
def test_fault_is_caught(kernel, ask, said):
    with pytest.raises((AssertionError, KernelFault), match=f"(?s){said}"):
        ask(case_of(kernel))


def test_a_fault_that_takes_many_steps_is_caught():
    case = replace(case_of(ForgetsInALongRun), plans=st.just(Room(2_000)))
    with pytest.raises(AssertionError, match="step 11 after a restore"):
        after_restore(case)


@pytest.mark.parametrize(
    ("kernel", "only"),
    [
        (RepeatsAfterRestore, after_restore),
        (DependsOnTheOrder, after_restore),
        (HoldsMoreThanItSays, within_budget),
        (HoldsMoreThanItMay, within_budget),
    ],
)
def test_no_other_question_would_catch_it(kernel, only):
    for ask in QUESTIONS.values():
        if ask is not only:
            ask(case_of(kernel), examples=12)


def test_a_case_that_makes_another_kernel_is_refused():
    with pytest.raises(KernelFault, match="is for Delay and makes a DropsOneRow"):
        equals_twin(Case("mixed", Delay, st.just(1), DropsOneRow, lambda room: streams(SCHEMA), lambda r, p: {}))
