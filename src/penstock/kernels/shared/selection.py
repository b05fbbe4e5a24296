"""What a query wants of the pairs in its window, as data: conditions on columns that a file of changes can carry."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
    """Conditions all of which a result must meet; NULL meets none.

    >>> rows = pa.record_batch({"amount": [50, 150, None], "kind": ["a", "b", "b"]})
    >>> Selection.of([("amount", ">", 100), ("kind", "in", ["b", "c"])], rows.schema)(rows).to_pylist()
    [False, True, False]
    """

    conditions: tuple[Condition, ...]

    @classmethod
    def of(cls, given: Sequence[Condition], results: pa.Schema) -> Selection:
        """Conditions that results of this schema can be asked; raises `BadOption` for others."""
        made = cls(tuple((column, how, value) for column, how, value in given))
        for condition in made.conditions:
            made._check(*condition, results)
        return made

    @classmethod
    def read(cls, text: str, results: pa.Schema) -> Selection:
        """As `written` wrote it."""
        try:
            return cls.of([(column, how, value) for column, how, value in json.loads(text)], results)
        except (ValueError, TypeError):
            raise BadOption("Its selection cannot be read.") from None

    def written(self) -> str:
        """As a file has it.

        >>> Selection((("at", "<", dt.date(2024, 5, 1)),)).written()
        '[["at", "<", "2024-05-01"]]'
        """
        return json.dumps(self.conditions, default=_plain)

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

    def _check(self, column: str, how: str, value: Any, results: pa.Schema) -> None:
        if column not in results.names:
            raise BadOption(f"A result has no column {column!r}.", do=f"Its columns are: {', '.join(results.names)}.")
        if how not in (*_COMPARES, *_AMONG):
            raise BadOption(f"{how!r} compares nothing.", do=f"Use one of: {', '.join((*_COMPARES, *_AMONG))}.")
        kind = results.field(column).type
        try:
            json.dumps(value, default=_plain)
            if value is None:
                raise TypeError
            _holds(pa.array([], kind), how, value)
        except (pa.ArrowException, TypeError, ValueError):
            raise BadOption(
                f"{column!r}, a column of {kind}, cannot be compared ({how}) with {value!r}.",
                do='Give numbers, text, times, or for "in" a list of these.',
            ) from None


def _holds(column: pa.Array, how: str, value: Any) -> Any:
    if how in _AMONG:
        # NULL is neither in nor not in.
        found = pc.and_(pc.is_in(column, pa.array(list(value)).cast(column.type)), pc.is_valid(column))
        return found if how == "in" else pc.and_(pc.invert(found), pc.is_valid(column))
    other = pa.scalar(value)
    numbers = isinstance(value, int | float) and not isinstance(value, bool)
    return _COMPARES[how](column, other if numbers else other.cast(column.type))


def _plain(value: Any) -> str:
    if isinstance(value, dt.date | dt.datetime | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written")
