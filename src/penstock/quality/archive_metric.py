"""The Archive-metric: how many rows need no more work, because all of their partners were met in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Stay(NamedTuple):
    """A row of a stream: its key, when it came, and until when it was in memory."""

    key: int
    came: int
    left: int


def complete_rows(left: Sequence[Stay], right: Sequence[Stay], window: int) -> int:
    """How many rows of both streams have met every partner.

    A row is complete if all partners that came before it were in memory when it came, and it was itself in memory until
    its last partner came. (002 prints the index of the second δ as j - i; a partner that came at j is i - j old.)

    >>> complete_rows([Stay(1, 0, 0), Stay(1, 1, 3)], [Stay(1, 2, 2)], window=3)
    1
    """
    return sum(_is_complete(row, others, window) for rows, others in ((left, right), (right, left)) for row in rows)


def _is_complete(row: Stay, others: Sequence[Stay], window: int) -> bool:
    partners = [other for other in others if other.key == row.key and abs(other.came - row.came) < window]
    earlier = all(other.left >= row.came for other in partners if other.came < row.came)
    return earlier and row.left >= max((other.came for other in partners), default=row.came)
