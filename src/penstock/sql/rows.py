"""Expressions over Arrow rows: the filter and the select list of a query, without a job of Spark for each.

The same trees become columns of Spark (`penstock.spark.views.expressions`); the two agree with each other and with
DuckDB on NULL (three-valued logic), on NaN (equal to itself, above all numbers), on division by zero (NULL) and on the
types of numbers. An overflow is an error. `tests/sql/test_rows.py` and `tests/spark/test_sql.py` compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from penstock.errors import BadQuery
from penstock.plan.views.expressions import Call, Column, Expression, Literal
from penstock.sql.catalogue import Catalogue, Function

#: An array, or one value for all rows.
Datum = Any
Lookup = Callable[[Column], Datum]


def evaluate(expression: Expression, rows: Lookup, length: int, functions: Mapping[str, Function]) -> pa.Array:
    """The value of an expression for each row; `rows` gives the columns.

    Everything is calculated for all rows at once. If that fails, then with care: AND, OR, CASE and COALESCE keep rows
    away from what need not be known of them, so that a condition guards what stands behind it.
    """
    try:
        found = _Evaluation(rows, length, functions).value(expression)
    except pa.ArrowInvalid:
        found = _Careful(rows, length, functions).value(expression)
    return _array(found, length)


def type_of(expression: Expression, schemas: Sequence[pa.Schema], catalogue: Catalogue) -> pa.DataType:
    """The type of an expression's values, found by calculating it for no rows."""

    def nothing(column: Column) -> pa.Array:
        return pa.array([], plain_type(schemas[column.source].field(column.name).type))

    found = evaluate(expression, nothing, 0, functions_of(catalogue)).type
    return pa.string() if pt.is_null(found) else found


