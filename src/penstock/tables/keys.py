"""Keys of a join: their kinds, their hashes, which can join at all, which are equal.

Stream rows and table rows go through the same functions, so that a slot, a page and a window agree on where a key is.
Keys that are NULL or NaN in any column equal nothing, not even each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from penstock.errors import BadOption, KeyTypeMismatch, UnknownColumn, UnsupportedType
from penstock.tables import hashing

if TYPE_CHECKING:
    import numpy.typing as npt

    Hashes = npt.NDArray[np.uint64]
    Mask = npt.NDArray[np.bool_]

#: Hash ranges that are never divided; so at most this many slots can share a table by key.
PARTITIONS = 64
_SHIFT = np.uint64(58)

_CAST = {
    "integer": "BIGINT",
    "string": "STRING",
    "binary": "BINARY",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
    "float": "DOUBLE",
}


def slot_of(hashes: Hashes, slots: int) -> npt.NDArray[np.int64]:
    """The slot of each hash: contiguous ranges, never dividing one of the `PARTITIONS`.

    >>> slot_of(np.array([0, 2**63, 2**64 - 1], np.uint64), 2)
    array([0, 1, 1])
    """
    _check_slots(slots)
    owner = np.arange(PARTITIONS, dtype=np.int64) * slots // PARTITIONS
    return owner[(hashes >> _SHIFT).astype(np.intp)]


def hash_range(slot: int, slots: int) -> tuple[int, int]:
    """The hashes `lo <= hash < hi` that belong to a slot.

    >>> hash_range(1, 2) == (2**63, 2**64)
    True
    """
    _check_slots(slots)
    first, last = (-(-part * PARTITIONS // slots) for part in (slot, slot + 1))
    return first << 58, last << 58


def _check_slots(slots: int) -> None:
    if not 1 <= slots <= PARTITIONS:
        raise BadOption(f"slots={slots} is not possible.", do=f"Give a number of slots between 1 and {PARTITIONS}.")


def key_kind(type: pa.DataType) -> str:  # noqa: A002
    """What a key column is, however it is stored: keys of the same kind can be compared.

    >>> key_kind(pa.int8()), key_kind(pa.large_string()), key_kind(pa.decimal128(9, 2))
    ('integer', 'string', 'decimal(scale=2)')
    """
    if pt.is_dictionary(type):
        return key_kind(type.value_type)
    if pt.is_integer(type) and not pt.is_uint64(type):
        return "integer"
    if pt.is_string(type) or pt.is_large_string(type) or pt.is_string_view(type):
        return "string"
    if pt.is_binary(type) or pt.is_large_binary(type) or pt.is_binary_view(type) or pt.is_fixed_size_binary(type):
        return "binary"
    if pt.is_boolean(type):
        return "boolean"
    if pt.is_date(type):
        return "date"
    if pt.is_timestamp(type):
        return "timestamp_ntz" if type.tz is None else "timestamp"
    if pt.is_decimal32(type) or pt.is_decimal64(type) or pt.is_decimal128(type):
        return f"decimal(scale={type.scale})"
    if pt.is_float32(type) or pt.is_float64(type):
        return "float"
    raise UnsupportedType(
        f"A column of type {type} cannot be a join key.",
        why="Keys are integers, strings, binaries, booleans, dates, timestamps, decimals of up to 38 digits or floats.",
        do="Join on another column, or derive a key of one of these types first.",
    )


def check_key_types(left: pa.Schema, left_keys: Sequence[str], right: pa.Schema, right_keys: Sequence[str]) -> None:
    """Refuse keys that are not there, cannot be keys or do not match. `left` is the stream, `right` the table."""
    if len(left_keys) != len(right_keys):
        raise KeyTypeMismatch(
            f"The stream has {len(left_keys)} key column(s) and the table {len(right_keys)}.",
            why=f"Stream: {', '.join(left_keys)}. Table: {', '.join(right_keys)}.",
            do="Name as many columns on one side as on the other, in the same order.",
        )
    for ours, theirs in zip(left_keys, right_keys, strict=True):
        kind, wanted = column_kind(left, ours, "The stream"), column_kind(right, theirs, "The table")
        if kind != wanted:
            has, needs = left.field(ours).type, right.field(theirs).type
            raise KeyTypeMismatch(
                f"The stream's key {ours!r} is {_a(kind)} and the table's key {theirs!r} is {_a(wanted)}.",
                why=f"Their types are {has} and {needs}, and values are not converted on the way.",
                do=f"Cast the stream's column: "
                f"stream.withColumn({ours!r}, col({ours!r}).cast({_target(wanted, needs)!r}))",
            )


def column_kind(schema: pa.Schema, name: str, where: str) -> str:
    """The kind of a key column; `where` names its owner in the errors for one that is not there or cannot be a key."""
    if schema.get_field_index(name) < 0:
        if name in schema.names:
            raise UnknownColumn(f"{where} has more than one column {name!r}.", do="Rename all but one of them.")
        raise UnknownColumn.among(name, schema.names, where)
    try:
        return key_kind(schema.field(name).type)
    except UnsupportedType as error:
        raise UnsupportedType(f"{where}: {name!r}: {error.what}", why=error.why, do=error.do) from None


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "integer" else f"a {kind}"


def _target(kind: str, type: pa.DataType) -> str:  # noqa: A002
    return _CAST.get(kind) or f"DECIMAL({type.precision},{type.scale})"


def hash_keys(columns: Sequence[pa.Array]) -> Hashes:
    """The hash of each row's key, the same for equal keys in any process, slice or integer width.

    Rows that cannot join (see `joinable`) get scattered hashes, which may collide with those of real keys:
    candidates found by hash are to be verified, with `equal_keys` or as `injective` allows.

    >>> a, b = hash_keys([pa.array([7], pa.int8())]), hash_keys([pa.array([1, 7])])
    >>> a[0] == b[1]
    np.True_
    """
    hashes = _hash_column(columns[0])
    for column in columns[1:]:
        hashing.combine(_hash_column(column).view(np.int64), hashes)
    able = joinable(columns)
    if able is not None:
        hashing.scatter(np.flatnonzero(~able), hashes)
    return hashes


def _hash_column(column: pa.Array) -> Hashes:
    values = canonical(column)
    out = np.empty(len(values), np.uint64)
    if len(values) == 0:
        return out
    if isinstance(values, np.ndarray):
        hashing.hash_words(values, out)
        return out
    buffers = values.buffers()
    if pt.is_decimal128(values.type):
        hashing.hash_pairs(buffers[1].address + 16 * values.offset, out)
    else:
        wide = pt.is_large_string(values.type) or pt.is_large_binary(values.type)
        data = 0 if buffers[2] is None else buffers[2].address
        hashing.hash_strings(buffers[1].address, data, int(wide), values.offset, out)
    return out


def canonical(column: pa.Array) -> Any:
    """A key column in the one form its kind is hashed in: int64 words, or an Arrow array of bytes or decimal128."""
    type_ = column.type
    if pt.is_dictionary(type_):
        return canonical(column.dictionary_decode())
    kind = key_kind(type_)
    if kind in ("string", "binary"):
        plain = pt.is_string(type_) or pt.is_binary(type_) or pt.is_large_string(type_) or pt.is_large_binary(type_)
        return column if plain else column.cast(pa.string() if kind == "string" else pa.binary())
    if kind.startswith("decimal"):
        return column if pt.is_decimal128(type_) else column.cast(pa.decimal128(type_.precision, type_.scale))
    if kind == "float":
        # Adding zero turns -0.0 into 0.0 and leaves all else as it is.
        return (_words(column, pa.float64(), np.float64) + 0.0).view(np.int64)
    if kind == "date":
        days = column if pt.is_date32(type_) else column.cast(pa.date32())
        return _words(days, pa.int32(), np.int32).astype(np.int64)
    if kind.startswith("timestamp"):
        same = type_.unit == "us"
        return _words(column if same else column.cast(pa.timestamp("us", type_.tz), safe=False), pa.int64(), np.int64)
    if kind == "boolean":
        return _words(column.cast(pa.int8()), pa.int8(), np.int8).astype(np.int64)
    width = np.dtype(type_.to_pandas_dtype())
    return _words(column, type_, width).astype(np.int64, copy=False)


def _words(column: pa.Array, type_: pa.DataType, width: Any) -> npt.NDArray[Any]:
    """The values buffer as a NumPy view, NULL or not."""
    if pt.is_floating(column.type) and column.type != type_:
        column = column.cast(type_)
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column), width)
    size = np.dtype(width).itemsize
    return np.frombuffer(buffer, width, count=len(column), offset=column.offset * size)


def joinable(columns: Sequence[pa.Array]) -> Mask | None:
    """False where a key column is NULL or NaN; None if every row can join."""
    able: Mask | None = None
    for column in columns:
        ok: Mask | None = None
        if column.null_count:
            ok = column.is_valid().to_numpy(zero_copy_only=False)
        if pt.is_floating(column.type):
            numbers = ~np.isnan(_words(column, pa.float64(), np.float64))
            if not numbers.all():
                ok = numbers if ok is None else ok & numbers
        if ok is not None:
            able = ok if able is None else able & ok
    return able


def injective(types: Sequence[pa.DataType]) -> bool:
    """Whether joinable keys of these types with equal hashes are equal, so that only NULLs are left to look for.

    >>> injective([pa.int32()]), injective([pa.string()]), injective([pa.int32(), pa.int32()])
    (True, False, False)
    """
    return len(types) == 1 and key_kind(types[0]) in ("integer", "boolean", "date", "timestamp", "timestamp_ntz")


def equal_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Mask:
    """Whether the keys in the same place of both sides are equal, by value; NULL and NaN equal nothing."""
    same: Mask | None = None
    for ours, theirs in zip(left, right, strict=True):
        mine, other = canonical(ours), canonical(theirs)
        if isinstance(mine, np.ndarray):
            equal: Mask = mine == other
        else:
            if mine.type != other.type:
                other = other.cast(mine.type) if not pt.is_decimal128(mine.type) else other
            found = pc.equal(mine, other)
            equal = (found.fill_null(False) if found.null_count else found).to_numpy(zero_copy_only=False)
        for able in (joinable([ours]), joinable([theirs])):
            if able is not None:
                equal = equal & able
        same = equal if same is None else same & equal
    if same is None:
        raise ValueError("a key has at least one column")
    return same
