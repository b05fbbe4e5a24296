"""Which rows a table holds, as far as the view is: read by Arrow, with only the rows that can match in memory.

A refresh asks this of rows that are to leave the table, or that must not be there yet. It is a pass over the columns of
the key, or over all columns of a table without one, row group by row group; those whose statistics exclude a match are
not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.kernels.views.net import PLACE, one_form, with_places
from penstock.spark.views.groups import SIGN
from penstock.spark.views.parquet import FORMAT
from penstock.spark.views.store import File, TableVersion


def held_rows(version: TableVersion, keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows of a table whose key is one of `keys`, none of which is NULL, as often as they are there."""
    found, signs = _candidates(version, keys, schema)
    # Each key column fits some wanted key; only whole keys count.
    names, numbered = with_places(found.select(keys.column_names))
    real = numbered.join(keys.rename_columns(names), names, join_type="left semi", use_threads=False)[PLACE]
    places = np.sort(np.asarray(real))
    return _netted(found.take(places), signs[places])


def held_counts(version: TableVersion, rows: pa.Table) -> npt.NDArray[np.int64]:
    """How often a table holds each of some distinct rows."""
    found, signs = _candidates(version, rows, rows.schema)
    # Those asked for come first, and each of them is there once.
    both = pa.concat_tables([rows, found])
    first, sums = _sums(both, np.concatenate([np.zeros(rows.num_rows, np.int64), signs]))
    counts = np.zeros(rows.num_rows, np.int64)
    counts[first[first < rows.num_rows]] = sums[first < rows.num_rows]
    return counts


def first_rows(version: TableVersion, schema: pa.Schema, most: int) -> pa.Table:
    """Some distinct rows of a table."""
    found = schema.empty_table()
    for rows, _ in _scan(version.base, schema, signed=False):
        found = pa.concat_tables([found, rows.slice(0, most - found.num_rows)])
        if found.num_rows >= most:
            break
    return found.group_by(schema.names).aggregate([]).select(schema.names) if found.num_rows else found


def netted_parts(parts: Sequence[File], schema: pa.Schema) -> pa.Table:
    """Several parts as one, without rows that entered and left."""
    scanned = list(_scan(parts, schema, signed=True))
    rows = pa.concat_tables([schema.empty_table(), *(table for table, _ in scanned)])
    first, sums = _sums(rows, np.concatenate([np.zeros(0, np.int64), *(signs for _, signs in scanned)]))
    places = np.repeat(first, np.abs(sums))
    signs = np.repeat(np.sign(sums), np.abs(sums)).astype(np.int8)
    return rows.take(places).append_column(SIGN, pa.array(signs))


def _candidates(version: TableVersion, wanted: pa.Table, schema: pa.Schema) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Rows each of whose wanted columns has some wanted value, with their signs."""
    condition, after = ds.scalar(True), None
    for name in wanted.column_names:
        values = wanted[name].combine_chunks().unique()
        fits = ds.field(name).isin(values)
        if pa.types.is_floating(values.type):
            fits = fits | ds.field(name).is_nan() | (ds.field(name) == 0.0)  # in any form; they are few
        if values.null_count:
            fits = fits | ds.field(name).is_null()
        elif pa.types.is_integer(values.type):
            # Statistics of row groups are compared with a range, not with each of many values.
            low, high = pc.min_max(values).values()
            fits = (ds.field(name) >= low) & (ds.field(name) <= high) & fits
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            after = fits if after is None else after & fits  # statistics pass over NaN
        else:
            condition = condition & fits
    parts, signs = [schema.empty_table()], [np.zeros(0, np.int64)]
    for files, signed in ((version.base, False), (version.parts, True)):
        for rows, sign in _scan(files, schema, condition, after, signed=signed):
            parts.append(rows)
            signs.append(sign)
    return pa.concat_tables(parts), np.concatenate(signs)


def _scan(
    files: Sequence[File],
    schema: pa.Schema,
    condition: ds.Expression | None = None,
    after: ds.Expression | None = None,
    *,
    signed: bool,
) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64]]]:
    """Rows that pass both conditions, with their signs; by the first, row groups are left out as a whole."""
    if not files:
        return
    whole = schema.append(pa.field(SIGN, pa.int8())) if signed else schema
    found = ds.dataset([file.path for file in files], schema=whole, format=FORMAT)
    for batch in found.to_batches(filter=condition):
        rows = pa.Table.from_batches([batch])
        rows = rows.filter(after) if after is not None else rows
        if rows.num_rows:
            signs = np.asarray(rows[SIGN]).astype(np.int64) if signed else np.ones(rows.num_rows, np.int64)
            yield one_form(rows.select(schema.names)), signs


def _netted(rows: pa.Table, signs: npt.NDArray[np.int64]) -> pa.Table:
    """Rows as often as their signs add up to."""
    if (signs > 0).all():
        return rows
    first, sums = _sums(rows, signs)
    return rows.take(np.repeat(first, np.maximum(sums, 0)))


def _sums(rows: pa.Table, signs: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Of each distinct row, the first place where it is, and what its signs add up to."""
    names, numbered = with_places(rows)
    signed = numbered.append_column(SIGN, pa.array(signs))
    groups = signed.group_by(names, use_threads=False).aggregate([(PLACE, "min"), (SIGN, "sum")])
    return np.asarray(groups[f"{PLACE}_min"]), np.asarray(groups[f"{SIGN}_sum"])
