"""What a query wants of the pairs in its window, as data: conditions on columns that a file of changes can carry."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from penstock.errors import BadOption

#: A column of the results, how it is compared, and with what.
Condition = tuple[str, str, Any]

_COMPARES: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_AMONG = ("in", "not in")


@dataclass(frozen=True)
class Selection:
    """Conditions all of which a result must meet; NULL meets none. Values are such as a file can carry.

    >>> rows = pa.record_batch({"amount": [50, 150, None], "kind": ["a", "b", "b"]})
    >>> Selection.of([("amount", ">", 100), ("kind", "in", ["b", "c"])], rows.schema)(rows).to_pylist()
    [False, True, False]
    """

    conditions: tuple[Condition, ...]

    @classmethod
    def of(cls, given: Sequence[Condition], results: pa.Schema) -> Selection:
        """Conditions that results of this schema can be asked; raises `BadOption` for others."""
        several: object = given
        if not isinstance(several, list | tuple) or not all(
            isinstance(o, list | tuple) and len(o) == 3 for o in several
        ):
            raise BadOption(
                f"select={given!r} is not a list of conditions.",
                do='Give columns, comparisons and values: select=[("amount", ">", 100), ("kind", "in", ["a", "b"])].',
            )
        return cls(tuple((column, how, _checked(column, how, value, results)) for column, how, value in given))

    @classmethod
    def read(cls, text: str, results: pa.Schema) -> Selection:
        """As `written` wrote it."""
        try:
            return cls.of([(column, how, value) for column, how, value in json.loads(text)], results)
        except (ValueError, TypeError):
            raise BadOption("Its selection cannot be read.") from None

    def written(self) -> str:
        """As a file has it.

        >>> at = pa.schema([("at", pa.timestamp("us", "UTC"))])
        >>> Selection.of([("at", "<", dt.datetime(2024, 5, 1))], at).written()
        '[["at", "<", "2024-05-01T00:00:00+00:00"]]'
        """
        return json.dumps(self.conditions)

    def __call__(self, rows: pa.RecordBatch) -> pa.Array:
        """One truth value for each row."""
        found = None
        for column, how, value in self.conditions:
            one = pc.fill_null(_holds(rows.column(column), how, value), False)
            found = one if found is None else pc.and_(found, one)
        return found

    def describe(self) -> str:
        """For people."""
        return " and ".join(f"{column} {how} {value!r}" for column, how, value in self.conditions)


def _checked(column: str, how: str, value: Any, results: pa.Schema) -> Any:
    """The value of a condition as a file carries it; raises `BadOption` where the condition cannot be asked."""
    if column not in results.names:
        raise BadOption(f"A result has no column {column!r}.", do=f"Its columns are: {', '.join(results.names)}.")
    if how not in (*_COMPARES, *_AMONG):
        raise BadOption(f"{how!r} compares nothing.", do=f"Use one of: {', '.join((*_COMPARES, *_AMONG))}.")
    kind = results.field(column).type
    try:
        if how in _AMONG and isinstance(value, str):
            raise TypeError
        plain = [_plain(one, kind) for one in value] if how in _AMONG else _plain(value, kind)
        json.dumps(plain)
        _holds(pa.array([], kind), how, plain)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise BadOption(
            f"{column!r}, a column of {kind}, cannot be compared ({how}) with {value!r}.",
            do='Give numbers, text, times, or for "in" a list of these.',
        ) from None
    return plain


def _holds(column: pa.Array, how: str, value: Any) -> Any:
    if how in _AMONG:
        among = _among(value, column.type)
        if pt.is_floating(column.type):
            # Adding zero turns -0.0 into 0.0: values are looked up by their bits.
            column, among = (pc.add(numbers, pa.scalar(0.0, column.type)) for numbers in (column, among))
        # NULL is neither in nor not in.
        found = pc.and_(pc.is_in(column, among), pc.is_valid(column))
        return found if how == "in" else pc.and_(pc.invert(found), pc.is_valid(column))
    other = _scalar(value, column.type)
    if pt.is_integer(column.type) and pt.is_floating(other.type):
        # As floats: whole numbers that these cannot tell apart lie on the same side of a fraction.
        column = column.cast(pa.float64(), safe=False)
    if pt.is_decimal(column.type) and pt.is_decimal(other.type):
        wide = pa.decimal256(76, max(column.type.scale, other.type.scale))  # any two fit there
        column, other = column.cast(wide), other.cast(wide)
    return _COMPARES[how](column, other)


def _among(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A list as an array of a column's type; NaN, which equals nothing, is left out."""
    if pt.is_decimal(kind):
        values = [str(one) for one in values]
    return pa.array([one for one in values if one == one]).cast(kind)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """What a column of this type is compared with. Whole numbers are compared as such, not by way of a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return pa.scalar(value).cast(kind)
    if pt.is_floating(kind):
        return pa.scalar(float(value), kind)
    if pt.is_decimal(kind) and math.isfinite(value):
        return pa.scalar(decimal.Decimal(repr(value)))  # as it is written: the float nearest to 0.95 is another number
    return pa.scalar(int(value), pa.int64()) if float(value).is_integer() else pa.scalar(value)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """As JSON has it. Times are those of the column: without a zone beside one that has, they are in UTC."""
    if isinstance(value, bool | int | float | str):
        return value
    if value is None:
        raise TypeError("nothing is NULL")
    if pt.is_date(kind) and isinstance(value, dt.datetime) and value.time() != dt.time.min:
        raise TypeError("no day begins then")
    same = pa.scalar(value).cast(kind).as_py()
    if isinstance(same, dt.date | dt.datetime | dt.time):
        return same.isoformat()
    return str(same) if isinstance(same, decimal.Decimal) else same
