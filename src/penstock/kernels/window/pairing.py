"""How rows of a step find their partners on the other side, and become results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.measure import runs
from penstock.kernels.window.chains import PROBE, Cursor, Probes, probe
from penstock.kernels.window.shape import Shape, truths
from penstock.kernels.window.side import SideRows
from penstock.kernels.window.windows import LEFT, RIGHT, Window
from penstock.tables.keys import equal_keys, injective

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
#: A further condition of the join, of rows side by side.
Where = Callable[[pa.RecordBatch, pa.RecordBatch], Any]
#: Told how many bytes are used for a moment.
Note = Callable[[float], None]


#: Bytes of a pair beside its rows.
PAIR = 16
_PROBE = (1 << PROBE) - 1


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
        other, own = sides[1 - side], sides[side]
        reach = self._window.reach(side)
        # Pairs that are put in order at once: a number each, and where rows differ in size what tells where to cut.
        each = None if other.width is None or own.width is None else (other.width + own.width) / 8 + PAIR
        found = np.empty(max(min(65_536, int(self._piece) // (32 if each is None else 8)), 16), np.int64)
        at = Cursor()
        while at.probe < len(probes.hashes):
            count, at = probe(other.entries(), probes, reach, at, found)
            if not count:
                continue
            # By the entries that are met, piece by piece: results have no order.
            pairs = found[:count]
            pairs.sort()
            sizes = np.broadcast_to(each, count) if each is not None else self._sizes(pairs, other, own, first)
            cuts = list(runs(sizes, self._piece))
            note(max(float(sizes[begin:end].sum()) for begin, end in cuts))
            for begin, end in cuts:
                probing, met = pairs[begin:end] & _PROBE, pairs[begin:end] >> PROBE
                yield from self._piece_of(side, rows, sides, probing, met, first)

    def _sizes(self, pairs: I64, other: SideRows, own: SideRows, first: int) -> F64:
        met, probing = (pairs >> PROBE) - other.first, (pairs & _PROBE) + (first - own.first)
        return (other.column("sizes")[met].astype(np.float64) + own.column("sizes")[probing]) / 8 + PAIR

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
