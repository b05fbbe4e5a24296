"""From events to messages for extremes over two-dimensional ranges: grows what lacks room, and goes on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from penstock.kernels.subscriptions.kdtree import COUNT, kd_extend, kd_with_room, new_kd
from penstock.kernels.subscriptions.mar import DONE, HULL_FULL, MESSAGES_FULL, TREE_FULL
from penstock.kernels.subscriptions.min2d import (
    AT,
    KINDS,
    MESSAGE_WIDTH,
    SEEN,
    STATE_WIDTH,
    WRITTEN,
    new_scratch,
    reformulate2d,
)
from penstock.kernels.subscriptions.rows import EXTRA, LIVE, STATE, P, X, Y

I64 = npt.NDArray[np.int64]
#: Messages that are handed out at once, unless one step of a contour has more.
_PIECE = 4_096


class Engine2D:
    """Keeps the kd-tree of all rows, and turns events into boxes of subscriptions.

    Guarantees
        After every event, each range whose least y changed lies in exactly one message, and no other range does:
        `test_ranges_of_two_dimensions_are_told_exactly`.
        What is said, and in which order, follows from the rows and the event alone, not from the tree's shape.
    State and cost
        The tree, some 300 bytes a row, and scratch for contour and hull of one event. Each row of a contour is found
        by looking at O(sqrt N) nodes; the hull by branch and bound, without such a promise. On random rows an event
        looks at about N^0.45 nodes: `test_the_cost_of_two_dimensions_is_sublinear`. With k rows on contour and hull it
        says O(k²) messages for each of the hull at worst.

    Codes of y are reversed by the caller for MAX. Xie, §5.4.
    """

    def __init__(self) -> None:
        self.tree = new_kd()
        self._scratch = new_scratch(32)
        self._out = np.zeros((256, MESSAGE_WIDTH), np.int64)
        #: Ignorable, easy and difficult events so far.
        self.kinds = np.zeros(3, np.int64)
        #: Nodes looked at so far.
        self.seen = 0
        self._peak = 0

    @property
    def nbytes(self) -> int:
        """Bytes held, and those for building the largest table's tree anew."""
        roots = self.tree.roots[self.tree.roots >= 0]
        most = int(self.tree.node[roots, COUNT].max()) if len(roots) else 0
        held = sum(part.nbytes for part in (*self.tree, *self._scratch))
        return held + self._out.nbytes + 64 * most

    def take_peak(self) -> int:
        """The most bytes held at any moment since it was last asked."""
        peak, self._peak = max(self._peak, self.nbytes), 0
        return peak

    def load(self, rows: I64) -> None:
        """Take in the rows of a table that was there before."""
        live = rows[rows[:, STATE] == LIVE][:, [P, X, EXTRA, Y]]
        done = 0
        while done < len(live):
            self.tree = kd_with_room(self.tree, int(live[done, 0]))
            done = kd_extend(self.tree, live, done)

    def apply(self, events: I64) -> Iterator[I64]:
        """The messages of events, in order, in pieces; each is valid until the next."""
        state = np.zeros(STATE_WIDTH, np.int64)
        while True:
            lacks = reformulate2d(self.tree, events, self._scratch, self._out, state)
            self.kinds += state[KINDS : KINDS + 3]
            self.seen += int(state[SEEN])
            state[KINDS:] = 0
            whole = int(state[WRITTEN])
            if whole and (lacks == DONE or (lacks == MESSAGES_FULL and len(self._out) >= _PIECE)):
                yield self._out[:whole]
                state[WRITTEN] = 0
                continue
            if lacks == DONE:
                return
            self._grow(lacks, events, state)

    def _grow(self, lacks: int, events: I64, state: I64) -> None:
        before = self.nbytes
        if lacks == TREE_FULL:
            self.tree = kd_with_room(self.tree, int(events[state[AT], 0]))
        elif lacks == MESSAGES_FULL:
            self._out = np.concatenate([self._out, np.zeros_like(self._out)])
        elif lacks == HULL_FULL:
            self._scratch = new_scratch(2 * len(self._scratch.rows))
        self._peak = max(self._peak, before + self.nbytes)
