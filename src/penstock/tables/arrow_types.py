"""The types a table's rows travel in: what Spark knows, and nothing else.

Stored types that differ only in storage are brought to one form (dictionaries to plain values, `large_` and view types
to the normal ones, unsigned integers to the next wider signed one, timestamps to microseconds, zones to UTC). A type
that Spark has no counterpart for is refused when the table is planned, with the column's name.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from penstock.errors import UnreadableTable, UnsupportedType

_UNSIGNED = {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}


def spark_type(stored: pa.DataType, column: str, physical: Iterator[str] | None = None) -> pa.DataType:
    """The type in which a column of this stored type is read.

    `physical` yields the Parquet type of each leaf in order: an INT96 is an instant though Arrow gives it no zone.

    >>> spark_type(pa.dictionary(pa.int32(), pa.large_string()), "name")
    DataType(string)
    """
    if isinstance(stored, pa.BaseExtensionType):
        return spark_type(stored.storage_type, column, physical)
    if pt.is_dictionary(stored):
        return spark_type(stored.value_type, column, physical)
    if pt.is_struct(stored):
        return pa.struct([pa.field(f.name, spark_type(f.type, f"{column}.{f.name}", physical)) for f in stored])
    if pt.is_map(stored):
        return pa.map_(
            spark_type(stored.key_type, f"{column}.key", physical),
            spark_type(stored.item_type, f"{column}.value", physical),
        )
    if _is_list(stored):
        return pa.list_(spark_type(stored.value_type, f"{column}.element", physical))
    leaf = next(physical, "") if physical is not None else ""
    return _leaf(stored, column, leaf)


def _leaf(stored: pa.DataType, column: str, physical: str) -> pa.DataType:
    if pt.is_signed_integer(stored) or pt.is_boolean(stored) or pt.is_float32(stored) or pt.is_float64(stored):
        return stored
    if pt.is_unsigned_integer(stored) and stored.bit_width in _UNSIGNED:
        return _UNSIGNED[stored.bit_width]
    if pt.is_string(stored) or pt.is_large_string(stored) or pt.is_string_view(stored):
        return pa.string()
    if _is_bytes(stored):
        return pa.binary()
    if pt.is_date(stored):
        return pa.date32()
    if pt.is_timestamp(stored):
        return pa.timestamp("us", "UTC" if stored.tz is not None or physical == "INT96" else None)
    if _is_small_decimal(stored) and 0 <= stored.scale <= stored.precision:
        return pa.decimal128(stored.precision, stored.scale)
    raise UnsupportedType(
        f"Column {column!r} has type {stored}, for which Spark has no counterpart.",
        why="Rows of the table leave the join as Spark rows.",
        do=f"Write the table without the column, or with another type: {_remedy(stored)}.",
    )


def _is_list(stored: pa.DataType) -> bool:
    return (
        pt.is_list(stored)
        or pt.is_large_list(stored)
        or pt.is_fixed_size_list(stored)
        or pt.is_list_view(stored)
        or pt.is_large_list_view(stored)
    )


def _is_bytes(stored: pa.DataType) -> bool:
    return (
        pt.is_binary(stored)
        or pt.is_large_binary(stored)
        or pt.is_binary_view(stored)
        or pt.is_fixed_size_binary(stored)
    )


def _is_small_decimal(stored: pa.DataType) -> bool:
    return pt.is_decimal32(stored) or pt.is_decimal64(stored) or pt.is_decimal128(stored)


def _remedy(stored: pa.DataType) -> str:
    if pt.is_uint64(stored):
        return "decimal(20, 0), or int64 if all values are below 2^63"
    if pt.is_time(stored) or pt.is_duration(stored):
        return "int64, counting microseconds"
    if pt.is_float16(stored):
        return "float32"
    if pt.is_decimal(stored):
        return "a decimal of at most 38 digits and a scale between 0 and its precision"
    if pt.is_null(stored):
        return "the type its values would have (it holds only NULLs)"
    return "one that Spark can read"


def as_spark(column: pa.Array, wanted: pa.DataType, name: str = "") -> pa.Array:
    """The column in the type that `spark_type` gave for it; `name` is for errors."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if column.type == wanted:
        return column
    # Nanoseconds lose what microseconds cannot hold. Nothing else here can lose anything.
    try:
        return column.cast(options=pc.CastOptions(wanted, allow_time_truncate=True))
    except pa.ArrowInvalid as error:
        if "out of bounds timestamp" not in str(error):
            raise
        raise UnreadableTable(
            f"The table's column {name!r} has a time that is too far away: {str(error).rpartition(' ')[2]} ms.",
            why="Times are microseconds in Spark, which reach about 290,000 years from 1970.",
            do="Write the table with NULL, or a nearer time, in its place.",
        ) from None


def has_views(stored: pa.DataType) -> bool:
    """Whether there are texts or bytes in it that lie elsewhere, from which Arrow cannot pick.

    >>> has_views(pa.list_(pa.string_view())), has_views(pa.list_(pa.string()))
    (True, False)
    """
    inside = any(has_views(stored.field(i).type) for i in range(stored.num_fields))
    return inside or pt.is_string_view(stored) or pt.is_binary_view(stored)


def fixed_width(type: pa.DataType) -> int | None:  # noqa: A002
    """Bytes of one value, or None where they vary."""
    try:
        return (type.bit_width + 7) // 8
    except ValueError:
        return None