def functions_of(catalogue: Catalogue) -> dict[str, Function]:
    """The registered functions as expressions name them."""
    return {function.name: function for function in catalogue.functions.values()}


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a column is calculated with: as Spark has it."""
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary_view(kind):
        return pa.binary()
    if pt.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
    return wider.get(kind, kind)


def _plain(found: Datum) -> Datum:
    plain = plain_type(found.type)
    return found if found.type == plain else found.cast(plain)


def _array(found: Datum, length: int) -> pa.Array:
    if isinstance(found, pa.Scalar):
        return pa.nulls(length, found.type) if not found.is_valid else pa.repeat(found, length)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


class _Evaluation:
    def __init__(self, rows: Lookup, length: int, functions: Mapping[str, Function]) -> None:
        self._rows = rows
        self._length = length
        self._functions = functions

    def value(self, expression: Expression) -> Datum:
        match expression:
            case Column():
                return _plain(self._rows(expression))
            case Literal(value, kind):
                return _literal(value, kind)
            case Call("in", (subject, *choices)):
                return self._in(self.value(subject), [self.value(choice) for choice in choices])
            case Call("case", arguments):
                return self._case([self.value(argument) for argument in arguments])
            case Call("registered", arguments, name):
                return self._registered(self._functions[name], [self.value(argument) for argument in arguments])
            case Call(function, arguments, detail):
                return _FUNCTIONS[function]([self.value(argument) for argument in arguments], detail)
        raise AssertionError(f"{expression} is not a part of a row")

    def _registered(self, function: Function, arguments: list[Datum]) -> Datum:
        found = function.apply(*(_array(argument, self._length) for argument in arguments))
        if not hasattr(found, "__len__") or len(found) != self._length:
            said = f"{len(found):,} values" if hasattr(found, "__len__") else f"a {type(found).__name__}"
            raise BadQuery(
                f"The function {function.name!r} gave {said} for {self._length:,} rows.",
                why="Nobody could say which value is of which row.",
                do="Give an array with one value for each row, also where there are none; NULL where nothing is known.",
            )
        return _plain(pa.array(found, function.returns))

    def _in(self, subject: Datum, choices: list[Datum]) -> Datum:
        found = [_FUNCTIONS["equal"]([subject, choice], "") for choice in choices]
        return reduce(pc.or_kleene, found, pa.scalar(False))

    def _case(self, arguments: list[Datum]) -> Datum:
        pairs = len(arguments) // 2
        values = _alike([*arguments[1 : 2 * pairs : 2], *arguments[2 * pairs :]])
        otherwise = values[pairs] if len(values) > pairs else pa.scalar(None, values[0].type)
        for number in reversed(range(pairs)):
            condition = _array(arguments[2 * number].cast(pa.bool_()), self._length)
            # A condition that is NULL is not fulfilled.
            otherwise = pc.if_else(pc.fill_null(condition, False), values[number], otherwise)
        return otherwise


class _Careful(_Evaluation):
    """Calculates for those rows alone whose value depends on it."""

    def value(self, expression: Expression) -> Datum:
        match expression:
            case Call("and" | "or" as function, arguments):
                decided = pa.scalar(function == "or")
                found = _array(pa.scalar(not decided.as_py()), self._length)
                for argument in arguments:
                    asked = pc.fill_null(pc.not_equal(found, decided), True)
                    found = _FUNCTIONS[function]([found, self._where(asked, argument)], "")
                return found
            case Call("coalesce", arguments):
                known = _array(pa.scalar(False), self._length)
                parts = []
                for argument in arguments:
                    parts.append(self._where(pc.invert(known), argument))
                    known = pc.or_(known, parts[-1].is_valid())
                return _coalesce(parts, "")
            case Call("case", arguments):
                left = _array(pa.scalar(True), self._length)
                parts = []
                for condition, then in zip(arguments[::2], arguments[1::2], strict=False):
                    held = pc.fill_null(self._where(left, condition).cast(pa.bool_()), False)
                    parts += [held, self._where(held, then)]
                    left = pc.and_(left, pc.invert(held))
                if len(arguments) % 2:
                    parts.append(self._where(left, arguments[-1]))
                return self._case(parts)
        return super().value(expression)

    def _where(self, asked: pa.Array, expression: Expression) -> pa.Array:
        """The value of an expression for some rows, and NULL for the others."""
        count = asked.true_count

        def chosen(column: Column) -> pa.Array:
            found = self._rows(column)
            return found.filter(asked) if len(asked) else found

        found = _array(_Careful(chosen, count, self._functions).value(expression), count)
        places = pc.if_else(asked, pc.cumulative_sum(asked.cast(pa.int64())), pa.scalar(None, pa.int64()))
        return found.take(pc.subtract(places, 1))


def _literal(value: Any, kind: str) -> pa.Scalar:
    if isinstance(value, bool) or not isinstance(value, int):
        return pa.scalar(value)
    # As Spark has them: the smaller type where the number fits.
    return pa.scalar(value, pa.int32() if -(1 << 31) <= value < 1 << 31 else pa.int64())


def _alike(values: list[Datum], digits: int = 38) -> list[Datum]:
    """Values of one type, the narrowest that has all of them; decimals have at most so many digits."""
    kinds = [value.type for value in values if not pt.is_null(value.type)]
    if not kinds:
        return values
    if any(pt.is_floating(kind) for kind in kinds):
        target = pa.float32() if all(kind == pa.float32() for kind in kinds) else pa.float64()
    elif any(pt.is_decimal(kind) for kind in kinds):
        exact = [kind for kind in kinds if pt.is_decimal(kind)]
        target = _wide(exact, any(pt.is_integer(kind) for kind in kinds), digits)
    elif all(pt.is_integer(kind) for kind in kinds):
        target = max(kinds, key=lambda kind: kind.bit_width)
    else:
        target = kinds[0]
        if pt.is_timestamp(target):
            target = next((kind for kind in kinds if kind.tz), target)
    return [_to(value, target) for value in values]


def _to(value: Datum, target: pa.DataType) -> Datum:
    if value.type == target:
        return value
    if pt.is_floating(target) and pt.is_integer(value.type):
        return value.cast(target, safe=False)  # the nearest, also beyond 2⁵³
    # By way of text: Arrow's own conversion of 0.95 is not the floating number nearest to it.
    return (value.cast(pa.string()) if pt.is_decimal(value.type) and pt.is_floating(target) else value).cast(target)


def _wide(kinds: list[pa.DataType], with_integers: bool, digits: int) -> pa.DataType:
    scale = max(kind.scale for kind in kinds)
    whole = max([kind.precision - kind.scale for kind in kinds] + [19] * with_integers)
    return (pa.decimal128 if digits <= 38 else pa.decimal256)(min(whole + scale, digits), scale)


def _arithmetic(function: str) -> Callable[[list[Datum], str], Datum]:
    def apply(arguments: list[Datum], _: str) -> Datum:
        return pc.call_function(function, _alike(arguments))

    return apply


def _divide(arguments: list[Datum], _: str) -> Datum:
    top, bottom = (_to(argument, pa.float64()) for argument in arguments)
    zero = pc.equal(bottom, 0.0)
    safe = pc.if_else(zero, pa.scalar(None, pa.float64()), bottom)
    return pc.divide(top, safe)


def _modulo(arguments: list[Datum], _: str) -> Datum:
    top, bottom = _alike(arguments)
    if isinstance(top, pa.Scalar) and isinstance(bottom, pa.Scalar):
        top = pa.array([top.as_py()], top.type)
        return _modulo([top, bottom], "")[0]
    length = len(bottom) if isinstance(top, pa.Scalar) else len(top)
    a, b = (_array(side, length) for side in (top, bottom))
    able = pc.and_(pc.and_(a.is_valid(), b.is_valid()), pc.fill_null(pc.not_equal(b, pa.scalar(0, b.type)), False))
    mask = ~able.to_numpy(zero_copy_only=False)
    x, y = (side.fill_null(pa.scalar(0, side.type)).to_numpy(zero_copy_only=False) for side in (a, b))
    with np.errstate(all="ignore"):
        # The sign is that of the first, as in Spark and DuckDB.
        found = np.fmod(x, np.where(mask, 1, y).astype(y.dtype))
    return pa.array(found, a.type, mask=mask)


def _compare(function: str) -> Callable[[list[Datum], str], Datum]:
    def apply(arguments: list[Datum], _: str) -> Datum:
        if any(pt.is_null(argument.type) for argument in arguments):
            return pa.scalar(None, pa.bool_())
        a, b = _alike(arguments, digits=76)  # any two decimals fit there
        found = pc.call_function(function, [a, b])
        if not pt.is_floating(a.type):
            return found
        # NaN equals itself and is above all numbers; Arrow finds it incomparable.
        one, other = pc.is_nan(a), pc.is_nan(b)
        match function:
            case "equal":
                return pc.or_(found, pc.and_(one, other))
            case "not_equal":
                return pc.and_(found, pc.invert(pc.and_(one, other)))
            case "less":
                return pc.or_(found, pc.and_(pc.invert(one), other))
            case "less_equal":
                return pc.or_(found, other)
            case "greater":
                return pc.or_(found, pc.and_(one, pc.invert(other)))
            case _:
                return pc.or_(found, one)

    return apply


def _round_down(function: str) -> Callable[[list[Datum], str], Datum]:
    def apply(arguments: list[Datum], _: str) -> Datum:
        [value] = arguments
        if not pt.is_floating(value.type):
            return value.cast(pa.int64())
        found = pc.call_function(function, [value.cast(pa.float64())])
        # As Spark: NaN is 0, and what is beyond 64 bits an error.
        return pc.if_else(pc.is_nan(found), 0.0, found).cast(pa.int64())

    return apply


def _round(arguments: list[Datum], digits: str) -> Datum:
    [value] = arguments
    if not pt.is_floating(value.type):
        return pc.round(value, int(digits), round_mode="half_towards_infinity")
    # Where floating numbers lie further apart than the last digit there is nothing to round, and Arrow overflows.
    inside = pc.less(pc.abs(value.cast(pa.float64())), 2.0**53 / 10.0 ** int(digits))
    able = pc.if_else(inside, value, pa.scalar(0, value.type))
    return pc.if_else(inside, pc.round(able, int(digits), round_mode="half_towards_infinity"), value)


def _cast(arguments: list[Datum], to: str) -> Datum:
    [value] = arguments
    if to == "double":
        return _to(value, pa.float64())
    if to == "date":
        return (
            value.cast(pa.timestamp("us", value.type.tz)).cast(pa.date32(), safe=False)
            if pt.is_timestamp(value.type)
            else value
        )
    if to in ("int", "bigint"):
        target = pa.int32() if to == "int" else pa.int64()
        if pt.is_floating(value.type):
            return pc.trunc(value).cast(target)
        if pt.is_decimal(value.type):
            # Without what stands after the point; Arrow's own conversion may give a number that is another. With room
            # for a digit before it, which Arrow asks for and a decimal(4, 4) does not have.
            return pc.trunc(value.cast(pa.decimal256(76, value.type.scale))).cast(pa.decimal256(76, 0)).cast(target)
        return value.cast(target)
    precision, scale = (int(part) for part in to.removeprefix("decimal(").rstrip(")").split(","))
    if pt.is_floating(value.type):
        value = _round([value], str(scale))
    elif pt.is_decimal(value.type) and value.type.scale > scale:
        # With room for one digit more: without, Arrow rounds 9.9 to 0.
        value = _round([value.cast(pa.decimal256(76, value.type.scale))], str(scale))
    elif pt.is_integer(value.type):
        # Arrow asks for room for every number of the type; here those that are there have to fit.
        value = value.cast(pa.decimal256(19 + scale, scale))
    return value.cast(pa.decimal128(precision, scale))


def _substring(arguments: list[Datum], detail: str) -> Datum:
    start, length = (int(bound) for bound in detail.split(","))
    return pc.utf8_slice_codeunits(arguments[0], start - 1, start - 1 + length)


def _like(arguments: list[Datum], pattern: str) -> Datum:
    text = arguments[0].cast(pa.string())
    # Arrow finds every text to be like no text at all.
    return pc.match_like(text, pattern) if pattern else pc.equal(text, "")


def _text(function: Callable[[Datum], Datum]) -> Callable[[list[Datum], str], Datum]:
    return lambda arguments, _: function(arguments[0].cast(pa.string()))


def _part(function: Callable[[Datum], Datum]) -> Callable[[list[Datum], str], Datum]:
    return lambda arguments, _: function(arguments[0]).cast(pa.int32())


def _logic(function: Callable[[Datum, Datum], Datum]) -> Callable[[list[Datum], str], Datum]:
    return lambda arguments, _: reduce(function, (argument.cast(pa.bool_()) for argument in arguments))


def _coalesce(arguments: list[Datum], _: str) -> Datum:
    return pc.coalesce(*_alike(arguments))


#: Every function of `penstock.plan.views.scalars`, as `penstock.spark.views.expressions` has them.
_FUNCTIONS: dict[str, Callable[[list[Datum], str], Datum]] = {
    "add": _arithmetic("add_checked"),
    "subtract": _arithmetic("subtract_checked"),
    "multiply": _arithmetic("multiply_checked"),
    "divide": _divide,
    "modulo": _modulo,
    "negate": lambda a, _: pc.negate_checked(a[0]),
    "equal": _compare("equal"),
    "not_equal": _compare("not_equal"),
    "less": _compare("less"),
    "less_equal": _compare("less_equal"),
    "greater": _compare("greater"),
    "greater_equal": _compare("greater_equal"),
    "and": _logic(pc.and_kleene),
    "or": _logic(pc.or_kleene),
    "not": lambda a, _: pc.invert(a[0].cast(pa.bool_())),
    "is_null": lambda a, _: pc.is_null(a[0]),
    "like": _like,
    "coalesce": _coalesce,
    "cast": _cast,
    "abs": lambda a, _: pc.abs_checked(a[0]),
    "floor": _round_down("floor"),
    "ceil": _round_down("ceil"),
    "round": _round,
    "upper": _text(pc.utf8_upper),
    "lower": _text(pc.utf8_lower),
    "length": _text(pc.utf8_length),
    "substring": _substring,
    "concat": lambda a, _: pc.binary_join_element_wise(
        *(x.cast(pa.string()) for x in a), "", null_handling="emit_null"
    ),
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
}
