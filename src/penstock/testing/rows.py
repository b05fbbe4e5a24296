"""Compare tables as bags of rows, whatever the values in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

Row = tuple[Hashable, ...]


def bag(table: pa.Table | pa.RecordBatch) -> Counter[Row]:
    """How often each row occurs.

    Rows are equal as SQL's `IS NOT DISTINCT FROM` has it: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. Times
    count as their integers, so nothing is lost below a microsecond, beyond the year 9999 or in a repeated hour; nested
    values become tuples.

    >>> bag(pa.table({"x": [float("nan"), 0.0, -0.0, float("nan"), None]}))
    Counter({(NaN,): 2, (0.0,): 2, (None,): 1})
    """
    return Counter(_rows(table))


def assert_same_rows(
    got: pa.Table | pa.RecordBatch,
    want: pa.Table | pa.RecordBatch,
    *,
    ordered: bool = False,
    label: str = "rows",
    cap: int = 10,
) -> None:
    """Fail, saying which rows are missing and which unexpected (`cap` of each), unless both are the same bag.

    Columns must have the same names and types in the same order; whether they may be null is not compared. With
    `ordered` the rows must come in the same order, too.

    >>> assert_same_rows(pa.table({"k": [1, 1, 2]}), pa.table({"k": [2, 1, 3]}))
    Traceback (most recent call last):
    ...
    AssertionError: rows differ: got 3, want 3.
      missing, 1 of 1 kinds:
        1 × k=3
      unexpected, 1 of 1 kinds:
        1 × k=1
    """
    shape, wanted = ([(f.name, f.type) for f in table.schema] for table in (got, want))
    if shape != wanted:
        raise AssertionError(f"{label} have other columns.\n  got:  {_columns(shape)}\n  want: {_columns(wanted)}")
    have, expected = _rows(got), _rows(want)
    if have == expected:
        return
    missing, unexpected = Counter(expected) - Counter(have), Counter(have) - Counter(expected)
    if missing or unexpected:
        lines = [f"{label} differ: got {len(have):,}, want {len(expected):,}."]
        lines += _differences("missing", missing, want, expected, cap)
        lines += _differences("unexpected", unexpected, got, have, cap)
        raise AssertionError("\n".join(lines))
    if ordered:
        at = next(i for i, (a, b) in enumerate(zip(have, expected, strict=True)) if a != b)
        raise AssertionError(
            f"{label} come in another order, first at row {at}.\n  got:  {_show(got, at)}\n  want: {_show(want, at)}"
        )


class _NaN:
    """All NaNs are one, as a value that equals itself."""

    def __repr__(self) -> str:
        return "NaN"


_NAN = _NaN()


def _rows(table: pa.Table | pa.RecordBatch) -> list[Row]:
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*(_values(column) for column in table.columns), strict=True))


def _values(column: pa.Array | pa.ChunkedArray) -> list[Hashable]:
    """A column as values that are equal and hash alike exactly where rows are to count as the same."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in _values(chunk)]
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _values(column.storage)
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if pa.types.is_floating(kind):
        return [_NAN if value != value else value for value in column.to_pylist()]
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    if pa.types.is_struct(kind):
        fields = [_values(field) for field in column.flatten()]
        return _unless_null(column, zip(*fields, strict=True) if fields else ((),) * len(column))
    if pa.types.is_map(kind):
        pairs = list(zip(_values(column.keys), _values(column.items), strict=True))
        return _lists(column, pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column, _values(column.values))
    if pa.types.is_fixed_size_list(kind):
        values, size, start = _values(column.values), kind.list_size, column.offset
        return _unless_null(column, (tuple(values[(start + i) * size :][:size]) for i in range(len(column))))
    return column.to_pylist()


def _lists(column: pa.Array, values: list[Hashable] | list[tuple[Hashable, Hashable]]) -> list[Hashable]:
    ends = column.offsets.to_pylist()
    return _unless_null(column, (tuple(values[a:b]) for a, b in pairwise(ends)))


def _unless_null(column: pa.Array, values: Iterable[Hashable]) -> list[Hashable]:
    return [value if valid else None for value, valid in zip(values, column.is_valid().to_pylist(), strict=True)]


def _differences(
    what: str, kinds: Counter[Row], table: pa.Table | pa.RecordBatch, rows: list[Row], cap: int
) -> list[str]:
    if not kinds:
        return []
    shown = list(kinds.items())[:cap]
    lines = [f"  {what}, {len(shown)} of {len(kinds):,} kinds:"]
    return lines + [f"    {count} × {_show(table, rows.index(row))}" for row, count in shown]


def _show(table: pa.Table | pa.RecordBatch, at: int) -> str:
    """One row for people: times as text, long values cut."""
    return ", ".join(f"{name}={_text(table.column(name)[at])}" for name in table.schema.names)


def _text(value: pa.Scalar) -> str:
    # Through Arrow where Python's own types are narrower: nanoseconds, years beyond 9999.
    temporal = pa.types.is_temporal(value.type) and value.is_valid
    text = str(pc.cast(value, pa.string())) if temporal else repr(value.as_py())
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text):,} characters)"


def _columns(shape: list[tuple[str, pa.DataType]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in shape)
