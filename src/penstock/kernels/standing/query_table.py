"""Queries as rows: reading them, and every reason for which one cannot be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from penstock.errors import BadQuery, UnknownColumn
from penstock.kernels.standing.numbers import EXACT, difference_kind, range_kind, to_numbers
from penstock.kernels.standing.search import F64, I64, Flags
from penstock.kernels.standing.shape import BAND, LEFT, RIGHT, SIDES, BandJoin, Shape

ID, OP, VERSION = "query", "op", "version"
SET, REMOVE = "set", "remove"


class Queries(NamedTuple):
    """Ids, and bounds with two columns (from, to) for each range of the shape."""

    ids: I64
    bounds: F64


def bound_kinds(shape: Shape, schemas: tuple[pa.Schema, pa.Schema]) -> dict[str, str]:
    """What kind each column of a query is to be."""
    if isinstance(shape, BandJoin):
        kind = difference_kind(range_kind(schemas[LEFT].field(shape.ranges[LEFT][0]).type))
        return dict.fromkeys(shape.bounds, kind)
    kinds = [range_kind(schemas[side].field(column).type) for side in (LEFT, RIGHT) for column in shape.ranges[side]]
    return dict(zip(shape.bounds, np.repeat(kinds, 2).tolist(), strict=True))


def check_columns(table: pa.Schema, kinds: dict[str, str], *, where: str, changes: bool = False) -> None:
    """Refuse queries without an id or a bound, or with one of another kind than the column it bounds."""
    wanted = [ID, *([OP, VERSION] if changes else []), *kinds]
    for name in wanted:
        if name not in table.names:
            raise UnknownColumn.among(name, table.names, where)
    for name in (ID, VERSION) if changes else (ID,):
        if not pt.is_integer(table.field(name).type) or pt.is_uint64(table.field(name).type):
            raise BadQuery(
                f"{where}: {name!r} is {table.field(name).type}, not an integer.",
                why="Queries are told apart, and their versions put in order, by 64-bit numbers.",
                do="Number them, and keep the names beside, in a table of your own.",
            )
    if changes and not _is_text(table.field(OP).type):
        raise BadQuery(
            f"{where}: {OP!r} is {table.field(OP).type}, not text.", do=f"Write {SET!r} or {REMOVE!r} into it."
        )
    for name, kind in kinds.items():
        have = _kind(table.field(name).type)
        if have != kind:
            raise BadQuery(
                f"{where}: {name!r} is {table.field(name).type}, where a {kind} is compared.",
                why="Values are not converted on the way: a range of another type than its column is mostly a mistake.",
                do=f"Cast it to a {kind} type first.",
            )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _kind(kind: pa.DataType) -> str:
    try:
        return range_kind(kind)
    except BadQuery:
        raise
    except Exception:
        return str(kind)


def read_bounds(rows: pa.Table | pa.RecordBatch, names: tuple[str, ...]) -> tuple[F64, list[tuple[str, Flags]]]:
    """The bounds, and for each reason which rows cannot be for it."""
    bounds = np.empty((rows.num_rows, len(names)))
    missing, inexact = np.zeros(rows.num_rows, np.bool_), np.zeros(rows.num_rows, np.bool_)
    for at, name in enumerate(names):
        column = rows.column(name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        beginning = at % 2 == 0
        found = to_numbers(column, up=beginning)
        bounds[:, at] = found.values
        missing |= ~found.able
        # A whole number beyond what is exact, outward, is a side without limit: no value that is compared reaches it.
        outward = -found.values if beginning else found.values
        if names == BAND:
            # The difference of two values may be rounded down to 2^53, and is at most 2^54.
            whole = not pt.is_floating(column.type)
            inexact |= found.able & whole & (np.abs(found.values) >= EXACT) & (outward < 4.0 * EXACT)
        else:
            inexact |= found.inexact & (outward < EXACT)
    inverted = ~missing & (bounds[:, ::2] > bounds[:, 1::2]).any(axis=1)
    beyond = ~missing & (np.isposinf(bounds[:, ::2]) | np.isneginf(bounds[:, 1::2])).any(axis=1)
    return bounds, [
        ("a bound that is NULL or NaN", missing),
        ("an empty range: it ends before it begins", inverted),
        ("a range beyond all numbers: it begins at +∞ or ends at -∞", beyond & ~inverted),
        ("a bound beyond 2^53, which cannot be compared exactly", inexact),
    ]


def read_queries(rows: pa.Table, names: tuple[str, ...], *, where: str) -> Queries:
    """All queries of a table, or one error with every fault in it."""
    column = pc.cast(rows.column(ID), pa.int64())
    ids = column.fill_null(0).to_numpy()
    bounds, faults = read_bounds(rows, names)
    absent = pc.is_null(column).to_numpy(zero_copy_only=False)
    order = np.argsort(ids, kind="stable")
    repeated = np.zeros(len(ids), np.bool_)
    repeated[order[1:]] = ids[order][1:] == ids[order][:-1]
    said = []
    for reason, flags in [("no id", absent), *faults, ("an id that another one has, too", repeated & ~absent)]:
        if flags.any():
            some = ", ".join(_show(rows, int(at), names) for at in np.flatnonzero(flags)[:3])
            said.append(f"{int(flags.sum()):,} with {reason}: {some}.")
    if said:
        raise BadQuery(
            f"{where} has queries that cannot be, among {len(ids):,}.",
            why="\n  ".join(said),
            do="Mend or leave out these rows; a side without limit is written as -infinity or infinity.",
        )
    return Queries(ids, bounds)


def _show(rows: pa.Table, at: int, names: tuple[str, ...]) -> str:
    row = rows.slice(at, 1).to_pylist()[0]
    return f"query {row[ID]} ({', '.join(f'{name} {row[name]}' for name in names)})"


def describe_kinds(shape: Shape, kinds: dict[str, str]) -> str:
    """For people: the columns that a table of queries needs."""
    return f"{ID} integer, " + ", ".join(f"{name} {kinds[name]}" for name in shape.bounds)


__all__ = ["ID", "OP", "REMOVE", "SET", "SIDES", "VERSION", "Queries", "bound_kinds", "check_columns", "read_queries"]
