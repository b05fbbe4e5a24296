"""What a condition says of one column, or of the difference of two: where it begins and where it ends.

`low <= r.risk`, `r.risk < high`, `s.b - r.b BETWEEN -1 AND 2`, `r.b <= s.b + 1`, `ABS(r.b - s.b) <= 2` all bound a sum
of columns; one column with the factor 1 is a range, two of different sources with 1 and -1 a band.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.plan.views import kinds
from penstock.plan.views.expressions import Call, Column, Expression, Literal

_TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_NUMERIC = (kinds.NUMBER, kinds.FLOAT, "decimal")


@dataclass(frozen=True)
class Bound:
    """`column` (or `column - minus`) is at least, or at most, `value`.

    `shifted` tells that the constant was calculated, or stood beside a column: of floating numbers it is then only
    about right; and if it is one itself (`rounded`), so it is of whole numbers, each of which is rounded with it.
    """

    column: Column
    minus: Column | None
    value: Any
    upper: bool
    strict: bool
    shifted: bool = False
    rounded: bool = False

    def is_exact(self, kind: pa.DataType) -> bool:
        """Whether it lets in the same values of a column of this type as the condition."""
        return not (self.rounded if pa.types.is_integer(kind) else self.shifted)


def bounds(condition: Expression) -> tuple[Bound, ...]:
    """What a condition bounds; nothing if it is no bound, or says more than that."""
    match condition:
        case Call("less" | "less_equal" as how, (Call("abs", (inner,)), Literal(value, kind))) if (
            isinstance(value, int | float | Decimal) and kind in _NUMERIC
        ):
            above = list(_compare(how, inner, Literal(value, kind)))
            below = list(_compare(_TURNED[how], inner, Literal(-value, kind)))
            return (*above, *below) if above and below else ()
        case Call("equal", (Column() as column, Literal(value, kind))) if kind in _NUMERIC and value is not None:
            return (Bound(column, None, value, False, False), Bound(column, None, value, True, False))
        case Call("equal", (Literal() as literal, Column() as column)):
            return bounds(Call("equal", (column, literal)))
        case Call(how, (left, right)) if how in _TURNED:
            return tuple(_compare(how, left, right))
    return ()


def _compare(how: str, left: Expression, right: Expression) -> Iterator[Bound]:
    if isinstance(right, Column) and isinstance(left, Literal):
        left, right, how = right, left, _TURNED[how]
    if isinstance(left, Column) and isinstance(right, Literal):
        if right.value is not None:  # of any ordered kind
            yield Bound(left, None, right.value, how.startswith("less"), how in ("less", "greater"))
        return
    ours, theirs = _linear(left), _linear(right)
    if ours is None or theirs is None:
        return
    factors = dict(ours[0])
    for column, factor in theirs[0].items():
        factors[column] = factors.get(column, 0) - factor
    if not all(factors.values()):
        return  # x - x is 0, unless x is NULL
    constant = theirs[1] - ours[1]
    beside = [added for columns, added in (ours, theirs) if columns]
    rounded = isinstance(constant, float) and any(added or isinstance(added, float) for added in beside)
    if len(factors) == 1 and set(factors.values()) <= {1, -1}:
        [(column, factor)] = factors.items()
        yield _bound(how, column, None, factor, constant, rounded)
    elif len(factors) == 2 and set(factors.values()) == {1, -1}:
        # Always the later source less the earlier.
        one, other = sorted(factors, key=lambda column: column.source)
        if one.source != other.source:
            yield _bound(how, other, one, factors[other], constant, rounded)


def _bound(how: str, column: Column, minus: Column | None, factor: int, constant: Any, rounded: bool) -> Bound:
    turned = _TURNED[how] if factor < 0 else how
    value = -constant if factor < 0 else constant
    return Bound(column, minus, value, turned.startswith("less"), turned in ("less", "greater"), True, rounded)


def _linear(expression: Expression) -> tuple[dict[Column, int], Any] | None:
    """Columns with whole factors, and a constant."""
    match expression:
        case Column():
            return {expression: 1}, 0
        case Literal(value, kind) if kind in _NUMERIC and isinstance(value, int | float | Decimal):
            return {}, float(value) if isinstance(value, Decimal) else value
        case Call("negate", (inner,)):
            return _sum(({}, 0), _linear(inner), -1)
        case Call("add", (left, right)):
            return _sum(_linear(left), _linear(right), 1)
        case Call("subtract", (left, right)):
            return _sum(_linear(left), _linear(right), -1)
    return None


def _sum(
    left: tuple[dict[Column, int], Any] | None, right: tuple[dict[Column, int], Any] | None, sign: int
) -> tuple[dict[Column, int], Any] | None:
    if left is None or right is None:
        return None
    factors = dict(left[0])
    for column, factor in right[0].items():
        factors[column] = factors.get(column, 0) + sign * factor
    return factors, left[1] + sign * right[1]
