"""How rows of a step find their partners on the other side, and become results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.measure import runs
from penstock.kernels.window.chains import Cursor, Probes, probe
from penstock.kernels.window.shape import Shape, truths
from penstock.kernels.window.side import SideRows
from penstock.kernels.window.windows import LEFT, RIGHT, Window
from penstock.tables.keys import equal_keys, injective

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
#: A further condition of the join, of rows side by side.
Where = Callable[[pa.RecordBatch, pa.RecordBatch], Any]
#: Told how many bytes are used for a moment.
Note = Callable[[float], None]


class Pairing:
    """Results of new rows of one side with waiting rows of the other.

    Guarantees
        Every pair with equal keys, within reach and of which the condition holds, once.
    State and cost
        None; a piece of results at a time, of at most `piece` bytes.
    """

    def __init__(self, shape: Shape, window: Window, where: Where | None, piece: float) -> None:
        self._shape, self._window, self._where, self._piece = shape, window, where, piece
        self._verify = not injective([shape.left.field(name).type for name in shape.keys[LEFT]])

    def results(
        self, side: int, rows: pa.RecordBatch, probes: Probes, sides: tuple[SideRows, ...], first: int, note: Note
    ) -> Iterator[pa.RecordBatch]:
        """In pieces. The rows are entries of their side from `first` on; who meets a partner is marked."""
        other = sides[1 - side]
        reach = self._window.reach(side)
        room = max(min(65_536, int(self._piece) // 32), 16)
        ours, theirs = np.empty(room, np.int64), np.empty(room, np.int64)
        sizes, own = other.column("sizes"), sides[side].column("sizes")[first - sides[side].first :]
        at = Cursor()
        while at.probe < len(probes.hashes):
            count, at = probe(other.entries(), probes, reach, at, ours, theirs)
            if not count:
                continue
            # By the entries that are met, piece by piece: results have no order.
            order = np.argsort(theirs[:count], kind="stable")
            met, probing = theirs[:count][order], ours[:count][order]
            each = (sizes[met - other.first].astype(np.float64) + own[probing]) / 8 + 16
            for begin, end in runs(each, self._piece):
                note(float(each[begin:end].sum()))
                yield from self._piece_of(side, rows, sides, probing[begin:end], met[begin:end], first)

    def _piece_of(
        self, side: int, rows: pa.RecordBatch, sides: tuple[SideRows, ...], probing: I64, met: I64, first: int
    ) -> Iterator[pa.RecordBatch]:
        pair = [rows.take(pa.array(probing)), sides[1 - side].take(met)]
        left, right = pair if side == LEFT else pair[::-1]
        holds = self._holds(left, right)
        if holds is not None:
            left, right = left.filter(pa.array(holds)), right.filter(pa.array(holds))
            probing, met = probing[holds], met[holds]
        if self._shape.outer(side):
            sides[side].mark_met(first + probing)
        if self._shape.outer(1 - side):
            sides[1 - side].mark_met(met)
        if left.num_rows:
            yield self._shape.pairs(left, right)

    def _holds(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Mask | None:
        """False for candidates with another key of the same hash, and where the condition does not hold."""
        holds: Mask | None = None
        if self._verify:
            keys = self._shape.keys
            holds = equal_keys([left.column(n) for n in keys[LEFT]], [right.column(n) for n in keys[RIGHT]])
        if self._where is not None:
            said = truths(self._where, left, right)
            holds = said if holds is None else holds & said
        return None if holds is None or holds.all() else holds
