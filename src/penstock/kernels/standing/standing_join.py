"""The kernel of `StandingQueries`: rows of two sides, and very many queries that each want some of their pairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import OverBudget, StateDamaged
from penstock.kernels.contract import (
    RESULTS,
    SET_ASIDE,
    SET_ASIDE_SCHEMA,
    Batch,
    Changes,
    ChunkLog,
    Emission,
    Kernel,
    Metric,
)
from penstock.kernels.standing.held import Arrivals, Held
from penstock.kernels.standing.keys import KeyNumbers, compared
from penstock.kernels.standing.query_set import Change, QuerySet
from penstock.kernels.standing.query_table import Queries
from penstock.kernels.standing.reading import RowReader, joined, read_changes
from penstock.kernels.standing.refine import PIECE, Further, count, cut
from penstock.kernels.standing.results import Output, Results
from penstock.kernels.standing.router import DYNAMIC, Dynamic, Router, walked
from penstock.kernels.standing.search import I32, I64, RUN, Flags, Rows
from penstock.kernels.standing.shape import CHANGES, LEFT, RIGHT, Shape
from penstock.kernels.standing.state import change_blob, change_of, read_blob, row_blob, rows_of
from penstock.kernels.standing.strategies import BLOCK, Strategy
from penstock.models.standing_cost import Coefficients

LATE = ("late_left", "late_right")
_COMPACT_LEAST, _COMPACT_SHARE = 1_024, 4
#: Bytes of Python's own for a change, while it is made.
_CHANGE = 300


class StandingJoin(Kernel):
    """Answer every standing query about every new pair of rows, in time that depends on what is affected.

    Guarantees
        Every pair of a left and a right row that a query wants is reported for it once, when the later of the two
        arrives, if the earlier is still kept and the query stands then: equal to its naive twin, by the conformance
        suite. Changes to queries take effect before the rows of their micro-batch, whatever order they came in.
        With `within`, two rows are a pair only if their event times are at most that far apart, and a row is kept
        until the watermark says that no partner can come; rows behind the watermark go to `late_left` and
        `late_right`. With `keep`, a row is kept until that many newer ones of its side have come, in whole
        micro-batches. All strategies give the same results: `test_every_strategy_gives_the_same_results`.
    State and cost
        The queries with their indexes (see `query_set`), and the rows of both sides (see `held`). A step that would
        need more than the budget stops with `OverBudget`, which says how much it is.
        One chunk for each side and micro-batch; one for all queries, and one for the changes of each micro-batch,
        which are put together when they are a quarter of all.

    `load` gives the first queries; it is called once, when there is no stored state. A change to a band beyond
    `reach` is set aside. `tells_of` says which right rows are counted, set aside or called late here, where they go to
    several kernels. Paper: 003, chapter 4.

    >>> import pyarrow as pa
    >>> from penstock.kernels.standing.shape import SelectJoin
    >>> from penstock.testing import Host
    >>> from penstock.kernels.contract import Portion
    >>> supply = pa.record_batch({"product": [1], "offered": [70]})
    >>> demand = pa.record_batch({"product": [1, 1], "wanted": [65, 500]})
    >>> shape = SelectJoin((("product",), ("product",)), (("offered",), ("wanted",)))
    >>> queries = Queries(np.array([7]), np.array([[50.0, 100.0, 60.0, 99.0]]))
    >>> schemas = supply.schema, demand.schema
    >>> host = Host(lambda: StandingJoin(schemas, shape, lambda: queries, budget=1 << 22, keep=100))
    >>> host.run([[Portion(0, supply), Portion(1, demand)]])["results"].to_pylist()
    [{'query': 7, 'product': 1, 'offered': 70, 'wanted': 65}]
    """

    reports = (
        Metric("rows_in", help="rows of both sides taken in by the last step"),
        Metric("rows_out", help="rows emitted as results"),
        Metric("rows_unmatched", help="rows with NULL or NaN where a value is compared: no query can want them"),
        Metric("rows_late", help="rows behind the watermark, on the channels late_left and late_right"),
        Metric("rows_aside", help="rows and changes that cannot be used, on channel set_aside"),
        Metric("runs", help="(row, query) pairs with at least one partner"),
        Metric("pairs", help="(row, query, partner) triples, whether or not they were written out"),
        Metric("held_rows", help="rows kept for partners to come"),
        Metric("queries", combine="max", help="queries that stand"),
        Metric("groups", combine="max", help="stabbing groups of the index that is walked for left rows"),
        Metric("changes_applied", combine="max", help="queries set or removed"),
        Metric(
            "changes_superseded", combine="max", help="changes that another in the same micro-batch replaced or undid"
        ),
        Metric("memory", help="bytes held at the most, over all slots"),
        Metric("budget", help="bytes allowed, over all slots"),
    )

    def __init__(
        self,
        schemas: tuple[pa.Schema, pa.Schema],
        shape: Shape,
        load: Callable[[], Queries],
        *,
        budget: int,
        output: Output = "pairs",
        strategy: Strategy | Dynamic = "dynamic",
        coefficients: Coefficients | None = None,
        keep: int | tuple[int, int] | None = None,
        within: int | None = None,
        event_time: tuple[str, str] | None = None,
        reach: tuple[float, float] | None = None,
        tells_of: Callable[[pa.RecordBatch], Flags] | None = None,
        says_changes: bool = True,
    ) -> None:
        self.schemas = schemas
        self.shape = shape
        self.budget = budget
        self.strategy = strategy
        self.keep = (keep, keep) if isinstance(keep, int) else keep
        self.within = within
        self._load = load
        self._reach = reach
        self._results = Results(output, shape, schemas)
        self._tells_of = tells_of
        self._says_changes = says_changes
        timed = within is not None
        self._readers = tuple(
            RowReader(shape, side, self._payload(side, timed), event_time[side] if timed and event_time else None)
            for side in (LEFT, RIGHT)
        )
        self.channels: Mapping[str, pa.Schema] = {RESULTS: self._results.schema, SET_ASIDE: SET_ASIDE_SCHEMA}
        if timed:
            self.channels = {**self.channels, **dict(zip(LATE, schemas, strict=True))}
        self.queries = QuerySet(shape, walked(strategy, shape.own))
        self._router = Router(self.queries, coefficients or Coefficients()) if strategy == DYNAMIC else None
        self.held = tuple(Held(len(shape.ranges[side]), timed) for side in (LEFT, RIGHT))
        self._keys = KeyNumbers(shape, self.held) if compared(shape, schemas) else None
        self._loaded = False
        self._next = 0
        self._base = ""
        self._deltas: dict[str, int] = {}
        self._log = ChunkLog()
        self._peak = 0
        self._numbers: dict[str, float] = dict.fromkeys((metric.name for metric in self.reports), 0.0)

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Take in changes, then rows; report every pair that is new."""
        if not self._loaded:
            self._first_queries()
        self._numbers = dict.fromkeys(self._numbers, 0.0)
        parts: tuple[list[Arrivals], list[Arrivals]] = ([], [])
        changes: list[pa.RecordBatch] = []
        for side, rows in batch:
            if side == CHANGES:
                changes.append(rows)
                self._check_budget(parts, changes)
                continue
            told = self._told(side, rows)
            self._numbers["rows_in"] += int(told.sum())
            read = self._readers[side].read(rows, told)
            self._numbers["rows_unmatched"] += read.unmatched
            if read.aside is not None:
                yield self._aside(read.aside)
            kept = read.rows
            if batch.watermark is not None and self.within is not None:
                kept, late = self._late(side, kept, batch.watermark)
                if late is not None:
                    yield late
            if kept.size:
                parts[side].append(kept)
                self._check_budget(parts, changes)
        if changes:
            yield from self._change(changes)
            changes.clear()
        self.queries.prepare()
        self._check_budget(parts, changes)
        if batch.watermark is not None:
            self._expire(batch.watermark)
        yield from self._meet(parts)
        if self.keep is not None:
            self._let_go(self.keep)
        self._weigh(0)
        self._numbers["held_rows"] = sum(held.count for held in self.held)
        self._numbers["queries"] = self.queries.count
        index = self.queries.index(LEFT, self.queries.strategies[0])
        self._numbers["groups"] = index.groups if index is not None else 0
        self._numbers |= {"memory": self._peak, "budget": self.budget}

    def memory(self) -> int:
        """Bytes of queries, indexes, kept rows, those of the micro-batch, and runs before they are rows."""
        return self._peak

    def changes(self) -> Changes:
        """New rows, dropped ones, changes to queries."""
        self._peak = self._now()
        return self._log.take()

    def head(self) -> bytes:
        """The number of the next chunk, and which of them hold queries."""
        return json.dumps({"next": self._next, "base": self._base, "deltas": self._deltas}).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Read queries and rows back."""
        try:
            said = json.loads(head)
            self._next, self._base, self._deltas = int(said["next"]), str(said["base"]), dict(said["deltas"])
            if self._base:
                self._restore_queries(chunks)
            for side, held in enumerate(self.held):
                names = sorted(name for name in chunks if name[0] == str(side))
                if names:
                    held.add(*((n, self._from_chunk(side, read_blob(chunks[n])), chunks[n].size) for n in names))
            if self._keys is not None:
                self._keys.restored()
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise StateDamaged(
                "The stored state of standing queries cannot be read.",
                why=str(error),
                do="Restore the checkpoint from a copy, or start with a new one.",
            ) from error
        self._peak = self._now()

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step."""
        return self._numbers

    def _meet(self, parts: tuple[list[Arrivals], list[Arrivals]]) -> Iterator[Emission]:
        """New left rows meet the right ones kept, then new right rows meet all left ones: every new pair once."""
        counts = np.zeros(len(self.queries.alive) if self._results.output == "counts" else 0, np.int64)
        for side in (LEFT, RIGHT):
            if not parts[side]:
                continue
            arrived = joined(parts[side], parts[side][0])
            parts[side].clear()
            if self._keys is not None:
                arrived = arrived._replace(keys=self._keys.numbers(side, arrived.keys, arrived.payload))
            self._weigh(2 * arrived.nbytes)
            for runs in self._runs(side, arrived):
                self._numbers["runs"] += len(runs)
                self._numbers["pairs"] += int((runs[:, 3].astype(np.int64) - runs[:, 2]).sum())
                if self._results.output == "counts":
                    count(runs, counts)
                    continue
                for rows in self._results.rows(side, arrived, self.held[1 - side], self.queries.ids, runs):
                    self._weigh(2 * arrived.nbytes + 2 * rows.nbytes)
                    self._numbers["rows_out"] += rows.num_rows
                    yield Emission(RESULTS, rows)
            self._keep(side, arrived)
        for rows in self._results.counted(self.queries.ids, counts):
            self._numbers["rows_out"] += rows.num_rows
            yield Emission(RESULTS, rows)

    def _runs(self, side: int, arrived: Arrivals) -> Iterator[I32]:
        held, shape, queries = self.held[1 - side], self.shape, self.queries
        if not held.count or not queries.count:
            return
        # In the order of what trees are walked by, so that one row's boxes are still near for the next.
        order = np.argsort(arrived.values[:, 0])
        values = arrived.values[order]
        begin, end = held.partners(arrived.keys[order])
        nothing = np.zeros(len(order))
        rows = Rows(begin, end, nothing if shape.own else values[:, 0], values[:, 0] if shape.own else nothing)
        further = self._further(side, values, arrived.times[order] if self.within is not None else arrived.times)
        walk = queries.answers(queries.strategies[0], side, rows, held.first)
        if self._router is not None:
            walk = self._router.answers(side, rows, held.first, values if shape.own else None)
        for runs in walk:
            for piece in cut(runs, further) if further.any else (runs,):
                piece[:, 0] = order[piece[:, 0]]
                yield piece

    def _further(self, side: int, values: Any, times: I64) -> Further:
        columns = self.queries.columns(side)
        # Rows that were routed may have been looked up by any of their values: all are checked where there are several.
        first = 0 if self._router is not None and self.shape.own and values.shape[1] > 1 else 1
        return Further(
            self.queries.bounds,
            values[:, first:],
            columns[0] + 2 * first,
            self.held[1 - side].values[:, 1:],
            columns[2] + 2,
            times,
            self.held[1 - side].times,
            -1 if self.within is None else self.within,
        )

    def _change(self, changes: list[pa.RecordBatch]) -> Iterator[Emission]:
        found = read_changes(changes, self.queries, self._reach)
        self._numbers["changes_superseded"] = found.superseded
        for rows in found.aside if self._says_changes else ():
            yield self._aside(rows)
        change = found.change
        touched = len(change.ids) + len(change.removed)
        if not touched:
            return
        self._numbers["changes_applied"] = touched
        if self._router is not None:
            self._router.before(change)
        self.queries.apply(change)
        if self._router is not None:
            self._router.after()
        name = self._name("q")
        self._deltas[name] = touched
        self._log.add(name, change_blob(change, self.shape))
        if sum(self._deltas.values()) > max(_COMPACT_LEAST, self.queries.count // _COMPACT_SHARE):
            self._compact()

    def _first_queries(self) -> None:
        self.queries.load(self._load())
        self._count_queries()
        self._loaded = True
        self._compact()

    def _compact(self) -> None:
        for name in (*([self._base] if self._base else []), *self._deltas):
            self._log.drop(name)
        self._base, self._deltas = self._name("q"), {}
        queries, versions = self.queries.all()
        none = np.empty(0, np.int64)
        self._log.add(self._base, change_blob(Change(queries.ids, versions, queries.bounds, none), self.shape))

    def _restore_queries(self, chunks: Mapping[str, pa.Buffer]) -> None:
        first = change_of(chunks[self._base], self.shape)
        self.queries.load(Queries(first.ids, first.bounds), first.versions)
        self._loaded = True
        for name in self._deltas:
            self.queries.apply(change_of(chunks[name], self.shape))
        self._count_queries()

    def _count_queries(self) -> None:
        self.queries.prepare()
        if self._router is not None:
            self._router.load()

    def _keep(self, side: int, arrived: Arrivals) -> None:
        name = self._name(str(side))
        waiting = arrived._replace(payload=arrived.payload.select(list(self._results.waiting[side])))
        blob = row_blob(waiting)
        # The columns as they lie in the blob: what was read is let go.
        self.held[side].add((name, self._from_chunk(side, read_blob(blob)), blob.size))
        self._log.add(name, blob)

    def _expire(self, watermark: int) -> None:
        if self.within is None:
            return
        for held in self.held:
            over = [name for name, chunk in held.chunks.items() if chunk.latest + self.within < watermark]
            self._drop(held, over)

    def _let_go(self, keeps: tuple[int, int]) -> None:
        for held, keep in zip(self.held, keeps, strict=True):
            over, rest = [], held.count
            for name, chunk in held.chunks.items():
                if rest - chunk.count < keep:
                    break
                over.append(name)
                rest -= chunk.count
            self._drop(held, over)

    def _drop(self, held: Held, names: list[str]) -> None:
        if names:
            held.drop(names)
            for name in names:
                self._log.drop(name)
            if self._keys is not None:
                self._keys.forget()

    def _late(self, side: int, rows: Arrivals, watermark: int) -> tuple[Arrivals, Emission | None]:
        late = rows.times < watermark
        if not late.any():
            return rows, None
        whole = rows.payload.filter(pa.array(late)).select(self.schemas[side].names)
        whole = whole.filter(pa.array(self._told(side, whole)))
        self._numbers["rows_late"] += whole.num_rows
        good = ~late
        on_time = Arrivals(rows.keys[good], rows.values[good], rows.times[good], rows.payload.filter(pa.array(good)))
        return on_time, Emission(LATE[side], whole) if whole.num_rows else None

    def _told(self, side: int, rows: pa.RecordBatch) -> Flags:
        """Which rows are counted, set aside or called late here."""
        if side == RIGHT and self._tells_of is not None:
            return self._tells_of(rows)
        return np.ones(rows.num_rows, np.bool_)

    def _aside(self, rows: pa.RecordBatch) -> Emission:
        self._numbers["rows_aside"] += rows.num_rows
        return Emission(SET_ASIDE, rows)

    def _payload(self, side: int, timed: bool) -> tuple[str, ...]:
        if timed:
            return tuple(self.schemas[side].names)
        return self._results.arriving[side]

    def _from_chunk(self, side: int, rows: pa.RecordBatch) -> Arrivals:
        return rows_of(rows, len(self.shape.ranges[side]), self.within is not None, self._results.waiting[side])

    def _name(self, kind: str) -> str:
        self._next += 1
        return f"{kind}-{self._next:012d}"

    def _now(self) -> int:
        moved = self._keys.nbytes if self._keys is not None else 0
        return self.queries.nbytes + sum(held.nbytes for held in self.held) + moved

    def _buffers(self) -> int:
        """What a step needs beside rows and queries: runs as they are found, cut and written out."""
        counts = 8 * len(self.queries.alive) if self._results.output == "counts" else 0
        return (len(self.queries.alive) + BLOCK) * RUN + 2 * PIECE * RUN + counts

    def _weigh(self, more: int) -> None:
        self._peak = max(self._peak, self._now() + more)

    def _check_budget(self, parts: tuple[list[Arrivals], list[Arrivals]], changes: list[pa.RecordBatch]) -> None:
        batch = sum(rows.nbytes for side in parts for rows in side)
        # As they came, in one piece, in order; and what Python has of each while it is looked up.
        changing = sum(3 * rows.nbytes + _CHANGE * rows.num_rows for rows in changes)
        # While rows are put in order, kept ones are there twice; new ones three times: as they came, in one piece,
        # kept.
        need = self._now() + sum(held.index_bytes for held in self.held) + 3 * batch + changing + self._buffers()
        self._weigh(min(need, self.budget) - self._now() if need > self._now() else 0)
        if need > self.budget:
            kept = sum(held.nbytes for held in self.held)
            raise OverBudget(
                f"This micro-batch needs {need:,} bytes in a slot that has {self.budget:,}.",
                why=f"{self.queries.count:,} queries take {self.queries.nbytes:,}, rows that are kept {kept:,}, "
                f"those of the micro-batch {3 * batch:,} so far, changes to queries {changing:,}.",
                do="Start again with more memory; or with a shorter window, a smaller `keep`, smaller micro-batches.",
            )
