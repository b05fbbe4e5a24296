"""The window join by two loops, and what is missing from a live run by one more: slow, obvious, and the judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.kernels.contract import Portion
from penstock.kernels.window.shape import Shape
from penstock.kernels.window.windows import LEFT, RIGHT, LandmarkWindow, RowWindow, TimeWindow, Window

Row = dict[str, Any]
Where = Callable[[Row, Row], bool]


def micros(value: Any) -> int:
    return pa.scalar(value, pa.timestamp("us")).value if not isinstance(value, int) else value


def in_reach(window: Window, left: Row, right: Row, times: tuple[str, str]) -> bool:
    """Whether two rows lie in one window; row windows go by the places that `place` noted."""
    if isinstance(window, RowWindow):
        if left["_number"] < right["_before"]:
            return right["_before"] - left["_number"] <= window.left
        return left["_before"] - right["_number"] <= window.right
    ours, theirs = micros(left[times[0]]), micros(right[times[1]])
    if isinstance(window, LandmarkWindow):
        return ours // window.every == theirs // window.every
    assert isinstance(window, TimeWindow)
    return -window.right <= theirs - ours <= window.left


def same_key(shape: Shape, left: Row, right: Row) -> bool:
    """Whether they can join and have the same key; NULL and NaN equal nothing."""
    return all(left[ours] is not None and left[ours] == right[theirs] for ours, theirs in shape.on)


def has_key(shape: Shape, side: int, row: Row) -> bool:
    values = [row[name] for name in shape.keys[side]]
    return all(value is not None and value == value for value in values)


def closed(window: Window, side: int, row: Row, times: tuple[str, str], clock: dict[str, Any]) -> bool:
    if isinstance(window, RowWindow):
        return row["_number"] + window.span(side) < clock["rows"][side]
    mark = clock["watermark"]
    if mark is None:
        return False
    moment = micros(row[times[side]])
    if isinstance(window, LandmarkWindow):
        return (moment // window.every + 1) * window.every <= mark
    return moment + window.span(side) < mark


def combined(shape: Shape, left: Row | None, right: Row | None) -> Row:
    out = {field.name: None if left is None else left[field.name] for field in shape.left}
    out |= {name: None if right is None else right[name] for name in shape.carried}
    if left is None:
        out |= {ours: right[theirs] for ours, theirs in shape.on if ours == theirs}
    return out


def join(
    shape: Shape,
    window: Window,
    sides: Sequence[Sequence[Row]],
    times: tuple[str, str],
    clock: dict[str, Any],
    where: Where | None = None,
) -> list[Row]:
    """All results; outer rows are results once their window is closed."""
    out, met = [], ([False] * len(sides[0]), [False] * len(sides[1]))
    for i, left in enumerate(sides[LEFT]):
        for j, right in enumerate(sides[RIGHT]):
            if belong(shape, window, left, right, times, where):
                out.append(combined(shape, left, right))
                met[LEFT][i] = met[RIGHT][j] = True
    for side in (LEFT, RIGHT):
        for row, found in zip(sides[side], met[side], strict=True):
            alone = not has_key(shape, side, row) or closed(window, side, row, times, clock)
            if shape.outer(side) and not found and alone:
                out.append(combined(shape, row, None) if side == LEFT else combined(shape, None, row))
    return out


def belong(shape: Shape, window: Window, left: Row, right: Row, times: tuple[str, str], where: Where | None) -> bool:
    if not same_key(shape, left, right):
        return False
    return in_reach(window, left, right, times) and (where is None or where(left, right))


def missing(
    shape: Shape,
    window: Window,
    archived: Sequence[Sequence[Row]],
    residence: Sequence[Row],
    times: tuple[str, str],
    clock: dict[str, Any],
    where: Where | None = None,
) -> list[Row]:
    """What a live run did not produce, from the archive and the residence of rows in memory alone."""
    gone = {(r["_slot"], r["_side"], r["_number"]): r for r in residence}
    sides: list[list[Row]] = []
    for side in (LEFT, RIGHT):
        rows = []
        for row in archived[side]:
            note = gone.get((row["_slot"], side, row["_number"]))
            # An unsettled row was in memory until it left the window.
            evicted = note is not None and note["_reason"] == "evicted"
            left = row["_left"] if row["_left"] is not None else note["_left"] if evicted else 1 << 60
            rows.append(row | {"_until": left, "_noted": note is not None or row["_left"] is not None})
        sides.append(rows)
    out, met = [], [[False] * len(rows) for rows in sides]
    for i, left in enumerate(sides[LEFT]):
        for j, right in enumerate(sides[RIGHT]):
            if belong(shape, window, left, right, times, where):
                met[LEFT][i] = met[RIGHT][j] = True
                together = left["_entered"] <= right["_until"] and right["_entered"] <= left["_until"]
                if not together:
                    out.append(combined(shape, left, right))
    for side in (LEFT, RIGHT):
        for row, found in zip(sides[side], met[side], strict=True):
            if shape.outer(side) and not found and row["_noted"] and closed(window, side, row, times, clock):
                out.append(combined(shape, row, None) if side == LEFT else combined(shape, None, row))
    return out


def rows_of(portions: Sequence[Portion]) -> tuple[list[Row], list[Row]]:
    """Rows by side, in order of arrival."""
    both: tuple[list[Row], list[Row]] = ([], [])
    for side, rows in portions:
        both[side].extend(rows.to_pylist())
    return both


def placed(sides: Sequence[Sequence[Row]], able: Callable[[int, Row], bool], times: tuple[str, str]) -> None:
    """Number the rows that can join, in order of time, the left first: what a row window counts by."""
    mixed = [(micros(row[times[side]]), side, row) for side in (LEFT, RIGHT) for row in sides[side] if able(side, row)]
    seen = [0, 0]
    for _, side, row in sorted(mixed, key=lambda one: one[:2]):
        row["_number"], row["_before"] = seen[side], seen[1 - side]
        seen[side] += 1
