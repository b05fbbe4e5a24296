"""The queries that stand now: their numbers in arrays by slot, and the indexes that strategies walk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from penstock.kernels.standing.index import Index
from penstock.kernels.standing.layout import BYTES_PER_GROUP, bytes_per_query
from penstock.kernels.standing.partition import canonical
from penstock.kernels.standing.query_table import Queries
from penstock.kernels.standing.search import F64, I32, I64, Flags, Rows
from penstock.kernels.standing.shape import LEFT, RIGHT, SelectJoin, Shape
from penstock.kernels.standing.strategies import Strategy, answers, grouping_of, tree_for

_RECENT_LEAST, _RECENT_SHARE = 1_024, 16
#: From this part of all queries on, indexes are made anew sooner than changed one by one.
_AT_ONCE = 8


class Change(NamedTuple):
    """Queries to be set, and ids to be removed; no id is in both, none twice."""

    ids: I64
    versions: I64
    bounds: F64
    removed: I64


class QuerySet:
    """Standing queries by slot; a slot that was let go is given out again.

    State and cost
        A query takes 33 bytes and 16 for each range, beside its indexes: see `bytes_needed`. A change costs what it
        costs in each index, and one look-up by id; very many at once cost what loading all costs.
    """

    def __init__(
        self, shape: Shape, strategies: tuple[Strategy, ...], *, alpha: float = 0.001, epsilon: float = 1.0
    ) -> None:
        self.shape = shape
        self.strategies = strategies
        self.ids: I64 = np.empty(0, np.int64)
        self.versions: I64 = np.empty(0, np.int64)
        self.bounds: F64 = np.empty((0, len(shape.bounds)))
        self.alive: Flags = np.zeros(0, np.bool_)
        self.count = 0
        self._free: list[int] = []
        self._sorted_ids, self._sorted_slots = np.empty(0, np.int64), np.empty(0, np.int64)
        self._recent: dict[int, int] = {}
        self._indexes: dict[tuple[object, ...], Index] = {}
        for direction in (LEFT, RIGHT):
            for strategy, attribute in self._walks(direction):
                kind = self._kind(direction, strategy, attribute)
                if kind is not None and kind not in self._indexes:
                    grouping, tree, columns = kind
                    self._indexes[kind] = Index(grouping, tree, columns=columns, alpha=alpha, epsilon=epsilon)

    def load(self, queries: Queries, versions: I64 | None = None) -> None:
        """Many queries at once, in place of all that stood."""
        count = len(queries.ids)
        self.ids, self.bounds = queries.ids.astype(np.int64), np.ascontiguousarray(queries.bounds)
        self.versions = np.zeros(count, np.int64) if versions is None else versions.astype(np.int64)
        self.alive = np.ones(count, np.bool_)
        self.count = count
        self._free = []
        self._sort()
        for index in self._indexes.values():
            index.load(np.arange(count), self.bounds)

    def find(self, query: int) -> int:
        """The slot of a query that stands, or -1."""
        slot = self._recent.get(query, -1)
        if slot < 0:
            at = int(np.searchsorted(self._sorted_ids, query))
            if at < len(self._sorted_ids) and self._sorted_ids[at] == query:
                slot = int(self._sorted_slots[at])
        return slot if slot >= 0 and self.alive[slot] and self.ids[slot] == query else -1

    def find_all(self, queries: I64) -> I64:
        """The slots of several."""
        return np.fromiter((self.find(query) for query in queries.tolist()), np.int64, len(queries))

    def apply(self, change: Change) -> None:
        """Remove, then set; an id that stands already is set anew. Ids to be removed must stand."""
        gone = [self.find(int(query)) for query in change.removed]
        kept = [self.find(int(query)) for query in change.ids]
        self._free += gone
        come = np.array([slot if slot >= 0 else self._slot() for slot in kept], np.int64)
        self.alive[gone] = False
        self.ids[come], self.versions[come], self.bounds[come] = change.ids, change.versions, change.bounds
        self.alive[come] = True
        self._recent.update(zip(change.ids.tolist(), come.tolist(), strict=True))
        self.count = int(self.alive.sum())
        if len(self._recent) > max(_RECENT_LEAST, self.count // _RECENT_SHARE):
            self._sort()
        replaced = np.array([*gone, *(slot for slot in kept if slot >= 0)], np.int64)
        many = len(replaced) + len(come) > max(_RECENT_LEAST, self.count // _AT_ONCE)
        for index in self._indexes.values():
            if many:
                index.load(np.flatnonzero(self.alive), self.bounds)
            else:
                index.change(replaced, come, self.bounds)

    def all(self) -> tuple[Queries, I64]:
        """What stands, with versions."""
        slots = np.flatnonzero(self.alive)
        return Queries(self.ids[slots], self.bounds[slots]), self.versions[slots]

    def _walks(self, direction: int) -> Iterator[tuple[Strategy, int]]:
        """Each strategy with the range that its index is made of; where rows are routed, selection by any of them."""
        for strategy in self.strategies:
            several = strategy == "select_first" and len(self.strategies) > 1
            for attribute in range(len(self.shape.ranges[direction]) if several else 1):
                yield strategy, attribute

    def index(self, direction: int, strategy: Strategy, attribute: int = 0) -> Index | None:
        """What a strategy walks for rows that arrive on this side; None if it walks the queries themselves."""
        kind = self._kind(direction, strategy, attribute)
        return None if kind is None else self._indexes[kind]

    def ranges(self, direction: int) -> F64:
        """(own from, own to, across from, across to) by slot, for strategies without an index."""
        if not self.shape.own:
            everything = np.full((len(self.bounds), 2), (-np.inf, np.inf))
            return np.hstack([everything, self.bounds])
        return self.bounds[:, self.columns(direction)]

    def columns(self, direction: int, attribute: int = 0) -> tuple[int, int, int, int]:
        """Where `bounds` has the ranges that indexes are made of: one of the arriving side, and the first across."""
        if not isinstance(self.shape, SelectJoin):
            return 0, 1, 0, 1
        own, across = 0, 2 * len(self.shape.ranges[LEFT])
        if direction == RIGHT:
            own, across = across, own
        return own + 2 * attribute, own + 2 * attribute + 1, across, across + 1

    def answers(self, strategy: Strategy, direction: int, rows: Rows, values: F64, attribute: int = 0) -> Iterator[I32]:
        """All runs of rows that arrive on this side, by one strategy; `rows.own` are values of that attribute."""
        index = self.index(direction, strategy, attribute)
        ranges = self.ranges(direction) if index is None else self.bounds
        yield from answers(strategy, index, ranges, self.alive, self.shape.own, rows, values)

    def prepare(self) -> None:
        """Lay out what the first strategy walks; what others walk is laid out when they are first asked."""
        for direction in (LEFT, RIGHT):
            index = self.index(direction, self.strategies[0])
            for _ in index.parts() if index is not None else ():
                pass

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        arrays = (self.ids, self.versions, self.bounds, self.alive, self._sorted_ids, self._sorted_slots)
        recent = 150 * len(self._recent) + 32 * len(self._free)
        return sum(a.nbytes for a in arrays) + recent + sum(index.nbytes for index in self._indexes.values())

    def _kind(self, direction: int, strategy: Strategy, attribute: int):  # type: ignore[no-untyped-def]
        grouping = grouping_of(strategy)
        if grouping is None:
            return None
        return grouping, tree_for(strategy, self.shape.own), self.columns(direction, attribute)

    def _slot(self) -> int:
        if not self._free:
            have = len(self.ids)
            more = max(16, have // 16)
            self.ids, self.versions = (np.append(a, np.zeros(more, np.int64)) for a in (self.ids, self.versions))
            self.bounds = np.vstack([self.bounds, np.zeros((more, self.bounds.shape[1]))])
            self.alive = np.append(self.alive, np.zeros(more, np.bool_))
            self._free = list(range(have + more - 1, have - 1, -1))
        return self._free.pop()

    def _sort(self) -> None:
        slots = np.flatnonzero(self.alive)
        order = np.argsort(self.ids[slots])
        self._sorted_ids, self._sorted_slots = self.ids[slots][order], slots[order]
        self._recent = {}


def bytes_needed(count: int, shape: Shape, strategies: tuple[Strategy, ...], bounds: F64 | None = None) -> int:
    """About how many bytes so many queries take with their indexes, while they are laid out.

    Where all of them are grouped, the more groups the more: `bounds`, if given, say how many there are; else few.
    """
    a_query = 33.0 + 8 * len(shape.bounds)
    groups = 0
    empty = QuerySet(shape, strategies)
    for index in empty._indexes.values():
        partition = {"all": 23, "hot": 46, "none": 0}[index.grouping]
        a_query += bytes_per_query(index.own) + 2 + partition
        if index.grouping == "all" and index.own and bounds is not None:
            groups += canonical(*(bounds[:, column] for column in index.columns[2:])).size
    return int((count * a_query + groups * BYTES_PER_GROUP) * 1.25) + (64 << 10)
