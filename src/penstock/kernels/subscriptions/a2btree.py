"""The A2B-tree: a B-tree on x, below each x one on y, in which every inner entry knows the least y beneath it.

Both tiers are one B+-tree over (group, x, y): the run of entries with the same x is the lower tier, its first entry the
least y there. `group` keeps several tables apart in one tree; a search that leaves its group has found nothing. An
entry counts the rows that have these three values, so entries are distinct.
"""

from __future__ import annotations

from penstock.kernels.subscriptions.a2bnodes import ENTRIES, HEIGHT, I64, new_nodes, with_room
from penstock.kernels.subscriptions.a2bsearch import least_between, search_left, search_right
from penstock.kernels.subscriptions.a2bupdate import delete, insert_from


class A2BTree:
    """Rows as (group, x, y), ordered, with the least y beneath every inner entry.

    Guarantees
        Insertion, deletion and both searches take O(log N): `test_the_cost_of_mar_grows_with_the_logarithm`.
        Searches find what a scan finds, whatever was inserted and deleted before: `test_tree_equals_a_sorted_list`.
    State and cost
        Nodes of 32 entries, 32 bytes an entry; any two neighbours below one parent are three eighths full on average or
        fuller, after random insertions about 70%.

    Xie, §5.3.1 ("Computing Mar with A2B-Tree").

    >>> import numpy as np
    >>> tree = A2BTree()
    >>> tree.extend(np.array([[0, 100, 8], [0, 101, 4], [0, 103, 7], [0, 112, 1]]))
    >>> tree.right_of(0, 102, 3)
    (112, 1)
    >>> tree.left_of(0, 102, 3) is None
    True
    """

    def __init__(self) -> None:
        self.nodes = new_nodes()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for part in self.nodes)

    def __len__(self) -> int:
        return int(self.nodes.meta[ENTRIES])

    @property
    def levels(self) -> int:
        """Nodes on a way down."""
        return int(self.nodes.meta[HEIGHT]) + 1

    def grow(self) -> int:
        """Make room for an insertion; the bytes held while growing."""
        before = self.nbytes
        self.nodes = with_room(self.nodes)
        return before + self.nbytes

    def extend(self, rows: I64) -> None:
        """Add rows of (group, x, y)."""
        done = 0
        while done < len(rows):
            self.grow()
            done = insert_from(self.nodes, rows, done)

    def remove(self, group: int, x: int, y: int) -> bool:
        """Take away one row; false if there is none."""
        return bool(delete(self.nodes, group, x, y))

    def right_of(self, group: int, x: int, limit: int) -> tuple[int, int] | None:
        """The nearest (x, y) to the right with y at most `limit`."""
        found, at, y = search_right(self.nodes, group, x, False, limit)
        return (at, y) if found else None

    def left_of(self, group: int, x: int, limit: int) -> tuple[int, int] | None:
        """The nearest (x, least y there) to the left with a y at most `limit`."""
        found, at, y = search_left(self.nodes, group, x, limit)
        return (at, y) if found else None

    def least(self, group: int, first: int, last: int) -> int | None:
        """The least y in a closed range of x."""
        found, y = least_between(self.nodes, group, first, last)
        return int(y) if found else None
