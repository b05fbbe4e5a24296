"""Pairs on their way to queries: held until the order of each query's stream lets them go.

A query's stream is ordered by the later row of each pair, and by how new the other is. Pairs are found in another
order, so those of a row are kept until its turn has come for every query; of each query it is known up to where it
has been sent. A pair that all queries have been sent is let go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import ChunkLog
from penstock.kernels.shared.queries import Query, QuerySet

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Bytes that a held pair takes up, also while pairs are put in order.
HELD = 72


class Pairs(NamedTuple):
    """The later row of each pair (`outer`, over both sides), the number of the other, and how far apart they are."""

    outer: I64
    inner: I64
    apart: I64

    def where(self, which: Mask | I64 | slice) -> Pairs:
        """Some of them."""
        return Pairs(self.outer[which], self.inner[which], self.apart[which])


class Router:
    """Holds pairs and gives each query its own, in order.

    Guarantees
        A query gets each of its pairs once, in the order it would have alone: `test_conformance`.
    State and cost
        `HELD` bytes a pair. Those found in a step and still held at its end are written once, in 16 bytes each, and
        gone when all their rows are finished.
    """

    def __init__(self) -> None:
        none = np.zeros(0, np.int64)
        self.held = Pairs(none, none, none)
        self._stored = np.zeros(0, np.bool_)
        self._chunks: dict[str, int] = {}
        #: A row some of whose pairs were let go already, and how many of these are in chunks.
        self._begun = (0, 0)

    def __len__(self) -> int:
        return len(self.held.outer)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(column.nbytes for column in self.held) + self._stored.nbytes

    def take_in(self, found: Pairs, *, stored: bool = False) -> None:
        """Pairs that were found, those of each row from its newest partner to its oldest."""
        if not len(found.outer):
            return
        held = Pairs(*(np.concatenate(both) for both in zip(self.held, found, strict=True)))
        flags = np.concatenate([self._stored, np.full(len(found.outer), stored)])
        if np.any(np.diff(held.outer) < 0):
            order = np.argsort(held.outer, kind="stable")
            held, flags = held.where(order), flags[order]
        self.held, self._stored = held, flags

    def ready(self, query: Query, sides: npt.NDArray[np.uint8], base: int, *, early: bool) -> I64:
        """Which of the held pairs a query is to be sent now. `sides` are those of the rows from `base` on."""
        begin = self._place(query.sent) + query.sent_pairs
        head = self._place(query.done)
        end = self._place(query.done + 1) if early else max(head, begin)
        found = self.held.where(slice(begin, end))
        query.sent, query.sent_pairs = query.done, end - head
        wanted = found.apart <= query.window
        if query.since:
            theirs = np.where(sides[found.outer - base] == 0, query.since_sides[1], query.since_sides[0])
            wanted &= (found.outer >= query.since) & (found.inner >= theirs)
        wanted &= found.outer < query.until
        return np.flatnonzero(wanted) + begin

    def _place(self, row: int) -> int:
        return int(np.searchsorted(self.held.outer, row))

    def let_go(self, queries: QuerySet, log: ChunkLog) -> None:
        """Pairs that every query has been sent; the widest query is the last to be."""
        if not queries.all:
            gone = len(self)
        else:
            last = queries.all[-1]
            begun = self._place(last.sent)
            gone = begun + last.sent_pairs
            had = self._begun[1] if self._begun[0] == last.sent else 0
            self._begun = (last.sent, had + int(self._stored[begun:gone].sum()))
            for query in queries.all:
                if query.sent == last.sent and query is not last:
                    query.sent_pairs -= last.sent_pairs
            last.sent_pairs = 0
        if gone:
            self.held = Pairs(*(column[gone:].copy() for column in self.held))
            self._stored = self._stored[gone:].copy()
        for name, latest in list(self._chunks.items()):
            if latest < queries.finished:
                log.drop(name)
                del self._chunks[name]

    def store(self, step: int, log: ChunkLog) -> None:
        """Write the pairs that came to be held since the last time."""
        fresh = self.held.where(~self._stored)
        if len(fresh.outer):
            name = f"h{step}"
            log.add(name, pa.py_buffer(np.stack([fresh.outer, fresh.inner]).tobytes()))
            self._chunks[name] = int(fresh.outer[-1])
            self._stored[:] = True

    def head(self) -> list[int]:
        """What the chunks do not say."""
        return list(self._begun)

    def restore(self, said: list[int], chunks: Mapping[str, pa.Buffer]) -> tuple[I64, I64]:
        """The pairs of these chunks that were not let go: their rows, and the numbers of the others. To be taken in."""
        outer, inner = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for name in sorted((one for one in chunks if one.startswith("h")), key=lambda one: int(one[1:])):
            rows = np.frombuffer(chunks[name], np.int64).reshape(2, -1)
            outer.append(rows[0])
            inner.append(rows[1])
            self._chunks[name] = int(rows[0][-1])
        rows, others = np.concatenate(outer), np.concatenate(inner)
        self._begun = (said[0], said[1])
        gone = rows < said[0]
        gone[np.flatnonzero(rows == said[0])[: said[1]]] = True
        return rows[~gone], others[~gone]
