"""Constants that are given beside a text, by name, as expressions."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from penstock.errors import BadOption, PlanError
from penstock.plan.views import kinds
from penstock.plan.views.expressions import Literal, Value
from penstock.plan.views.scalars import MOST_DIGITS

#: What a constant may be. The order matters: TRUE is a number in Python, and a moment a date.
_KINDS: tuple[tuple[type, str], ...] = (
    (bool, kinds.BOOLEAN),
    (int, kinds.NUMBER),
    (float, kinds.FLOAT),
    (str, kinds.TEXT),
    (datetime, kinds.TIME),
    (date, kinds.DATE),
)


def constant(value: Value) -> Literal:
    """A value as part of an expression.

    >>> constant(25.0), constant(True).kind
    (Literal(value=25.0, kind='floating number'), 'boolean')
    """
    if value is None:
        return Literal(None, kinds.NULL)
    for type_, kind in _KINDS:
        if isinstance(value, type_):
            if isinstance(value, int) and abs(value) >= 1 << 63:
                raise BadOption(f"{value} is more than 64 bits can count.")
            if isinstance(value, datetime):
                # A moment without a zone is in UTC, wherever the program runs.
                try:
                    return Literal(value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC), kind)
                except OverflowError:
                    raise BadOption(f"{value} is not between the years 1 and 9999 of UTC.") from None
            return Literal(value, kind)
    if isinstance(value, Decimal):
        return exactly(value)
    raise BadOption(
        f"A {type(value).__name__} is not a constant of a query.",
        do="Give a number, a text, a boolean, a date or a time.",
    )


def exactly(value: Decimal) -> Literal:
    """A decimal as part of an expression; one that no column of decimals could hold, as a floating number.

    >>> exactly(Decimal("0.95")).kind, exactly(Decimal("Infinity")).value, exactly(Decimal("1e30")).value
    ('decimal', inf, Decimal('1000000000000000000000000000000'))
    """
    _, digits, exponent = value.as_tuple()
    # A number before the point takes a digit however it is written, and one behind it does.
    if not isinstance(exponent, int) or max(len(digits) + max(exponent, 0), -exponent) > MOST_DIGITS:
        return Literal(float(value), kinds.FLOAT)
    return Literal(Decimal(int(value)) if exponent > 0 else value, "decimal")


def nearest(value: Any, kind: pa.DataType, *, upper: bool, strict: bool) -> Any:
    """The end of a range that includes it: the last value of a column's type that the bound lets in.

    >>> nearest(2.5, pa.int64(), upper=False, strict=False), nearest(3, pa.int64(), upper=True, strict=True)
    (3, 2)
    """
    try:
        # NaN is above all numbers: what it lets in is no range.
        found = None if value != value else _nearest(value, kind, upper=upper, strict=strict)
    except (OverflowError, InvalidOperation):
        found = None
    if found is None or (isinstance(found, int) and not -(1 << 63) <= found < 1 << 63):
        raise PlanError(
            f"A range of {kind} has no end {value if isinstance(value, int | float) else str(value)!r}.",
            why="Ranges are of numbers, dates and timestamps, and end where these do.",
            do="Leave that end out, or cast it.",
        )
    return found


def _nearest(value: Any, kind: pa.DataType, *, upper: bool, strict: bool) -> Any:
    if pt.is_integer(kind) and isinstance(value, int | float | Decimal):
        if isinstance(value, float) and not math.isfinite(value):
            return value
        whole = math.floor(value) if upper else math.ceil(value)
        return whole if not strict or whole != value else whole - 1 if upper else whole + 1
    if pt.is_floating(kind) and isinstance(value, int | float | Decimal):
        end = float(value)
        return math.nextafter(end, -math.inf if upper else math.inf) if strict else end
    if pt.is_decimal(kind) and isinstance(value, int | float | Decimal):
        step = Decimal(1).scaleb(-kind.scale)
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        last = exact.quantize(step, ROUND_FLOOR if upper else ROUND_CEILING)
        return last if not strict or last != exact else last - step if upper else last + step
    if pt.is_timestamp(kind) and isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        moment = moment if kind.tz else moment.replace(tzinfo=None)
        return moment + timedelta(microseconds=(-1 if upper else 1) * strict)
    if pt.is_date(kind) and isinstance(value, date) and not isinstance(value, datetime):
        return value + timedelta(days=(-1 if upper else 1) * strict)
    return None
