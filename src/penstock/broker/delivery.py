"""The three ways in which news reaches gateways, behind one interface: messages in, parcels for gateways out.

======  ======================  =========================================================================
name    who knows subscribers   what goes out
======  ======================  =========================================================================
S-CN    gateways                exact rectangles, to every cell that they touch
CN      gateways                every value that comes into a range or leaves it, to every cell of ranges
S-UN    the server              one message for each subscriber, those of one gateway together
======  ======================  =========================================================================

CN takes the messages of the aggregate "sum", relaxed to the range itself; its gateways keep every value. Xie, §5.2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.broker.cells import CellMap, adapt
from penstock.broker.messages import (
    FLAGS,
    HAS_LEFT,
    HAS_RIGHT,
    INNER_LEFT,
    INNER_RIGHT,
    LEFT,
    RIGHT,
)

I64 = npt.NDArray[np.int64]
WayName = Literal["S-CN", "CN", "S-UN"]
#: Subscriptions in a leaf of the server's tree of them.
_BUCKET = 32


class Parcel(NamedTuple):
    """Messages for a cell, or for the subscribers of a gateway: their numbers, one for each message."""

    cell: int
    gateway: str
    rows: I64
    subscribers: I64 | None = None


class Delivery(ABC):
    """One way of delivery."""

    name: WayName

    @abstractmethod
    def parcels(self, rows: I64) -> Iterator[Parcel]:
        """Where messages of one partition go, in order for each receiver."""


class ByCell(Delivery):
    """S-CN and CN: to every cell that a rectangle touches, whoever may be there."""

    def __init__(self, cells: CellMap, name: WayName = "S-CN") -> None:
        self.cells = cells
        self.name = name

    def parcels(self, rows: I64) -> Iterator[Parcel]:
        """One parcel for each cell."""
        if not len(rows):
            return
        pairs = self.cells.route(rows)
        order = np.argsort(pairs[:, 1], kind="stable")
        pairs = pairs[order]
        cells, starts = np.unique(pairs[:, 1], return_index=True)
        for cell, members in zip(cells.tolist(), np.split(pairs[:, 0], starts[1:]), strict=True):
            yield Parcel(cell, "", rows[members])


class Unicast(Delivery):
    """S-UN: the server finds every subscriber that a message concerns, in a kd-tree of all subscriptions.

    State and cost
        24 bytes a subscription; O(sqrt(M) + affected) a message.
    """

    name: WayName = "S-UN"

    def __init__(self, gateways: list[str], gateway: I64, x1: I64, x2: I64) -> None:
        """`gateway` says for each subscription, by its number, which of `gateways` has it."""
        self.gateways = gateways
        tree = CellMap()
        adapt(tree, x1, x2, _BUCKET)
        self._tree = tree.cells
        leaf = tree.cells_of(x1, x2)
        #: Subscriptions in the order of their leaves: number, gateway, range.
        order = np.argsort(leaf, kind="stable")
        self._members = np.stack([order, gateway[order], x1[order], x2[order]], axis=1)
        self._starts = np.searchsorted(leaf[order], np.arange(len(tree.cells) + 1))

    def find(self, rows: I64) -> I64:
        """(message, subscription, gateway) for every subscription that a message concerns."""
        pairs = CellMap(self._tree, []).route(rows)
        found = np.empty((max(256, 4 * len(pairs)), 3), np.int64)
        count = _members_of(rows, pairs, self._starts, self._members, found)
        if count > len(found):
            found = np.empty((count, 3), np.int64)
            _members_of(rows, pairs, self._starts, self._members, found)
        return found[:count]

    def parcels(self, rows: I64) -> Iterator[Parcel]:
        """One parcel for each gateway."""
        found = self.find(rows)
        if not len(found):
            return
        # Leaves are visited in the order of messages, so messages are in order for each gateway.
        found = found[np.argsort(found[:, 2], kind="stable")]
        known, starts = np.unique(found[:, 2], return_index=True)
        for gateway, part in zip(known.tolist(), np.split(found, starts[1:]), strict=True):
            yield Parcel(-1, self.gateways[gateway], rows[part[:, 0]], part[:, 1])


@njit(cache=True)
def _members_of(rows: I64, pairs: I64, starts: I64, members: I64, found: I64) -> int:
    count = 0
    for i in range(len(pairs)):
        m, leaf = pairs[i]
        row = rows[m]
        has_left, has_right = row[FLAGS] & HAS_LEFT != 0, row[FLAGS] & HAS_RIGHT != 0
        for j in range(starts[leaf], starts[leaf + 1]):
            x1, x2 = members[j, 2], members[j, 3]
            if x1 > row[INNER_LEFT] or x2 < row[INNER_RIGHT]:
                continue
            if (has_left and x1 <= row[LEFT]) or (has_right and x2 >= row[RIGHT]):
                continue
            if count < len(found):
                found[count, 0], found[count, 1], found[count, 2] = m, members[j, 0], members[j, 1]
            count += 1
    return count
