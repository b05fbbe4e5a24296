"""Runs as rows for people: pairs, factored, or counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.kernels.standing.held import Arrivals, Held
from penstock.kernels.standing.keys import compared
from penstock.kernels.standing.query_table import ID
from penstock.kernels.standing.refine import PIECE, pairs
from penstock.kernels.standing.search import FIRST, I32, I64, LAST, QUERY, ROW
from penstock.kernels.standing.shape import LEFT, RIGHT, SIDES, Shape

Output = Literal["pairs", "factored", "counts"]
OUTPUTS: tuple[Output, ...] = ("pairs", "factored", "counts")


class Results:
    """Makes rows of runs.

    *pairs*: the query's id and the columns of both rows. *factored*: one row for each query that a new row affects,
    with the row's own columns, how many partners it met, and the first and last of their values; the columns of the
    side that did not arrive are NULL. Where further conditions leave gaps between partners, by value, one row for each
    run of them. *counts*: how many new pairs each query has from this micro-batch.
    """

    def __init__(self, output: Output, shape: Shape, schemas: tuple[pa.Schema, pa.Schema]) -> None:
        self.output = output
        self.shape = shape
        shared = {b for a, b in zip(*shape.on, strict=True) if a == b}
        nullable = [[field.with_nullable(True) for field in schema] for schema in schemas]
        rest = [field for field in nullable[RIGHT] if field.name not in shared]
        query = pa.field(ID, pa.int64())
        #: Columns of each side that results have.
        self.columns = (tuple(schemas[LEFT].names), tuple(field.name for field in rest))
        if output == "pairs":
            self.schema = pa.schema([query, *nullable[LEFT], *rest])
        elif output == "factored":
            arrived = pa.field("arrived", pa.string())
            numbers = [("partners", pa.int64()), ("first", pa.float64()), ("last", pa.float64())]
            self.schema = pa.schema([query, arrived, *nullable[LEFT], *rest, *numbers])
        else:
            self.schema = pa.schema([query, pa.field("results", pa.int64())])
        #: Columns of arriving rows, and of those that wait, that must be at hand.
        least = shape.on if compared(shape, schemas) else ((), ())
        every = tuple(tuple(schema.names) for schema in schemas)
        self.arriving = every if output != "counts" else least
        self.waiting = every if output == "pairs" else least

    def rows(self, side: int, arrived: Arrivals, held: Held, ids: I64, runs: I32) -> Iterator[pa.RecordBatch]:
        """The runs of rows that arrived on `side`, as pairs or factored."""
        if self.output == "pairs":
            for piece in pairs(runs):
                partners, order = held.take(piece[:, 2].astype(np.int64))
                ours = arrived.payload.take(pa.array(piece[order, 0]))
                yield self._pair(ids[piece[order, 1]], (ours, partners) if side == LEFT else (partners, ours))
        else:
            for begin in range(0, len(runs), PIECE):
                yield self._factored(side, arrived, held, ids, runs[begin : begin + PIECE])

    def counted(self, ids: I64, counts: I64) -> Iterator[pa.RecordBatch]:
        """Counts by slot, of queries that have any."""
        some = np.flatnonzero(counts)
        for begin in range(0, len(some), PIECE):
            piece = some[begin : begin + PIECE]
            yield pa.RecordBatch.from_arrays([pa.array(ids[piece]), pa.array(counts[piece])], schema=self.schema)

    def _pair(self, queries: I64, sides: tuple[pa.RecordBatch, pa.RecordBatch]) -> pa.RecordBatch:
        columns = [sides[side].column(name) for side in (LEFT, RIGHT) for name in self.columns[side]]
        return pa.RecordBatch.from_arrays([pa.array(queries), *columns], schema=self.schema)

    def _factored(self, side: int, arrived: Arrivals, held: Held, ids: I64, runs: I32) -> pa.RecordBatch:
        ours = arrived.payload.take(pa.array(runs[:, ROW]))
        renamed = dict(zip(self.shape.on[LEFT], self.shape.on[RIGHT], strict=True)) if side == RIGHT else {}
        columns = []
        for number in (LEFT, RIGHT):
            for name in self.columns[number]:
                mine = renamed.get(name) == name if number != side else True
                kind = self.schema.field(name).type
                columns.append(ours.column(name) if mine else pa.nulls(len(runs), kind))
        # Band joins keep the left side's values negated.
        sign = -1.0 if not self.shape.own and side == RIGHT else 1.0
        first, last = (sign * held.first[place] for place in (runs[:, FIRST], runs[:, LAST] - 1))
        numbers = [runs[:, LAST].astype(np.int64) - runs[:, FIRST], *((last, first) if sign < 0 else (first, last))]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(ids[runs[:, QUERY]]),
                pa.array([SIDES[side]], pa.string()).take(pa.array(np.zeros(len(runs), np.int8))),
                *columns,
                *(pa.array(column) for column in numbers),
            ],
            schema=self.schema,
        )
