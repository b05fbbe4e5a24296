"""How much memory a mesh join needs beside the rows that wait, and how many of these a budget has room for."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import MemoryTooSmall
from penstock.kernels.mesh.condition import Condition, Equal
from penstock.tables.base import Page, Table

#: The least room for waiting rows that makes a scan worth its cost.
LEAST_WINDOW = 64 << 10
#: Results leave in batches of about this many bytes.
SLICE_BYTES = 5 << 19
_EQUAL = Equal(())


def reserve(pages: Sequence[Page], condition: Condition = _EQUAL) -> int:
    """Bytes beside the window at the most, for any of these pages."""
    return max((beside_window(page, condition) for page in pages), default=SLICE_BYTES)


def beside_window(page: Page, condition: Condition = _EQUAL) -> int:
    """Bytes beside the window while a page is met: its hashes and survivors, what reading takes, a slice of results."""
    return max(condition.page_bytes(page), 8 * page.rows + page.row_bytes) + 4 * page.rows + SLICE_BYTES


def room_for_window(budget: int, for_page: int, aside: int, table: Table) -> int:
    """Bytes that a budget leaves for waiting rows beside a page and what is set aside; refused if they are too few."""
    room = budget - for_page - aside
    if room < LEAST_WINDOW:
        raise MemoryTooSmall(
            f"{budget} bytes cannot hold one page and one packet of this join.",
            why=f"A page of {table.path} needs {for_page} bytes while it is probed.",
            do=f"Give each slot at least {for_page + LEAST_WINDOW + aside} bytes.",
        )
    return room


def check_fits(rows: int, nbytes: float, room: float) -> None:
    """Refuse rows that waited when a query was stopped, where a smaller budget has no room for them."""
    if nbytes > room:
        raise MemoryTooSmall(
            f"{rows:,} rows that wait from before take {nbytes:.0f} bytes, and this budget has {room:.0f} for them.",
            why="They came under a larger budget and have met some pages already.",
            do="Start again with the memory of before. Once a run with the trigger availableNow has ended, nothing "
            "waits and the smaller budget will do. Nothing is lost.",
        )


def least_budget(pages: Sequence[Page], condition: Condition = _EQUAL) -> int:
    """The smallest budget with which these pages can be joined."""
    return reserve(pages, condition) + LEAST_WINDOW


def rows_in(budget: int, pages: Sequence[Page], row_bytes: int, condition: Condition = _EQUAL) -> int:
    """How many rows of this size a window under this budget holds: what one pass over the table is shared by."""
    return max((budget - reserve(pages, condition)) // (row_bytes + condition.row_bytes), 0)
