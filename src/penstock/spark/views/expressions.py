"""Our expressions as columns of Spark: built node by node, so that no text of a user ever reaches Spark's parser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from penstock.plan.views.expressions import Call, Column, Expression, Key, Literal, Total

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

Names = Callable[[Column | Key | Total], "SparkColumn"]


def build(expression: Expression, names: Names) -> SparkColumn:
    """The column of Spark; `names` gives those of columns, keys and totals."""
    match expression:
        case Column() | Key() | Total():
            return names(expression)
        case Literal():
            return _constant(expression)
        case Call("in", (subject, *choices)):
            return _in(build(subject, names), [c for c in choices if isinstance(c, Literal)])
        case Call(function, arguments, detail):
            return _BUILDERS[function]([build(argument, names) for argument in arguments], detail)
    raise AssertionError(f"{expression} is not a part of a row")


def condition(expression: Expression, names: Names) -> SparkColumn:
    """The same, to choose rows by: NULL alone has no type, and a condition must be a boolean."""
    return build(expression, names).cast("boolean")


def _constant(literal: Literal) -> SparkColumn:
    value = literal.value
    # Times and dates as they are written. As a moment a time without zone would be that of some time zone, where some
    # hours are missing or twice; and Java's dates before 1582 are those of another calendar.
    if isinstance(value, datetime):
        return fn.lit(value.isoformat()).cast("timestamp" if value.tzinfo else "timestamp_ntz")
    if isinstance(value, date):
        return fn.lit(value.isoformat()).cast("date")
    return fn.lit(value)


def _in(subject: SparkColumn, values: list[Literal]) -> SparkColumn:
    known = [_constant(value) for value in values if value.value is not None]
    found = subject.isin(known) if known else fn.lit(False)
    # With a NULL among the choices nothing is certainly absent.
    return found if len(known) == len(values) else fn.when(found, True)


def _case(arguments: list[SparkColumn], _: str) -> SparkColumn:
    pairs = len(arguments) // 2
    start: Any = fn
    for number in range(pairs):
        start = start.when(arguments[2 * number].cast("boolean"), arguments[2 * number + 1])
    return start.otherwise(arguments[-1]) if len(arguments) % 2 else start


def _function(name: str) -> Callable[[list[Any], str], Any]:
    def apply(arguments: list[Any], _: str) -> Any:
        return getattr(fn, name)(*arguments)

    return apply


def _substring(arguments: list[Any], detail: str) -> Any:
    start, length = (int(bound) for bound in detail.split(","))
    return arguments[0].substr(start, length)


def _round(arguments: list[Any], detail: str) -> Any:
    return fn.round(arguments[0], int(detail))


#: Every function of `penstock.plan.views.scalars`; a division by zero gives NULL, an overflow is an error.
_BUILDERS: dict[str, Callable[[list[Any], str], Any]] = {
    "add": lambda a, _: a[0] + a[1],
    "subtract": lambda a, _: a[0] - a[1],
    "multiply": lambda a, _: a[0] * a[1],
    "divide": _function("try_divide"),
    "modulo": _function("try_mod"),
    "negate": lambda a, _: -a[0],
    "equal": lambda a, _: a[0] == a[1],
    "not_equal": lambda a, _: a[0] != a[1],
    "less": lambda a, _: a[0] < a[1],
    "less_equal": lambda a, _: a[0] <= a[1],
    "greater": lambda a, _: a[0] > a[1],
    "greater_equal": lambda a, _: a[0] >= a[1],
    "and": lambda a, _: reduce(lambda x, y: x & y, a),
    "or": lambda a, _: reduce(lambda x, y: x | y, a),
    "not": lambda a, _: ~a[0],
    "is_null": lambda a, _: a[0].isNull(),
    "like": lambda a, pattern: a[0].like(pattern),
    "case": _case,
    "coalesce": _function("coalesce"),
    "cast": lambda a, type_: a[0].cast(type_),
    "abs": _function("abs"),
    "floor": _function("floor"),
    "ceil": _function("ceil"),
    "round": _round,
    "upper": _function("upper"),
    "lower": _function("lower"),
    "length": _function("length"),
    "substring": _substring,
    "concat": _function("concat"),
    "year": _function("year"),
    "month": _function("month"),
    "day": _function("day"),
}
