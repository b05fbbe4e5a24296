"""Hypothesis strategies for rows, tables, streams, and the ways in which a stream can be cut into batches.

Tables are small, their keys few, so that rows meet; extremes are frequent. Everything shrinks towards few, plain rows
in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import Portion
from penstock.testing.key_kinds import KEY_KINDS, key_names, key_pool, key_schema
from penstock.testing.values import extreme_values, values

__all__ = [
    "KEY_KINDS",
    "batches",
    "cuts",
    "extreme_values",
    "key_names",
    "key_schema",
    "streams",
    "table_schema",
    "tables",
    "values",
]

#: The columns beside the key where none are given.
PAYLOAD = pa.schema([("v", pa.int64())])


def table_schema(kind: str, payload: pa.Schema = PAYLOAD) -> pa.Schema:
    """The columns of `tables(kind, payload)`: the key's, then the others.

    >>> table_schema("composite").names
    ['k', 'k2', 'v']
    """
    return pa.schema([*key_schema(kind), *payload])


@st.composite
def tables(
    draw: DrawFn,
    what: str | pa.Schema,
    payload: pa.Schema = PAYLOAD,
    *,
    nulls: bool = True,
    min_rows: int = 0,
    max_rows: int = 30,
) -> pa.Table:
    """A table with a key of the kind `what` (one of `KEY_KINDS`) and `payload` columns, or with the schema `what`.

    Keys of one kind come from one small pool, in every table: they repeat, and two tables have many in common. NULL
    keys come with the nullable kinds alone; `nulls` is about the other columns.
    """
    if isinstance(what, str):
        keys = st.sampled_from(key_pool(what))
        schema, others = table_schema(what, payload), payload
    else:
        keys = st.just(())
        schema = others = what
    rest = st.tuples(*(values(f.type, nulls=nulls and f.nullable) for f in others))
    # The size first: lists that choose it themselves are mostly short.
    size = draw(st.integers(min_rows, max_rows))
    rows: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = draw(
        st.lists(st.tuples(keys, rest), min_size=size, max_size=size)
    )
    columns = [[(*key, *other)[i] for key, other in rows] for i in range(len(schema))]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@st.composite
def cuts(draw: DrawFn, table: pa.Table | pa.RecordBatch, max_pieces: int = 4) -> list[pa.RecordBatch]:
    """The table's rows in order, in one or more pieces, some of them empty."""
    whole = _one_batch(table) if isinstance(table, pa.Table) else table
    return [whole.slice(a, b - a) for a, b in draw(_stretches(0, whole.num_rows, max_pieces))]


@st.composite
def streams(draw: DrawFn, *sides: str | pa.Schema, max_rows: int = 30, nulls: bool = True) -> list[Portion]:
    """Rows in the order of their arrival, as portions; one argument for each side: a kind of key or a schema."""
    pieces = {
        number: [Portion(number, piece) for piece in draw(cuts(draw(tables(side, max_rows=max_rows, nulls=nulls))))]
        for number, side in enumerate(sides)
    }
    if len(sides) == 1:
        return pieces[0]
    turns = draw(st.permutations([number for number, own in pieces.items() for _ in own]))
    return [pieces[number].pop(0) for number in turns]


@st.composite
def batches(draw: DrawFn, portions: Sequence[Portion], max_batches: int = 5) -> list[list[Portion]]:
    """The same rows in the same order, cut anew into portions and these into micro-batches, some of them empty."""
    runs = [list(run) for _, run in groupby(portions, key=lambda portion: portion.side)]
    whole = [Portion(run[0].side, pa.concat_batches([portion.rows for portion in run])) for run in runs]
    rows = sum(run.rows.num_rows for run in whole)
    return [
        [piece for a, b in draw(_stretches(start, stop, max_pieces=3)) for piece in _between(whole, a, b)]
        for start, stop in draw(_stretches(0, rows, max_batches))
    ]


@st.composite
def _stretches(draw: DrawFn, start: int, stop: int, max_pieces: int) -> list[tuple[int, int]]:
    """A range in one or more stretches, as likely many as few, some of them empty."""
    pieces = draw(st.integers(1, max_pieces))
    ends = draw(st.lists(st.integers(start, stop), min_size=pieces - 1, max_size=pieces - 1))
    return list(pairwise([start, *sorted(ends), stop]))


def _between(runs: Sequence[Portion], start: int, stop: int) -> list[Portion]:
    """The rows from `start` up to `stop` of all runs put together; where there is none, an empty portion or nothing."""
    if start == stop:
        return [Portion(side, rows.slice(0, 0)) for side, rows in runs[start % 2 : start % 2 + 1]]
    found, before = [], 0
    for side, rows in runs:
        a, b = max(start - before, 0), min(stop - before, rows.num_rows)
        if a < b:
            found.append(Portion(side, rows.slice(a, b - a)))
        before += rows.num_rows
    return found


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
