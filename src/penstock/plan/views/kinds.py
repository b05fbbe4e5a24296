"""What kind of value an expression has, so that nothing is converted behind the user's back.

Spark would compare a text with a number by casting, and fail, or give NULL, on the first row that does not fit, long
after the view was made. Here both are refused when the view is made.
"""

from __future__ import annotations

import pyarrow as pa

NUMBER, FLOAT, TEXT, BOOLEAN, DATE, TIME, BINARY, NULL = (
    "number",
    "floating number",
    "text",
    "boolean",
    "date",
    "timestamp",
    "binary",
    "NULL",
)


def kind_of(type_: pa.DataType) -> str | None:
    """The kind of an Arrow type; None for one that a view cannot hold."""
    if pa.types.is_integer(type_) or pa.types.is_decimal128(type_):
        # Spark has no unsigned integers; those of 8 to 32 bits fit the next larger, those of 64 do not.
        return None if type_ == pa.uint64() else NUMBER
    if pa.types.is_float32(type_) or pa.types.is_float64(type_):
        return FLOAT
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return TEXT
    if pa.types.is_boolean(type_):
        return BOOLEAN
    if pa.types.is_date32(type_):
        return DATE
    if pa.types.is_timestamp(type_):
        return TIME
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return BINARY
    return None


def is_numeric(kind: str) -> bool:
    """Whether one can calculate with it."""
    return kind in (NUMBER, FLOAT, NULL)


def common(kinds: list[str]) -> str | None:
    """The kind of values of all these kinds together; None if they do not go together."""
    known = set(kinds) - {NULL}
    if not known:
        return NULL
    if known <= {NUMBER, FLOAT}:
        return FLOAT if FLOAT in known else NUMBER
    return known.pop() if len(known) == 1 else None
