"""Joins of two streams whose conditions are ranges: bands and select-joins, which standing queries answer by index.

What a shape says exactly is taken out of the filter; what it says only about right (ends not included, bands of
floating numbers) stays in it, and the shape lets in a little too much rather than too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.errors import BadSQL
from penstock.kernels.window.windows import Window
from penstock.plan.views.expressions import Column, Expression
from penstock.sql.bounds import Bound, bounds
from penstock.sql.shapes import LEFT, RIGHT, BandJoin, Pairs, Range, SelectJoin

#: Left, right, what is equal, the window.
Base = tuple[str, str, Pairs, Window]
#: The shape, and the conditions that are left.
Ranged = tuple[BandJoin | SelectJoin, tuple[Expression, ...]]
Never = Callable[[str], BadSQL]

#: Whole numbers up to this can be compared as floats.
_EXACT = 2**53
#: By how much a band of floating numbers is widened: what it lets in too much, the filter takes out again.
_SLACK = 1e-6


def band_join(
    base: Base, conditions: tuple[Expression, ...], schemas: Sequence[pa.Schema], never: Never
) -> Ranged | None:
    """Conditions that bound the difference of one numeric column of each side; None if there are none.

    Beside a key, both ends are needed: with one it is the filter of a join that others share.
    """
    bands: dict[tuple[str, str], list[tuple[Bound, Expression]]] = {}
    for condition in conditions:
        for bound in bounds(condition):
            # Beyond all numbers an index has no places; rows decide.
            if bound.minus is not None and math.isfinite(bound.value):
                bands.setdefault((bound.minus.name, bound.column.name), []).append((bound, condition))
    if len(bands) != 1:
        return None
    [(columns, limits)] = bands.items()
    types = [schema.field(column).type for schema, column in zip(schemas, columns, strict=True)]
    low, high = _ends([bound for bound, _ in limits])
    one_ended = math.isinf(low) or math.isinf(high)
    whole = all(pa.types.is_integer(kind) for kind in types)
    # Where a band has no end, NaN and infinite values lie in it, which an index of differences does not have.
    if not all(map(_is_number, types)) or (one_ended and (base[2] or not whole)):
        return None
    if low > high:
        raise never(f"No difference is at least {low} and at most {high}.")
    if any(math.isfinite(end) and abs(end) > _EXACT for end in (low, high)):
        return None
    exactly = whole and not any(bound.rounded for bound, _ in limits)
    slack = [0.0 if exactly or math.isinf(end) else _SLACK * max(1.0, abs(end)) for end in (low, high)]
    exact = {id(condition) for bound, condition in limits if exactly and not bound.strict}
    shape = BandJoin(*base, columns=columns, band=(float(low) - slack[0], float(high) + slack[1]))
    return shape, tuple(condition for condition in conditions if id(condition) not in exact)


def select_join(
    base: Base, conditions: tuple[Expression, ...], schemas: Sequence[pa.Schema], never: Never
) -> Ranged | None:
    """Ranges with two ends on numeric columns of both sides of an equijoin; None if a side has none."""
    if not base[2]:
        return None
    limits: dict[Column, list[tuple[Bound, Expression]]] = {}
    for condition in conditions:
        for bound in bounds(condition):
            kind = schemas[bound.column.source].field(bound.column.name).type
            if bound.minus is None and _is_number(kind) and bound.is_exact(kind) and abs(bound.value) <= _EXACT:
                limits.setdefault(bound.column, []).append((bound, condition))
    sides: tuple[list[Range], list[Range]] = ([], [])
    taken: set[int] = set()
    for column in sorted(limits, key=lambda column: column.name):
        low, high = _ends([bound for bound, _ in limits[column]])
        if math.isinf(low) or math.isinf(high):
            continue
        if low > high:
            raise never(f"No {column.name} is at least {low} and at most {high}.")
        sides[column.source].append(Range(column.name, float(low), float(high)))
        taken |= {id(condition) for bound, condition in limits[column] if not bound.strict}
    if not sides[LEFT] or not sides[RIGHT]:
        return None
    shape = SelectJoin(*base, ranges=(tuple(sides[LEFT]), tuple(sides[RIGHT])))
    return shape, tuple(condition for condition in conditions if id(condition) not in taken)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _ends(found: Sequence[Bound]) -> tuple[float, float]:
    """The narrowest that all of them leave, as numbers."""
    low = max((bound.value for bound in found if not bound.upper), default=-math.inf)
    high = min((bound.value for bound in found if bound.upper), default=math.inf)
    return low, high
