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
from penstock.kernels.contract import (
    SET_ASIDE,
    SET_ASIDE_SCHEMA,
    Batch,
    Changes,
    ChunkLog,
    Emission,
    Kernel,
    Metric,
)
from penstock.kernels.measure import runs
from penstock.kernels.shared.lwo import LWO
from penstock.kernels.shared.queries import CHANGES, Query, QuerySet
from penstock.kernels.shared.response import Response, metrics_of
from penstock.kernels.shared.router import HELD, Pairs, Router
from penstock.kernels.shared.scan import Rule, Store, advance, first_partner, new_tally
from penstock.kernels.shared.scheduler import Scheduler
from penstock.kernels.shared.waiting import WAITING, Arrival, Waiting
from penstock.kernels.window.arrivals import Queue, Ready
from penstock.kernels.window.intake import Intake, aside
from penstock.kernels.window.shape import LATE, Shape, truths
from penstock.kernels.window.side import SideRows
from penstock.kernels.window.windowjoin import LEAST_BUDGET
from penstock.kernels.window.windows import FAR, LEFT, RIGHT
from penstock.tables.keys import equal_keys, injective

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Where = Callable[[pa.RecordBatch, pa.RecordBatch], Any]
Select = Callable[[pa.RecordBatch], Any]

#: Results of queries that were not there at the beginning, with the name of each.
ADDED = "added"
#: Bytes for each query beside rows: what its response times are counted with.
QUERY = 4096
_SLICE_BYTES = 5 << 19
_FORMAT = 1
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
        self._shape, self._where, self._select = shape, where, dict(select or {})
        self._scheduler, self._relief = scheduler, LWO()
        self._times, self._by_rows, self._hashed = times, by_rows, hashed and bool(shape.on)
        self._says_changes = says_changes
        self._names = tuple(windows)
        self.budget = budget
        self._slice = min(_SLICE_BYTES, budget // 8)
        self._room = room_of(budget, len(windows))
        if budget < LEAST_BUDGET or self._room < budget / 4:
            raise MemoryTooSmall(
                f"{budget} bytes cannot hold the window of {len(windows)} queries.",
                why=f"{self._slice} of them are for results, and {QUERY} for each query.",
                do=f"Give each slot at least {least_budget(len(windows))} bytes.",
            )
        self._gulp = self._room / 16
        self._most_pairs = max(min(65_536, self._slice // 256), 16)
        self._intake = Intake(shape, times, timed=not by_rows, gulp=self._gulp)
        added = pa.schema([pa.field("query", pa.string()), *shape.results])
        self.channels = dict.fromkeys(windows, shape.results) | {ADDED: added, SET_ASIDE: SET_ASIDE_SCHEMA}
        if not by_rows:
            self.channels |= {LATE[side]: shape.sides[side] for side in _SIDES}
        self.reports = reports_of(self._names)
        types = [shape.left.field(name).type for name in shape.keys[LEFT]]
        self._verify = bool(types) and not injective(types)
        self._sides = tuple(SideRows(name, shape.sides[side]) for side, name in enumerate("lr"))
        self._queries = QuerySet(windows.items())
        self._waiting = Waiting()
        self._router = Router()
        self._units = units
        self._rows = (0, 0)
        self._latest = (-FAR, -FAR)
        self._slack = (0, 0)
        self._watermark: int | None = None
        self._clock = 0
        self._version = -1
        self._stores = 0
        self._now = 0
        self._peak = 0.0
        self._counts: dict[str, float] = {}
        self._responses: dict[str, Response] = {}
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
            side.merge(self._room / 64, self._log)
            side.store(self._stores, self._log, flags=False)
        begun = max((query.done for query in self._queries.all), default=self._waiting.base)
        self._waiting.store(self._stores, begun, self._log)
        self._router.store(self._stores, self._log)
        return self._log.take()

    def head(self) -> bytes:
        """The queries, how far each has got, and where rows are."""
        said = {
            "format": _FORMAT,
            "stores": self._stores,
            "rows": self._rows,
            "latest": self._latest,
            "slack": self._slack,
            "watermark": self._watermark,
            "clock": self._clock,
            "version": self._version,
            "queries": self._queries.head(),
            "waiting": self._waiting.head(),
            "router": self._router.head(),
            "sides": [side.head() for side in self._sides],
        }
        return json.dumps(said).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Go on where the other stopped."""
        said = json.loads(head)
        if said["format"] != _FORMAT:
            raise StateDamaged(f"State of format {said['format']}; this version reads {_FORMAT}.")
        self._stores, self._clock, self._version = said["stores"], said["clock"], said["version"]
        self._watermark = said["watermark"]
        self._rows, self._latest, self._slack = (tuple(said[name]) for name in ("rows", "latest", "slack"))
        self._queries.restore(said["queries"])
        for side in _SIDES:
            self._sides[side].restore(said["sides"][side], chunks, partial(self._described, side))
        finished = min(self._queries.finished, sum(self._rows))
        self._waiting.restore(said["waiting"], finished, chunks, self._begin)
        if not len(self._waiting):
            self._waiting.base = sum(self._rows)
        outer, inner = self._router.restore(said["router"], chunks)
        if len(outer):
            self._router.take_in(self._measured(outer, inner), stored=True)
            self._waiting.count_found(outer)

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step."""
        said = self._counts | {
            "rows_waiting": sum(len(side) for side in self._sides),
            "unfinished": len(self._waiting),
            "held": len(self._router),
            "slice": self._units,
            "queries": len(self._queries),
            "memory": self.memory(),
            "budget": self.budget,
        }
        for name in (*self._names, ADDED):
            said |= self._responses[name].numbers(name)
        return said

    # -- coming ------------------------------------------------------------------------------------------------

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
        """Queries come and go, in the order of their versions; a change that makes no sense is set aside."""
        rows = [row for part in portions for row in part.to_pylist()]
        for row in sorted(rows, key=lambda row: row["version"] if row["version"] is not None else -1):
            fault = self._fault(row)
            if fault is None:
                self._version = row["version"]
                if row["op"] == "add":
                    self._queries.add(row["query"], row["window"], sum(self._rows), self._rows)
                else:
                    self._queries.remove(row["query"], sum(self._rows))
            elif self._says_changes and fault:
                one = pa.RecordBatch.from_pylist([row], schema=CHANGES)
                yield from aside(one, np.zeros(1, np.bool_), fault, self._counts)
        self._queries.retire()

    def _fault(self, row: Mapping[str, Any]) -> str | None:
        """Why a change makes no sense; nothing where it was applied before."""
        if row["version"] is None or row["query"] is None:
            return "a change needs a version and a query"
        if row["version"] <= self._version:
            return ""
        standing = self._queries.standing(row["query"])
        if row["op"] == "remove":
            return None if standing else "there is no query of this name to remove"
        if row["op"] != "add":
            return "a change is add or remove"
        if row["unit"] != ("rows" if self._by_rows else "us") or not 0 < (row["window"] or 0) < FAR:
            return "its window is not of the kind of the others"
        return "there is a query of this name" if standing else None

    def _admit(self, queue: Queue) -> None:
        """The rows of a step wait for jobs, in their order."""
        ready = [queue.take(side, ordered=True) for side in _SIDES]
        arrival = Arrival(sum(self._rows), *self._rows, self._clock)
        had = self._rows
        self._rows = tuple(had[side] + ready[side].rows.num_rows for side in _SIDES)
        for side in _SIDES:
            self._enter(side, ready[side], had[side])
        sides = np.repeat(np.array(_SIDES, np.uint8), [len(one.order) for one in ready])
        order = np.lexsort((sides, np.concatenate([one.order for one in ready])))
        self._waiting.came(self._stores, arrival, sides[order], self._begin, self._now)
        self._note()

    def _enter(self, side: int, ready: Ready, first: int) -> None:
        if not ready.rows.num_rows:
            return
        moments = np.zeros_like(ready.times) if self._by_rows else ready.times
        self._sides[side].admit(ready.rows, ready.hashes, moments, np.arange(first, self._rows[side]))
        latest, slack = list(self._latest), list(self._slack)
        if not self._by_rows:
            slack[side] = max(slack[side], latest[side] - int(moments.min()))
            latest[side] = max(latest[side], int(moments.max()))
        self._latest, self._slack = (latest[0], latest[1]), (slack[0], slack[1])

    def _begin(self, sides: npt.NDArray[np.uint8], numbers: I64, before: I64) -> I64:
        """Where the scans of rows begin."""
        cursors = before - 1
        if self._hashed:
            for side in _SIDES:
                mine = np.flatnonzero(sides == side)
                found = np.empty(len(mine), np.int64)
                ours = self._store(side)
                hashes = ours.hashes[numbers[mine] - ours.offset]
                first_partner(self._store(1 - side), hashes, before[mine], found)
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
        slack = (0, 0) if self._by_rows else self._slack
        rule = Rule(self._hashed, self._by_rows, scheduler.early, *slack, 1, 1)
        stores = self._store(LEFT), self._store(RIGHT)
        found, spent = advance(*stores, self._waiting.outers(), levels, rule, tally, units, *out)
        self._queries.moved(levels)
        self._clock = int(tally.now[0])
        self._counts["work"] += spent
        for at, query in enumerate(self._queries.all):
            self._responses[self._channel(query)].work(tally, at)
        outer, inner = (column[:found] for column in out)
        self._router.take_in(self._holding(self._measured(outer, inner)))
        self._note(100.0 * found)
        for query in self._queries.all:
            ready = self._router.ready(query, self._waiting.sides, self._waiting.base, early=scheduler.early)
            yield from self._send(query, ready)
        return spent

    def _tidy(self) -> None:
        """Let go of what nobody waits for any more."""
        self._queries.retire()
        self._router.let_go(self._queries, self._log)
        self._waiting.finish(self._queries.finished, self._log)

    def _store(self, side: int) -> Store:
        rows = self._sides[side]
        heads, nexts, hashes, moments, _, first = rows.entries()
        return Store(heads, nexts, hashes, moments, first, self._rows[side] - rows.end)

    def _numbers(self, outer: I64, inner: I64) -> tuple[I64, I64]:
        """The numbers of left and right rows of pairs."""
        at = outer - self._waiting.base
        own, left = self._waiting.numbers[at], self._waiting.sides[at] == LEFT
        return np.where(left, own, inner), np.where(left, inner, own)

    def _measured(self, outer: I64, inner: I64) -> Pairs:
        if self._by_rows:
            return Pairs(outer, inner, self._waiting.before[outer - self._waiting.base] - inner)
        numbers = self._numbers(outer, inner)
        stores = self._store(LEFT), self._store(RIGHT)
        left, right = (store.moments[which - store.offset] for store, which in zip(stores, numbers, strict=True))
        return Pairs(outer, inner, np.abs(left - right))

    def _holding(self, found: Pairs) -> Pairs:
        """Without candidates that have another key of the same hash, and those for which the condition is not true."""
        if not self._verify and self._where is None:
            return found
        holds = np.ones(len(found.outer), np.bool_)
        for begin, end, left, right in self._side_by_side(found):
            if self._verify:
                ours, theirs = self._shape.keys
                holds[begin:end] = equal_keys([left.column(n) for n in ours], [right.column(n) for n in theirs])
            if self._where is not None:
                holds[begin:end] &= truths(self._where(left, right), end - begin)
        return found.where(holds)

    def _side_by_side(self, pairs: Pairs) -> Iterator[tuple[int, int, pa.RecordBatch, pa.RecordBatch]]:
        """The rows of pairs, in runs that memory is kept free for."""
        for first in range(0, len(pairs.outer), self._most_pairs):
            last = first + self._most_pairs
            numbers = self._numbers(pairs.outer[first:last], pairs.inner[first:last])
            places = [which - (self._rows[side] - len(self._sides[side])) for side, which in enumerate(numbers)]
            sizes = [self._sides[side].column("sizes")[places[side]] for side in _SIDES]
            each = (sizes[LEFT].astype(np.float64) + sizes[RIGHT]) / 8 + 16
            for begin, end in runs(each, self._slice / 4):
                self._note(2 * float(each[begin:end].sum()))
                left, right = (self._taken(side, places[side][begin:end]) for side in _SIDES)
                yield first + begin, first + end, left, right

    def _taken(self, side: int, places: I64) -> pa.RecordBatch:
        """Rows in any order."""
        distinct, which = np.unique(places, return_inverse=True)
        return self._sides[side].take(distinct + self._sides[side].first).take(pa.array(which))

    def _channel(self, query: Query) -> str:
        return query.name if query.name in self._names else ADDED

    def _send(self, query: Query, pairs: Pairs) -> Iterator[Emission]:
        channel = self._channel(query)
        select = self._select.get(query.name)
        if len(pairs.outer):
            waited = np.maximum(self._now - self._waiting.came_at(pairs.outer), 0)
            self._responses[channel].waits(waited)
        for _, _, left, right in self._side_by_side(pairs):
            rows = self._shape.pairs(left, right)
            if select is not None:
                rows = rows.filter(pa.array(truths(select(rows), rows.num_rows)))
            if not rows.num_rows:
                continue
            self._responses[channel].results += rows.num_rows
            self._counts["rows_out"] += rows.num_rows
            if channel == ADDED:
                names = pa.array([query.name] * rows.num_rows, pa.string())
                rows = pa.RecordBatch.from_arrays([names, *rows.columns], schema=self.channels[ADDED])
            yield Emission(channel, rows)

    # -- going -------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Rows that no row to come and none with jobs left can meet."""
        for side in _SIDES:
            before = len(self._sides[side])
            self._sides[side].drop_front(self._closed(side), self._log)
            self._counts["rows_expired"] += before - len(self._sides[side])

    def _closed(self, side: int) -> Callable[[I64, I64], Mask]:
        widest = self._queries.widest
        mine, theirs = (np.flatnonzero(self._waiting.sides == one) for one in (side, 1 - side))
        first = int(self._waiting.numbers[mine[0]]) if len(mine) else FAR
        if self._by_rows:
            seen = int(self._waiting.before[theirs].min(initial=self._rows[side]))
            return lambda moments, numbers: (numbers < first) & (numbers + widest < seen)
        if self._watermark is None:
            return lambda moments, numbers: np.zeros(len(moments), np.bool_)
        other = self._store(1 - side)
        moments = other.moments[self._waiting.numbers[theirs] - other.offset]
        least = int(moments.min(initial=self._watermark)) - widest
        return lambda moments, numbers: (numbers < first) & (moments < least)

    def _check_fits(self) -> None:
        if self._cost() + self._room / 8 <= self._room:
            return
        for side in _SIDES:
            rows = self._sides[side]
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
        self._counts = dict.fromkeys((metric.name for metric in COMMON), 0.0)
        self._responses = {name: Response() for name in (*self._names, ADDED)}
        self._now = now
        known = [mark for mark in (watermark, self._watermark) if mark is not None]
        self._watermark = max(known, default=None)
        self._peak = self._held()

    def _cost(self) -> float:
        """What is held, counted so that it depends on rows and work alone."""
        rows = sum(side.cost for side in self._sides)
        return rows + WAITING * len(self._waiting) + HELD * len(self._router) + QUERY * self._extra()

    def _extra(self) -> int:
        return max(len(self._queries) - len(self._names), 0)

    def _held(self) -> float:
        held = sum(side.nbytes for side in self._sides) + self._waiting.nbytes + self._router.nbytes
        return held + QUERY * len(self._queries)

    def _note(self, beside: float = 0) -> None:
        self._peak = max(self._peak, self._held() + beside)


#: What is reported of the join as a whole.
COMMON = (
    Metric("rows_in", help="rows that arrived on both sides"),
    Metric("rows_late", help="rows older than the watermark; on channels late_left and late_right"),
    Metric("rows_without_key", help="rows whose key is NULL or NaN; they join nothing"),
    Metric("rows_set_aside", help="rows too large for the window, or without an event time; changes without sense"),
    Metric("rows_out", help="results of all queries"),
    Metric("rows_expired", help="rows that left the widest window"),
    Metric("rows_waiting", help="rows in memory after the step"),
    Metric("unfinished", help="rows that have scanned only a part of their windows, or nothing yet"),
    Metric("held", help="pairs that wait for their turn in a query's order"),
    Metric("work", help="units of work done: rows looked at, pairs found, rows begun"),
    Metric("slice", help="units of work that a step may do, over all slots"),
    Metric("queries", help="queries that share the join", combine="max"),
    Metric("memory", help="bytes held at the most, over all slots"),
    Metric("budget", help="bytes allowed, over all slots"),
)


def reports_of(names: tuple[str, ...]) -> tuple[Metric, ...]:
    """What a join for these queries reports."""
    return (*COMMON, *(metric for name in (*names, ADDED) for metric in metrics_of(name)))


def room_of(budget: int, queries: int) -> float:
    """Bytes of a slot's budget for rows and what waits with them; an eighth is kept free for those that come."""
    return (budget - min(_SLICE_BYTES, budget // 8) - QUERY * (queries + 1)) * 15 / 16


def least_budget(queries: int) -> int:
    """Bytes that a slot needs at the least.

    >>> least_budget(7) > LEAST_BUDGET
    True
    """
    return max(LEAST_BUDGET, 2 * QUERY * (queries + 1) + LEAST_BUDGET // 4)
