"""The window join of two streams under a memory budget."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import MemoryTooSmall, StateDamaged
from penstock.kernels.contract import (
    RESULTS,
    Batch,
    Changes,
    ChunkLog,
    Emission,
    Kernel,
)
from penstock.kernels.measure import measure, runs
from penstock.kernels.window import notes
from penstock.kernels.window.arrivals import Queue, Ready
from penstock.kernels.window.chains import Probes
from penstock.kernels.window.estimates import FRESH, Given
from penstock.kernels.window.evict import COMPETING, SCORING, Contest, decide, with_spare
from penstock.kernels.window.ghosts import Gone
from penstock.kernels.window.intake import Intake
from penstock.kernels.window.judgement import Judgement
from penstock.kernels.window.outer import Lonely
from penstock.kernels.window.pairing import Coming, Pairing, Where
from penstock.kernels.window.policy import Policy
from penstock.kernels.window.recall import SHARE as RECALL
from penstock.kernels.window.recall import Recall
from penstock.kernels.window.reports import REPORTS
from penstock.kernels.window.shape import Shape
from penstock.kernels.window.side import SideRows
from penstock.kernels.window.windows import FAR, LEFT, RIGHT, Clock, Window

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: The least budget of a slot.
LEAST_BUDGET = 64 << 10
_SLICE_BYTES = 5 << 19
#: Bytes that a row of the step takes up while results are made: hash, time, order, moment, number and place.
_BOOKS = 48
_FORMAT = 1
_SIDES = (LEFT, RIGHT)
_NAMES = ("left", "right")


class WindowJoin(Kernel):
    """Join of two streams over a window: exact while memory suffices, else what the policy thinks worth keeping.

    The rows of a step are put in an order of their own making (by time, then by what they say), each meets the rows of
    the other side that came before it, and at the end of the step rows go until the rest fits the budget: first those
    that have left the window, then those with the lowest scores. With `fixed` allocation each side has half.

    Guarantees
        With `Exact`, all pairs of the window join, each once, however rows were cut or (within the lateness) ordered;
        NULL and NaN keys join nothing and are counted: `test_conformance`.
        With another policy, some of them; and the archive says which: a pair was produced if and only if both rows were
        in memory in the same step: `test_live_and_missing_pairs_are_the_join`.
        An outer row is a result when it leaves the window, if it is certain that no partner was missed.
        `memory()` at most `budget`: `test_conformance`. Restarted with less of it, what does not fit goes before the
        first rows come: `test_rows_that_a_smaller_budget_has_no_room_for_go_before_rows_come`.
    State and cost
        Waiting rows with `ENTRY` bytes each (`SIZED` more where they differ in size), the rows of a step (they and a
        copy in order), key counts; what is left of the budget is for results on their way. A chunk for the rows of each
        step and side. A step costs its rows and results; under a policy that lets rows go their blocks are laid
        together, and when rows must go all are scored once, and a tenth of the memory is freed at the least.
    Source
        002 §2.1 (fast CPU, integrated; where a step is larger than its share of the budget, slow CPU, modular).
    """

    reports = REPORTS

    def __init__(
        self,
        shape: Shape,
        window: Window,
        policy: Policy,
        *,
        budget: int,
        times: tuple[str, str] | None = None,
        fixed: bool = False,
        where: Where | None = None,
        archive: bool = False,
        estimator: int | None = None,
        half_life: float | None = None,
        probabilities: tuple[Given | None, Given | None] = (None, None),
        slot: int = 0,
        seed: int = 0,
    ) -> None:
        self._shape, self._window, self._times = shape, window, times
        self._fixed, self._archive, self._slot = fixed, archive, slot
        #: Of inner joins the archive need not know when windows are closed.
        self._notes_ahead = archive and window.timed and shape.how != "inner"
        self.budget = budget
        self._slice = min(_SLICE_BYTES, budget // 8)
        each = (budget // 32 if estimator is None else estimator // 2) if policy.lossy else 0
        beside = self._slice + 2 * max(each, 4096) + budget * RECALL if policy.lossy else self._slice
        self._room = (budget - beside) * 15 / 16
        if budget < LEAST_BUDGET or self._room < budget / 4:
            raise MemoryTooSmall(
                f"{budget} bytes cannot hold a window.",
                why=f"{beside:.0f} of them are for key counts and results.",
                do=f"Give each slot at least {max(LEAST_BUDGET, 8 * each)} bytes, or the estimator fewer.",
            )
        self.channels = shape.channels(late=times is not None and window.timed, archive=archive)
        #: Rows are taken in by so much at once; the sixteenth is for that.
        self._intake = Intake(shape, times, timed=window.timed, gulp=self._room / 16)
        self._pairing = Pairing(shape, window, where)
        self._sides = tuple(SideRows(_NAMES[side][0], shape.sides[side]) for side in _SIDES)
        life = half_life or 8.0 * max(window.span(LEFT), window.span(RIGHT))
        self._judgement = Judgement(
            policy, shape, window, self._intake, counts=each, half_life=life, given=probabilities, seed=seed
        )
        self._lossy = policy.lossy
        # While rows are taken in, a gulp and most of the slice are free.
        each_row = _BOOKS + max(side.entry for side in self._sides) + FRESH * policy.lossy
        self._taking_in = (each_row, self._room / 15 + self._slice * 3 / 4)
        self._recall = Recall(window, budget * RECALL)
        self._lonely = Lonely(window)
        self._step = 0
        self._stores = 0
        self._clock = Clock(None, (-FAR, -FAR), (0, 0))
        self._share = self._room / 2
        self._owes = False
        self._peak = 0.0
        self._counts: dict[str, float] = {}
        self._log = ChunkLog()

    # -- the contract ------------------------------------------------------------------------------------------

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Take in the rows, let each meet those before it, and let go of what does not fit."""
        self._begin(batch.watermark)
        yield from self._close()
        yield from self._fit()
        # Also where no row came to this slot: those of others move the watermark.
        self._owes = True
        queue = Queue(self._shape.sides, self._times is not None, *self._taking_in)
        # What the window does not need yet is room for a burst.
        self._share = self._room - self._cost()
        size, count, latest = 0.0, 0, [-FAR, -FAR]
        for side, rows in batch:
            self._counts["rows_in"] += rows.num_rows
            if self._notes_ahead:
                latest[side] = max(latest[side], self._intake.latest(side, rows))
            keyless = self._alone if self._shape.outer(side) else None
            able = yield from self._intake.able(side, rows, self._clock.watermark, self._counts, keyless)
            for part in self._intake.gulps(able):
                queue.add(side, part, self._intake.hashes(side, part), self._intake.event_times(side, part))
                size, count = size + measure(part), count + part.num_rows
                self._note(queue.cost)
                if queue.cost > self._share:
                    yield from self._overflow(queue)
        if queue.overflowed:
            yield from self._shed(queue)
            self._counts["missed_estimate"] += self._recall.look_back(self._sides, self._log)
        yield from self._meet(queue)
        if self._notes_ahead:
            yield from self._note_ahead(latest)
        if not self._window.timed:
            # Rows that came have pushed others out of the window: results of an outer join, before any row must go.
            yield from self._close()
        yield from self._settle(queue.cost_with(size, count), self._step)
        self._step += 1

    def tick(self, now: int, watermark: int | None = None) -> Iterator[Emission]:
        """Rows that left the window since, and never met a partner."""
        self._begin(watermark)
        yield from self._close()
        self._owes = False

    def pending(self) -> bool:
        """Whether outer rows may have become results by the last step."""
        return self._owes and self._shape.how != "inner"

    def memory(self) -> int:
        """Bytes held at the most since the last step began."""
        return math.ceil(max(self._peak, self._held()))

    def changes(self) -> Changes:
        """The rows of this step that stay, those put together, and which are gone."""
        self._stores += 1
        for side in _SIDES:
            self._sides[side].merge(self._room / 64, self._log)
            self._sides[side].store(self._stores, self._log, flags=self._shape.outer(side))
        self._judgement.store(self._stores, self._log)
        self._recall.store(self._stores, self._log)
        return self._log.take()

    def head(self) -> bytes:
        """How far both streams have come, and where their rows are."""
        said = {
            "format": _FORMAT,
            "step": self._step,
            "stores": self._stores,
            "clock": [self._clock.watermark, self._clock.latest, self._clock.rows],
            "hidden": self._lonely.hidden,
            "owes": self._owes,
            "sides": [side.head() for side in self._sides],
            **self._judgement.head(),
            **self._recall.head(),
        }
        return json.dumps(said).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Take up both streams where they were left."""
        said = json.loads(head)
        if said["format"] != _FORMAT:
            raise StateDamaged(f"State of format {said['format']}; this version reads {_FORMAT}.")
        watermark, latest, rows = said["clock"]
        self._clock = Clock(watermark, tuple(latest), tuple(rows))
        self._step, self._stores = said["step"], said["stores"]
        self._lonely.hidden = said["hidden"]
        self._owes = said["owes"]
        for side in _SIDES:
            self._sides[side].restore(said["sides"][side], chunks, partial(self._described, side))
        self._judgement.restore(said, chunks)
        self._recall.restore(said, chunks)

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step."""
        return self._counts | {
            "rows_waiting": sum(len(side) for side in self._sides),
            "recall_estimate": self._recall.estimate(),
            "model_left": self._judgement.policy.model(LEFT),
            "model_right": self._judgement.policy.model(RIGHT),
            "memory_left": self._sides[LEFT].nbytes,
            "memory_right": self._sides[RIGHT].nbytes,
            "memory": self.memory(),
            "budget": self.budget,
        }

    # -- coming ------------------------------------------------------------------------------------------------

    def _overflow(self, queue: Queue) -> Iterator[Emission]:
        """More rows than the queue may hold: in rounds where nothing depends on their order, else some are shed."""
        if self._window.timed and not self._lossy and not self._archive:
            yield from self._meet(queue)
            self._check_fits()
        elif self._window.timed and self._lossy:
            yield from self._shed(queue)
        else:
            raise MemoryTooSmall(
                f"A micro-batch is larger than the {self._share:.0f} bytes that a slot has for it.",
                why="Rows must be put in order before they are counted or numbered.",
                do="Give more memory, or smaller micro-batches: maxFilesPerTrigger, maxOffsetsPerTrigger.",
            )

    def _shed(self, queue: Queue) -> Iterator[Emission]:
        for side, ready, prints in queue.shed(self._share, self._queue_scores):
            if not ready.rows.num_rows:
                continue
            self._counts["rows_shed"] += ready.rows.num_rows
            moments = self._window.moments(ready.times)
            self._lonely.hide(side, moments)
            self._recall.shed(side, ready.hashes, moments, prints)
            self._note(queue.cost)
            if self._archive:
                yield notes.arrived(self._shape, side, ready, self._slot, self._step, None)

    def _queue_scores(self, side: int, ready: Ready) -> F64:
        return self._judgement.scores(self._judgement.coming(side, ready, self._clock), self._step)

    def _meet(self, queue: Queue) -> Iterator[Emission]:
        """Each row of the queue meets those of the other side that came before it; all of them wait then."""
        ordered = self._lossy or self._archive or not self._window.timed
        ready = [queue.take(side, ordered=ordered) for side in _SIDES]
        had = self._clock.rows
        counts = tuple(had[side] + ready[side].rows.num_rows for side in _SIDES)
        if ordered:
            before = [
                had[RIGHT] + np.searchsorted(ready[RIGHT].order, ready[LEFT].order, side="left"),
                had[LEFT] + np.searchsorted(ready[LEFT].order, ready[RIGHT].order, side="right"),
            ]
        else:
            # As if all left rows came after all right ones: which came first does not matter here.
            before = [np.full(len(r.hashes), n) for r, n in zip(ready, (counts[RIGHT], had[LEFT]), strict=True)]
        latest = tuple(max(self._clock.latest[side], int(ready[side].times.max(initial=-FAR))) for side in _SIDES)
        self._clock = Clock(self._clock.watermark, latest, counts)  # type: ignore[arg-type]
        first, entered = [], []
        for side in _SIDES:
            self._judgement.learn(side, ready[side], had[side], self._clock)
            numbers = np.arange(had[side], counts[side])
            moments = self._window.moments(ready[side].times)
            entered.append(moments)
            first.append(self._sides[side].admit(ready[side].rows, ready[side].hashes, moments, numbers)[0])
            if self._archive and len(numbers):
                places = (numbers, before[side])
                yield notes.arrived(self._shape, side, ready[side], self._slot, self._step, places)
        books = _BOOKS * sum(len(one.hashes) for one in ready)
        self._note(books)
        if self._lossy:
            # All rows are looked at in every step, so they may as well be copied: fewer blocks make results quicker.
            for rows in self._sides:
                self._note(books + rows.lay_together(self._free(books)))
        for side in _SIDES:
            probes = Probes(ready[side].hashes, entered[side], before[side])
            if self._lossy:
                self._counts["missed_estimate"] += self._recall.arrived(side, probes)
            coming = Coming(side, ready[side].rows, first[side])
            note = lambda used: self._note(books + used)  # noqa: E731
            for pairs in self._pairing.results(coming, probes, self._sides, self._free(books), note):
                yield self._result(pairs)

    def _note_ahead(self, latest: list[int]) -> Iterator[Emission]:
        """Tell the archive how far event time has come, where it has no row that says so."""
        for side in _SIDES:
            if latest[side] > self._clock.latest[side]:
                yield notes.ahead(side, self._slot, latest[side])

    def _result(self, rows: pa.RecordBatch) -> Emission:
        self._counts["rows_out"] += rows.num_rows
        self._recall.produced += rows.num_rows
        return Emission(RESULTS, rows)

    def _alone(self, side: int, rows: pa.RecordBatch) -> Iterator[Emission]:
        if rows.num_rows:
            self._counts["rows_without_partner"] += rows.num_rows
            yield self._result(self._shape.alone(side, rows))

    # -- going -------------------------------------------------------------------------------------------------

    def _close(self) -> Iterator[Emission]:
        """Rows that can meet no partner any more: results of an outer join, and then gone."""
        self._recall.close(self._clock, self._log)
        for side in _SIDES:
            rows = self._sides[side]
            if self._shape.outer(side):
                yield from self._close_outer(side)
            before = len(rows)
            rows.drop_front(partial(self._closed, side), self._log)
            self._counts["rows_expired"] += before - len(rows)

    def _closed(self, side: int, moments: I64, numbers: I64) -> Mask:
        return self._window.closed(side, moments, numbers, self._clock)

    def _close_outer(self, side: int) -> Iterator[Emission]:
        rows = self._sides[side]
        certain, missed = self._lonely.leaving(side, rows, self._clock)
        for begin, end in runs(rows.column("sizes")[certain - rows.first] / 8, self._slice / 2):
            yield from self._alone(side, rows.take(certain[begin:end]))
        if self._archive and len(missed):
            numbers = rows.column("numbers")[missed - rows.first]
            yield notes.left(side, numbers, self._slot, self._step, "unsettled")

    def _fit(self) -> Iterator[Emission]:
        """After a restart with less memory, or another policy: what there is no room for goes before rows come."""
        self._recall.fit(self._log)
        if self._cost() > self._room - self._least_share:
            yield from self._settle(0.0, self._step - 1)
        # What a restart took over and no room is for has gone by now, closed or evicted.
        self._peak = self._held()

    @property
    def _least_share(self) -> float:
        """Bytes that are kept free for the rows of the next step: rows that are counted cannot be shed."""
        return self._room / 2 if self._lossy and not self._window.timed else self._room / 8

    def _settle(self, came: float, last: int) -> Iterator[Emission]:
        """Let go until the rest fits, with as much kept free as the next step may need.

        `last` is the last step in which those that go were there.
        """
        if not self._lossy:
            self._check_fits()
            return
        limit = self._room - min(max(1.25 * came, self._least_share), self._room / 2)
        pools: tuple[tuple[int, ...], ...] = ((LEFT,), (RIGHT,)) if self._fixed else (_SIDES,)
        for pool in pools:
            allowed = limit / len(pools)
            excess = sum(self._sides[side].cost for side in pool) - allowed
            if excess > 0:
                free = with_spare(excess, allowed, sum(len(self._sides[side]) for side in pool))
                yield from self._evict(pool, free, last)

    def _evict(self, pool: tuple[int, ...], free: float, last: int) -> Iterator[Emission]:
        rows = sum(len(self._sides[side]) for side in pool)
        at_once = max(int(self._free(COMPETING * rows) / SCORING), 16)
        contest = [Contest(side, self._sides[side], self._judgement, self._clock, self._step, at_once) for side in pool]
        self._note(COMPETING * rows + SCORING * min(at_once, rows))
        decide(contest, free)
        goes = [one.gone for one in contest]
        del contest
        for side, gone in zip(pool, goes, strict=True):
            waiting = self._sides[side]
            went = Gone(*(waiting.column(name)[gone] for name in ("hashes", "moments", "numbers")))
            closed = self._window.closed(side, went.moments, went.numbers, self._clock)
            self._counts["rows_expired"] += int(closed.sum())
            self._counts["rows_evicted"] += len(closed) - int(closed.sum())
            if not closed.all():
                went = went.where(~closed)
                life = self._window.life(side, went.moments, went.numbers, self._clock)
                self._lonely.hide(side, went.moments)
                self._recall.evicted(side, went, self._log)
                self._judgement.policy.departed(side, self._window.span(side) - life)
                if self._archive:
                    yield notes.left(side, went.numbers, self._slot, last, "evicted")
            if gone.any():
                waiting.keep(~gone, self._log)

    def _check_fits(self) -> None:
        held = self._cost()
        if held + self._room / 8 > self._room:
            for side in _SIDES:
                rows = self._sides[side]
                closed = self._window.closed(side, rows.column("moments"), rows.column("numbers"), self._clock)
                if closed.any():
                    self._counts["rows_expired"] += int(closed.sum())
                    rows.keep(~closed, self._log)
            held = self._cost()
        if held + self._room / 8 > self._room:
            raise MemoryTooSmall(
                f"The window does not fit: {sum(len(s) for s in self._sides):,} waiting rows need {held:.0f} bytes "
                f"of a slot that has {self._room * 7 / 8:.0f} for them.",
                why='The policy "exact" lets no row go before it leaves the window.',
                do='Give more memory or a shorter window, or a policy that chooses: policy="prob".',
            )

    # -- the books -----------------------------------------------------------------------------------------

    def _described(self, side: int, rows: pa.RecordBatch) -> tuple[U64, I64]:
        """As a side keeps them."""
        return self._intake.hashes(side, rows), self._window.moments(self._intake.event_times(side, rows))

    def _begin(self, watermark: int | None) -> None:
        self._counts = dict.fromkeys((metric.name for metric in self.reports), 0.0)
        self._peak = self._held()
        known = [mark for mark in (watermark, self._clock.watermark) if mark is not None]
        self._clock = self._clock._replace(watermark=max(known, default=None))

    def _cost(self) -> float:
        """Bytes that waiting rows take up at the most."""
        return sum(side.cost for side in self._sides)

    def _held(self) -> float:
        held = sum(side.nbytes for side in self._sides) + self._judgement.memory()
        return held + self._recall.nbytes

    def _free(self, used: float) -> float:
        """Bytes for work beside those that are held or used: what nothing else needs at the moment, a slice at most."""
        return min(max(self.budget * 15 / 16 - self._held() - used, self._slice / 4), _SLICE_BYTES)

    def _note(self, beside: float = 0) -> None:
        self._peak = max(self._peak, self._held() + beside)
