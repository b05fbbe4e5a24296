"""Every query alone, by two loops over all rows as they arrive: slow, obvious, and the judge of order, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Pair = tuple[Row, Row]


def alone(
    arrivals: Sequence[tuple[int, Row]],
    window: int,
    *,
    by_rows: bool,
    match: Callable[[Row, Row], bool],
    keyed: Callable[[int, Row], bool] = lambda side, row: True,
    time: tuple[str, str] = ("lt", "rt"),
) -> list[Pair]:
    """The stream of one query: each row meets earlier ones of the other side, the newest first."""
    seen: tuple[list[Row], list[Row]] = ([], [])
    out = []
    for side, row in arrivals:
        if not keyed(side, row):
            continue
        others = seen[1 - side]
        for place in reversed(range(len(others))):
            other = others[place]
            apart = len(others) - place if by_rows else abs(row[time[side]] - other[time[1 - side]])
            left, right = (row, other) if side == 0 else (other, row)
            if apart <= window and match(left, right):
                out.append((left, right))
        seen[side].append(row)
    return out
