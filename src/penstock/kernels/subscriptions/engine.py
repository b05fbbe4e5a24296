"""From events to messages, for each aggregate: grows what lacks room, and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from penstock.kernels.subscriptions.a2bnodes import Nodes
from penstock.kernels.subscriptions.a2btree import A2BTree
from penstock.kernels.subscriptions.change import distinguish, relax
from penstock.kernels.subscriptions.mar import DONE, HULL_FULL, MESSAGE_WIDTH, MESSAGES_FULL, TREE_FULL, reformulate
from penstock.kernels.subscriptions.rows import LIVE, STATE, P, X, Y

I64 = npt.NDArray[np.int64]
Aggregate = Literal["min", "max", "count", "sum", "avg", "distinct"]
AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
#: Those whose messages say the new answer; the others say what came and what went.
EXTREMES = ("min", "max")
#: Messages that are handed out at once, unless a single event has more.
_PIECE = 16_384


class Engine:
    """Keeps what an aggregate needs to know of the rows, and turns events into messages.

    Codes of y are reversed by the caller for MAX. COUNT, SUM and AVG need nothing but the event itself.
    """

    def __init__(self, agg: Aggregate) -> None:
        self.agg = agg
        self.tree = A2BTree()
        self._seen = np.zeros((2, 32, 2), np.int64)
        self._out = np.zeros((256, MESSAGE_WIDTH), np.int64)
        #: Ignorable, easy and difficult events so far.
        self.kinds = np.zeros(3, np.int64)
        self._peak = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.tree.nbytes + self._seen.nbytes + self._out.nbytes

    def take_peak(self) -> int:
        """The most bytes held at any moment since it was last asked."""
        peak, self._peak = max(self._peak, self.nbytes), 0
        return peak

    def load(self, rows: I64) -> None:
        """Take in the rows of a table that was there before."""
        live = rows[rows[:, STATE] == LIVE]
        if self.agg in EXTREMES:
            self.tree.extend(live[:, [P, X, Y]])
        elif self.agg == "distinct":
            self.tree.extend(live[:, [P, Y, X]])

    def apply(self, events: I64) -> Iterator[I64]:
        """The messages of events, in order, in pieces; each is valid until the next."""
        state = np.zeros(7, np.int64)
        while True:
            lacks = self._run(self.tree.nodes, events, state)
            self.kinds += state[4:]
            state[4:] = 0
            whole = int(state[3])
            if whole and (lacks == DONE or (lacks == MESSAGES_FULL and len(self._out) >= _PIECE)):
                yield self._out[:whole]
                # What an event under way has already said moves to the front.
                self._out[0] = self._out[min(state[1], len(self._out) - 1)]
                state[1] = state[3] = 0
                continue
            if lacks == DONE:
                return
            self._grow(lacks)

    def _run(self, nodes: Nodes, events: I64, state: I64) -> int:
        if self.agg in EXTREMES:
            return int(reformulate(nodes, events, self._seen, self._out, state))
        if self.agg == "distinct":
            return int(distinguish(nodes, events, self._out, state))
        return int(relax(events, self._out, state))

    def _grow(self, lacks: int) -> None:
        before = self.nbytes
        if lacks == TREE_FULL:
            self.tree.grow()
        elif lacks == MESSAGES_FULL:
            self._out = np.concatenate([self._out, np.zeros_like(self._out)])
        elif lacks == HULL_FULL:
            self._seen = np.concatenate([self._seen, np.zeros_like(self._seen)], axis=1)
        self._peak = max(self._peak, before + self.nbytes)
