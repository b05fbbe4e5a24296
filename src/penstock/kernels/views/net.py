"""A table's changes, in the order they came, as the rows that leave it and the rows that enter it.

A change that makes no sense is set aside with a reason and has no effect: what is left is what a database would have
accepted, one statement after the other. Rows of a table without a key are a bag, and a delete takes one of the equal
rows; with a key, a row is known by it, and an update or delete needs no more than that.

Everything here works on whole columns; only how many rows the table holds already is asked of the caller, and only of
rows where it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.views.moves import Moves

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: The column of a change that says why it was set aside; with underscores before it, if the table has one.
REASON = "reason"
#: The column with the places of rows, where columns have names of ours.
PLACE = "place"

INSERT, DELETE, BEFORE, AFTER, UPDATE, UNKNOWN = range(6)
#: How logs name operations: Delta's change feed, Debezium, Flink, and plain words.
OPERATIONS = {
    **dict.fromkeys(("insert", "i", "c", "r", "+i", "+"), INSERT),
    **dict.fromkeys(("delete", "d", "-d", "-"), DELETE),
    **dict.fromkeys(("update_preimage", "update_before", "-u"), BEFORE),
    **dict.fromkeys(("update_postimage", "update_after", "+u"), AFTER),
    **dict.fromkeys(("update", "u"), UPDATE),
}
_NO_ROW = "no such row"
_NO_OPERATION = "unknown operation"
_NO_KEY = "the key is NULL"
_UPDATE_NEEDS_KEY = "an update in one change needs a key"
_TAKEN = "the key is there already"


@dataclass(frozen=True)
class Netted:
    """What changes come to: rows that leave, rows that enter, each as often as it does; and changes set aside."""

    removed: pa.Table
    added: pa.Table
    aside: pa.Table


def operations(names: pa.ChunkedArray) -> I64:
    """The operations of changes, as numbers; letter case does not matter.

    >>> operations(pa.chunked_array([["insert", "D", "+U", None, "merge"]])).tolist()
    [0, 1, 3, 5, 5]
    """
    known = pa.array(list(OPERATIONS))
    places = pc.index_in(pc.utf8_lower(names.cast(pa.string())), value_set=known)
    codes = np.append(np.fromiter(OPERATIONS.values(), np.int64), UNKNOWN)
    return codes[np.asarray(pc.fill_null(places, len(OPERATIONS)))]


def one_form(rows: pa.Table) -> pa.Table:
    """The same rows, with one zero and one NaN: SQL takes 0.0 and -0.0, and all that is no number, for equal.

    >>> one_form(pa.table({"x": [-0.0, None, 1.5]}))["x"].to_pylist()
    [0.0, None, 1.5]
    """
    for place, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            nan = pc.if_else(pc.is_nan(rows[field.name]), pa.scalar(float("nan"), field.type), rows[field.name])
            rows = rows.set_column(place, field, pc.add(nan, pa.scalar(0.0, field.type)))
    return rows


def net_bag(
    changes: pa.Table, codes: I64, held: Callable[[pa.Table], I64], columns: Sequence[str] | None = None
) -> Netted:
    """The changes of a table without a key, which has these columns; all that changes have, by default.

    `held(rows)` says how often the table holds each of some distinct rows. A delete of a row that is not there, at that
    point of the order, is set aside. Old and new image of an update are a delete and an insert.
    """
    rows = changes if columns is None else changes.select(list(columns))
    usable = codes < UPDATE
    reasons = np.where(codes == UPDATE, _UPDATE_NEEDS_KEY, _NO_OPERATION).astype(object)
    places = np.flatnonzero(usable)
    if np.isin(codes[places], (INSERT, AFTER)).all():  # nothing leaves: nothing to look for
        return Netted(rows.slice(0, 0), rows.take(places), _aside(changes, ~usable, reasons))
    order, starts = _grouped(rows.take(places), rows.column_names)
    order = places[order]
    lengths = np.diff(starts)
    group = np.repeat(np.arange(len(lengths)), lengths)
    signs = np.where(np.isin(codes[order], (INSERT, AFTER)), 1, -1)
    sums = np.cumsum(signs)
    sums -= np.repeat(np.append(0, sums[starts[1:-1] - 1]), lengths)
    # The running minimum of each group: an offset that falls from group to group keeps them apart.
    fall = group * (2 * len(order) + 2)
    lowest = np.minimum.accumulate(sums - fall) + fall
    ends = starts[1:] - 1
    have = np.zeros(len(lengths), np.int64)
    short = np.flatnonzero(lowest[ends] < 0)
    if len(short):
        have[short] = held(rows.take(order[starts[:-1][short]]))
    # How many deletes of the group have found nothing, so far; a rise marks the delete that did not.
    missed = np.maximum(0, -have[group] - lowest)
    rises = missed > np.where(np.arange(len(order)) == starts[:-1][group], 0, np.roll(missed, 1))
    refused = ~usable
    refused[order[rises]] = True
    reasons[order[rises]] = _NO_ROW
    net = sums[ends] + missed[ends]
    first = order[starts[:-1]]
    left, entered = (rows.take(np.repeat(first, np.maximum(sign * net, 0))) for sign in (-1, 1))
    return Netted(left, entered, _aside(changes, refused, reasons))


def net_keyed(
    changes: pa.Table,
    codes: I64,
    key: Sequence[str],
    held: Callable[[pa.Table], pa.Table],
    ends: Sequence[int] | I64 = (),
) -> Netted:
    """The changes of a table with a key.

    `held(keys)` gives the rows that the table holds for some distinct keys, with the columns that are wanted of rows
    that leave. An insert of a key that is there, an update or delete of one that is not, at that point of the order, is
    set aside. The old image of an update is not needed; if it comes right before the new one and has another key, both
    are a delete and an insert, of which neither is done without the other; and if the new key is that of a row which
    loses it by such an update of the same file, right after, they are of one statement, and that row has lost it.
    Changes before and after one of `ends` never belong together: they came apart, and what they mean may not depend on
    whether they are taken together.
    """
    given, codes = codes, _renamed(changes.select(list(key)), codes, ends)
    moved = given != codes
    nulls = np.zeros(changes.num_rows, np.bool_)
    for name in key:
        nulls |= np.asarray(pc.is_null(changes[name]))
    refused = (codes == UNKNOWN) | nulls
    reasons = np.where(codes == UNKNOWN, _NO_OPERATION, _NO_KEY).astype(object)
    goes = np.flatnonzero(moved & (codes == DELETE))
    refused[goes] = refused[goes + 1] = refused[goes] | refused[goes + 1]
    places = np.flatnonzero(~refused & (codes != BEFORE))
    kinds = np.where(codes == AFTER, UPDATE, codes)
    order, starts = _grouped(changes.select(list(key)).take(places), list(key))
    order = places[order]
    if not len(order):
        return Netted(changes.slice(0, 0), changes.slice(0, 0), _aside(changes, refused, reasons))
    first = order[starts[:-1]]
    old = held(changes.select(list(key)).take(first))
    there = _matches(changes.select(list(key)).take(first), old.select(list(key)))
    existed = np.zeros(len(first), np.bool_)
    existed[there] = True
    lengths = np.diff(starts)
    group = np.repeat(np.arange(len(lengths)), lengths)
    did = kinds[order]
    is_there = _there(did, starts, group, existed)
    valid = np.where(did == INSERT, ~is_there, is_there)
    last = np.full(len(first), -1)
    last[group[valid]] = np.flatnonzero(valid)  # the last valid change of each key wins
    taken = did == INSERT  # why it is refused, if it is
    if moved[order].any():
        files = np.searchsorted(np.asarray(ends, np.int64), order, side="right")
        _decide_moves(moved[order], order, did, group, files, existed, valid, taken, last)
    refused[order[~valid]] = True
    reasons[order[~valid]] = np.where(taken[~valid], _TAKEN, _NO_ROW)
    changed = np.zeros(len(first), np.bool_)
    changed[group[valid]] = True
    stays = changed & (did[last] != DELETE)
    removed = old.take(np.flatnonzero(changed[there]))
    # Of rows that enter no more columns are needed than of those that leave; of changes set aside, all.
    added = changes.select(old.column_names).take(order[last[stays]])
    return Netted(removed, added, _aside(changes, refused, reasons))


def _renamed(keys: pa.Table, codes: I64, ends: Sequence[int] | I64) -> I64:
    """The operations, with an update that changes the key as what it is to a table that knows rows by it."""
    before = np.flatnonzero((codes[:-1] == BEFORE) & (codes[1:] == AFTER))
    before = before[~np.isin(before + 1, ends)]
    same = np.ones(len(before), np.bool_)
    for column in keys.columns:
        old, new = column.take(before), column.take(before + 1)
        equal = pc.equal(old, new)
        if pa.types.is_floating(column.type):
            equal = pc.or_(equal, pc.and_(pc.is_nan(old), pc.is_nan(new)))  # a key like any other
        same &= np.asarray(pc.fill_null(equal, False))
    renamed = codes.copy()
    renamed[before[~same]] = DELETE
    renamed[before[~same] + 1] = INSERT
    return renamed


def _there(did: I64, starts: I64, group: I64, existed: Bools) -> Bools:
    """Whether the key is there before each change: as the last insert or delete before it left it, or as it was."""
    places = np.arange(len(did))
    decided = np.maximum.accumulate(np.where(did != UPDATE, places, -1))
    before = np.where(places == starts[:-1][group], -1, np.append(-1, decided[:-1]))
    return np.where(before >= starts[:-1][group], did[before] == INSERT, existed[group])


def _decide_moves(
    moved: Bools,
    order: I64,
    did: I64,
    group: I64,
    files: I64,
    existed: Bools,
    valid: Bools,
    taken: Bools,
    last: I64,
) -> None:
    """Decide anew about the keys that updates give or take: each of those changes depends on another key as well."""
    apart = np.zeros(len(existed), np.bool_)
    apart[group[moved]] = True
    at = np.flatnonzero(apart[group])
    at = at[np.argsort(order[at])]
    numbers, keys = np.unique(group[at], return_inverse=True)
    comes, goes = did[at] == INSERT, did[at] == DELETE
    columns = (keys, comes, goes, files[at], moved[at], existed[numbers])
    decided = Moves(*(column.tolist() for column in columns)).decide()
    valid[at], taken[at] = decided.valid, decided.taken
    nothing = at[goes][0]  # a key without a row is as after a delete
    last[numbers] = [at[rows[-1]] if rows else nothing for rows in decided.rows]


def _grouped(rows: pa.Table, names: Sequence[str]) -> tuple[I64, I64]:
    """The places of equal rows beside each other, each group in the order of the table, and where groups begin."""
    if not names or not rows.num_rows:
        return np.arange(rows.num_rows), np.array([0, rows.num_rows])
    columns, numbered = with_places(rows.select(names))
    lists = numbered.group_by(columns, use_threads=False).aggregate([(PLACE, "list")])[f"{PLACE}_list"].combine_chunks()
    return np.asarray(lists.flatten()), np.append(0, np.cumsum(np.asarray(lists.value_lengths())))


def with_places(rows: pa.Table) -> tuple[list[str], pa.Table]:
    """The same rows and their places, with names of ours for all columns, since those of users may be any.

    >>> with_places(pa.table({"place": [7, 8]}))[1].to_pydict()
    {'0': [7, 8], 'place': [0, 1]}
    """
    names = [str(number) for number in range(rows.num_columns)]
    return names, rows.rename_columns(names).append_column(PLACE, pa.array(np.arange(rows.num_rows)))


def _matches(distinct: pa.Table, rows: pa.Table) -> I64:
    """For each of some rows, which of some distinct ones it equals. Each equals one of them."""
    both = pa.concat_tables([distinct, rows.cast(distinct.schema)])
    order, starts = _grouped(both, both.column_names)
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    found = np.empty(both.num_rows, np.int64)
    found[order] = order[starts[:-1]][group]
    return found[distinct.num_rows :]


def _aside(changes: pa.Table, refused: Bools, reasons: npt.NDArray[np.object_]) -> pa.Table:
    """The refused ones, each with its reason."""
    where = np.flatnonzero(refused)
    name, taken = REASON, {column.lower() for column in changes.column_names}
    while name in taken:
        name = f"_{name}"
    return changes.take(where).append_column(name, pa.array(reasons[where].tolist(), pa.string()))
