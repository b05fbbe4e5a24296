"""How the memory of a slot is divided, and by what it is counted."""

from __future__ import annotations

from penstock.errors import MemoryTooSmall
from penstock.kernels.window.windowjoin import LEAST_BUDGET

#: Bytes for each query beside rows: what its response times are counted with.
QUERY = 4096
_SLICE_BYTES = 5 << 19


class Budget:
    """The bytes of a slot: `slice` for results that are being made, `room` for rows and what waits with them.

    >>> divided = Budget(16 << 20, 7)
    >>> divided.slice, divided.room / divided.whole > 0.7
    (2097152, True)
    """

    def __init__(self, whole: int, queries: int) -> None:
        self.whole = whole
        self.slice = min(_SLICE_BYTES, whole // 8)
        self.room = room_of(whole, queries)
        if whole < LEAST_BUDGET or self.room < whole / 4:
            raise MemoryTooSmall(
                f"{whole} bytes cannot hold the window of {queries} queries.",
                why=f"{self.slice} of them are for results, and {QUERY} for each query.",
                do=f"Give each slot at least {least_budget(queries)} bytes.",
            )
        #: Pairs that are found and made into results at a time.
        self.most_pairs = max(min(65_536, self.slice // 256), 16)


def room_of(budget: int, queries: int) -> float:
    """Bytes of a slot's budget for rows and what waits with them; an eighth is kept free for those that come."""
    return (budget - min(_SLICE_BYTES, budget // 8) - QUERY * (queries + 1)) * 15 / 16


def least_budget(queries: int) -> int:
    """Bytes that a slot needs at the least.

    >>> least_budget(7) > LEAST_BUDGET
    True
    """
    return max(LEAST_BUDGET, 2 * QUERY * (queries + 1) + LEAST_BUDGET // 4)
