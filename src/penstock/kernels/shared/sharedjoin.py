"""One window join for many queries."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import MemoryTooSmall, StateDamaged
from penstock.kernels.contract import SET_ASIDE, SET_ASIDE_SCHEMA, Batch, Changes, ChunkLog, Emission, Kernel, Metric
from penstock.kernels.shared.budget import QUERY, Budget
from penstock.kernels.shared.changes import Registrar
from penstock.kernels.shared.lwo import LWO
from penstock.kernels.shared.numbered import Numbered
from penstock.kernels.shared.pairing import Pairing, Where
from penstock.kernels.shared.queries import QuerySet
from penstock.kernels.shared.response import REPORTS
from penstock.kernels.shared.router import HELD, Router
from penstock.kernels.shared.scan import Rule, advance, first_partner, new_tally
from penstock.kernels.shared.scheduler import Scheduler
from penstock.kernels.shared.sending import Select, Sending
from penstock.kernels.shared.waiting import WAITING, Arrival, Waiting
from penstock.kernels.window.arrivals import Queue
from penstock.kernels.window.intake import Intake, aside
from penstock.kernels.window.shape import LATE, Shape
from penstock.kernels.window.windows import FAR, LEFT, RIGHT

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_FORMAT = 3
_SIDES = (LEFT, RIGHT)
_CHANGES = 2
#: Units of work between two looks at memory, where it is short.
_BRIEF = 10_000


class SharedJoin(Kernel):
    """Join two streams once for many queries, each with a window of its own.

    The rows of a step are put in order (by time, left before right, then by what they say) and wait for jobs; jobs are
    done in the order of the scheduler until the step's share of work is used up, and the rest goes on in the next
    step. A tick does all that is left.

    Guarantees
        Each query's stream is, in content and order, the one it would have alone: `test_conformance`. It is ordered
        by the later row of each pair, then from the newest partner to the oldest.
        A query that comes gets the pairs of rows that come from then on; one that goes, those of rows that came
        before: `test_queries_come_and_go`.
        Which results a step emits depends on state and rows alone, never on a clock.
        `memory()` at most `budget`: where work left over takes too much of it, it is done beyond the step's share,
        oldest rows first: `test_conformance`.
    State and cost
        The rows of the widest window, once for all queries, with `ENTRY` bytes each; `WAITING` bytes for each row with
        jobs left, `HELD` for each pair that waits for its turn. A row is scanned once, whatever the number of queries.
    Source
        004 §3 (LWO, SWF, Greedy; hash store §3.4), with queries added and removed as in §4.
    """

    reports: tuple[Metric, ...] = REPORTS

    def __init__(
        self,
        shape: Shape,
        windows: Mapping[str, int],
        scheduler: Scheduler,
        *,
        budget: int,
        times: tuple[str, str] | None = None,
        by_rows: bool = False,
        hashed: bool = True,
        where: Where | None = None,
        select: Mapping[str, Select] | None = None,
        units: int = FAR,
        says_changes: bool = True,
    ) -> None:
        self._shape = shape
        self._scheduler, self._relief = scheduler, LWO()
        self._times, self._by_rows, self._hashed = times, by_rows, hashed and bool(shape.on)
        self._says_changes = says_changes
        self._names = tuple(windows)
        self.budget = budget
        divided = Budget(budget, len(windows))
        self._room, self._most_pairs = divided.room, divided.most_pairs
        self._intake = Intake(shape, times, timed=not by_rows, gulp=self._room / 16)
        self._sides = tuple(Numbered(name, shape.sides[side]) for side, name in enumerate("lr"))
        self._queries = QuerySet(windows.items())
        self._registrar = Registrar(self._queries, shape.results, by_rows=by_rows)
        self._waiting = Waiting()
        self._router = Router()
        self._pairing = Pairing(shape, self._sides, self._waiting, divided, self._note, by_rows=by_rows, where=where)
        self._sending = Sending(shape, self._names, select or {}, self._pairing)
        self.channels = self._sending.channels | {SET_ASIDE: SET_ASIDE_SCHEMA}
        if not by_rows:
            self.channels |= {LATE[side]: shape.sides[side] for side in _SIDES}
        self._units = units
        self._watermark: int | None = None
        self._clock = 0
        self._stores = 0
        self._now = 0
        self._peak = 0.0
        self._counts: dict[str, float] = {}
        self._log = ChunkLog()
        self._start(0, None)

    # -- the contract ------------------------------------------------------------------------------------------

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Take in rows and changes, and do as much of the work as a step may."""
        self._start(now, batch.watermark)
        self._close()
        queue, changes = Queue(self._shape.sides, self._times is not None), []
        for side, rows in batch:
            if side == _CHANGES:
                changes.append(rows)
                continue
            self._counts["rows_in"] += rows.num_rows
            able = yield from self._intake.able(side, rows, self._watermark, self._counts)
            for part in self._intake.gulps(able):
                queue.add(side, part, self._intake.hashes(side, part), self._intake.event_times(side, part))
                yield from self._make_room(queue)
        yield from self._apply(changes)
        came = self._cost_of(queue)
        self._admit(queue)
        reserve = min(max(1.25 * came, self._room / 8), self._room / 2)
        yield from self._work(self._units, self._room - reserve)
        self._check_fits()

    def tick(self, now: int, watermark: int | None = None) -> Iterator[Emission]:
        """Do all work that is left."""
        self._start(now, watermark)
        yield from self._work(FAR, self._room)

    def pending(self) -> bool:
        """Whether rows have jobs left."""
        return len(self._waiting) > 0

    def memory(self) -> int:
        """Bytes held at the most since the last step began."""
        return math.ceil(max(self._peak, self._held()))

    def changes(self) -> Changes:
        """Rows that came and went, the queues, and the pairs that wait for their turn."""
        self._stores += 1
        for side in self._sides:
            side.rows.merge(self._room / 64, self._log)
            side.rows.store(self._stores, self._log, flags=False)
        self._queries.store(self._stores, self._log)
        self._waiting.store(self._stores, self._log)
        self._router.store(self._stores, self._log)
        return self._log.take()

    def head(self) -> bytes:
        """The queries, how far each has got, and where rows are."""
        said = {
            "format": _FORMAT,
            "stores": self._stores,
            "rows": self._arrived,
            "latest": [side.latest for side in self._sides],
            "slack": [side.slack for side in self._sides],
            "watermark": self._watermark,
            "clock": self._clock,
            "changes": self._registrar.head(),
            "queries": self._queries.head(),
            "waiting": self._waiting.head(),
            "router": self._router.head(),
            "sides": [side.rows.head() for side in self._sides],
        }
        return json.dumps(said).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Go on where the other stopped."""
        said = json.loads(head)
        if said["format"] != _FORMAT:
            raise StateDamaged(f"State of format {said['format']}; this version reads {_FORMAT}.")
        self._stores, self._clock = said["stores"], said["clock"]
        self._registrar.restore(said["changes"])
        self._watermark = said["watermark"]
        self._queries.restore(said["queries"], chunks)
        for number, side in enumerate(self._sides):
            side.count, side.latest, side.slack = (said[name][number] for name in ("rows", "latest", "slack"))
            side.rows.restore(said["sides"][number], chunks, partial(self._described, number))
        finished = min(self._queries.finished, sum(self._arrived))
        self._waiting.restore(said["waiting"], finished, chunks, self._begin)
        if not len(self._waiting):
            self._waiting.base = sum(self._arrived)
        outer, inner = self._router.restore(said["router"], chunks)
        if len(outer):
            self._router.take_in(self._pairing.measured(outer, inner), stored=True)
            self._waiting.count_found(outer)

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step."""
        said = self._counts | {
            "rows_waiting": sum(len(side) for side in self._sides),
            "unfinished": len(self._waiting),
            "held": len(self._router),
            "slice": self._units,
            "queries": len(self._queries),
            "rows_out": self._sending.rows_out,
            "memory": self.memory(),
            "budget": self.budget,
        }
        return said | self._sending.metrics()

    # -- coming ------------------------------------------------------------------------------------------------

    @property
    def _arrived(self) -> tuple[int, int]:
        return self._sides[LEFT].count, self._sides[RIGHT].count

    def _described(self, side: int, rows: pa.RecordBatch) -> tuple[npt.NDArray[np.uint64], I64]:
        """As a side keeps them: a window of rows goes by numbers alone."""
        moments = np.zeros(rows.num_rows, np.int64) if self._by_rows else self._intake.event_times(side, rows)
        return self._intake.hashes(side, rows), moments

    def _cost_of(self, queue: Queue) -> float:
        return queue.cost + WAITING * len(queue)

    def _make_room(self, queue: Queue) -> Iterator[Emission]:
        """A micro-batch that does not fit beside work left over has this done first; one that never fits is refused."""
        self._note(queue.cost)
        if self._cost() + self._cost_of(queue) <= self._room:
            return
        yield from self._work(FAR, self._room)
        if self._cost() + self._cost_of(queue) > self._room:
            over = self._cost() + self._cost_of(queue) - self._room
            raise MemoryTooSmall(
                f"A micro-batch does not fit beside the window: they need {over:.0f} bytes more than a slot has.",
                why="Its rows must be put in order before any of them is joined.",
                do="Give more memory, or smaller micro-batches: maxFilesPerTrigger, maxOffsetsPerTrigger.",
            )

    def _apply(self, portions: list[pa.RecordBatch]) -> Iterator[Emission]:
        for fault, change in self._registrar.apply(portions, self._arrived):
            if self._says_changes:
                yield from aside(change, np.zeros(1, np.bool_), fault, self._counts)

    def _admit(self, queue: Queue) -> None:
        """The rows of a step wait for jobs, in their order."""
        ready = [queue.take(side, ordered=True) for side in _SIDES]
        arrival = Arrival(sum(self._arrived), *self._arrived, self._clock)
        for side, came in zip(self._sides, ready, strict=True):
            side.admit(came, by_rows=self._by_rows)
        sides = np.repeat(np.array(_SIDES, np.uint8), [len(one.order) for one in ready])
        order = np.lexsort((sides, np.concatenate([one.order for one in ready])))
        self._waiting.came(self._stores, arrival, sides[order], self._begin, self._now)
        self._note()

    def _begin(self, sides: npt.NDArray[np.uint8], numbers: I64, before: I64) -> I64:
        """Where the scans of rows begin."""
        cursors = before - 1
        if self._hashed:
            for side in _SIDES:
                mine = np.flatnonzero(sides == side)
                found = np.empty(len(mine), np.int64)
                ours = self._sides[side].store()
                hashes = ours.hashes[numbers[mine] - ours.offset]
                first_partner(self._sides[1 - side].store(), hashes, before[mine], found)
                cursors[mine] = found
        return cursors

    # -- working -----------------------------------------------------------------------------------------------

    def _work(self, units: int, most: float) -> Iterator[Emission]:
        """So many units of work; more while rows and what they have found take more than `most` bytes."""
        if not len(self._queries):
            self._tidy()
        while len(self._waiting):
            short = self._cost() > most
            if units <= 0 and not short:
                break
            spent = yield from self._run(self._relief if short else self._scheduler, _BRIEF if short else units)
            units -= spent
            self._tidy()
        self._close()

    def _run(self, scheduler: Scheduler, units: int) -> Any:
        """A generator of what jobs released, that returns the units of work they took."""
        levels = self._queries.levels(scheduler)
        tally = new_tally(len(self._queries), self._clock, self._waiting.end, len(self._router))
        out = np.empty(self._most_pairs, np.int64), np.empty(self._most_pairs, np.int64)
        left, right = self._sides
        rule = Rule(self._hashed, self._by_rows, scheduler.early, left.slack, right.slack, 1, 1)
        found, spent = advance(left.store(), right.store(), self._waiting.outers(), levels, rule, tally, units, *out)
        self._queries.moved(levels)
        self._waiting.scanned(int(levels.done.max()))
        self._clock = int(tally.now[0])
        self._counts["work"] += spent
        queries = self._queries.all
        self._sending.worked(queries, tally)
        outer, inner = (column[:found] for column in out)
        self._router.take_in(self._pairing.holding(self._pairing.measured(outer, inner)))
        self._note(100.0 * found)
        waiting, early = self._waiting, scheduler.early
        ready = [self._router.ready(query, waiting.sides, waiting.base, early=early) for query in queries]
        yield from self._sending.send(queries, ready, self._router.held, self._waited)
        return spent

    def _waited(self, rows: I64) -> I64:
        return np.maximum(self._now - self._waiting.came_at(rows), 0)

    def _tidy(self) -> None:
        """Let go of what nobody waits for any more."""
        self._queries.retire()
        self._router.let_go(self._queries, self._log)
        self._waiting.finish(self._queries.finished, self._log)
        # Scans count what they find; what does not hold, or has left, is no result that waits.
        self._waiting.count_found(self._router.held.outer)

    # -- going -------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Rows that no row to come and none with jobs left can meet."""
        for number, side in enumerate(self._sides):
            self._counts["rows_expired"] += side.rows.drop_front(self._closed(number), self._log)

    def _closed(self, side: int) -> Callable[[I64, I64], Mask]:
        if not len(self._queries) and not len(self._waiting):
            # A query that comes later gets pairs of rows that come later.
            return lambda moments, numbers: np.ones(len(moments), np.bool_)
        widest = self._queries.widest
        mine, theirs = (np.flatnonzero(self._waiting.sides == one) for one in (side, 1 - side))
        first = int(self._waiting.numbers[mine[0]]) if len(mine) else FAR
        if self._by_rows:
            seen = int(self._waiting.before[theirs].min(initial=self._sides[side].count))
            return lambda moments, numbers: (numbers < first) & (numbers + widest < seen)
        if self._watermark is None:
            return lambda moments, numbers: np.zeros(len(moments), np.bool_)
        moments = self._sides[1 - side].moments(self._waiting.numbers[theirs])
        least = int(moments.min(initial=self._watermark)) - widest
        return lambda moments, numbers: (numbers < first) & (moments < least)

    def _check_fits(self) -> None:
        if self._cost() + self._room / 8 <= self._room:
            return
        for side in _SIDES:
            rows = self._sides[side].rows
            closed = self._closed(side)(rows.column("moments"), rows.column("numbers"))
            # Only from the front: rows are found by their numbers.
            count = int(np.argmin(closed)) if not closed.all() else len(closed)
            if count:
                self._counts["rows_expired"] += count
                rows.keep(np.arange(len(rows)) >= count, self._log)
        over = self._cost() + self._room / 8 - self._room
        if over > 0:
            widest = self._queries.all[-1]
            raise MemoryTooSmall(
                f"The window of query {widest.name!r} does not fit: {sum(map(len, self._sides)):,} waiting rows need "
                f"{self._cost():.0f} bytes, {over:.0f} more than a slot has for them.",
                why="No row goes before it leaves the widest window, so that every query gets all of its results.",
                do="Give more memory, or remove that query.",
            )

    # -- what is known -----------------------------------------------------------------------------------------

    def _start(self, now: int, watermark: int | None) -> None:
        self._counts = {metric.name: 0.0 for metric in REPORTS if not metric.is_family}
        self._sending.start(self._queries.all)
        self._now = now
        known = [mark for mark in (watermark, self._watermark) if mark is not None]
        self._watermark = max(known, default=None)
        self._peak = self._held()

    def _cost(self) -> float:
        """What is held, counted so that it depends on rows and work alone."""
        rows = sum(side.rows.cost for side in self._sides)
        waiting = WAITING * len(self._waiting) + HELD * len(self._router)
        return rows + waiting + QUERY * self._extra() + self._queries.selected

    def _extra(self) -> int:
        return max(len(self._queries) - len(self._names), 0)

    def _held(self) -> float:
        held = sum(side.rows.nbytes for side in self._sides) + self._waiting.nbytes + self._router.nbytes
        return held + self._queries.nbytes

    def _note(self, beside: float = 0) -> None:
        self._peak = max(self._peak, self._held() + beside)
