"""How rows of a step find their partners on the other side, and become results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.measure import runs
from penstock.kernels.window.chains import Cursor, Probes, divide, probe
from penstock.kernels.window.shape import Shape, truths
from penstock.kernels.window.side import SideRows
from penstock.kernels.window.windows import LEFT, RIGHT, Window
from penstock.tables.keys import equal_keys, injective

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
#: A further condition of the join, of rows side by side.
Where = Callable[[pa.RecordBatch, pa.RecordBatch], Any]
#: Told how many bytes are used for a moment.
Note = Callable[[float], None]


#: Bytes of a pair beside its rows: the pair itself, and where both of its rows are.
PAIR = 16
#: And where rows differ in size, what tells where to cut.
_CUT = 40
#: More pairs are not made at once: results would leave the processor's caches before they are complete.
_MOST_PAIRS = 16_384


class Coming(NamedTuple):
    """Rows that came in this step: entries of their side from `first` on."""

    side: int
    rows: pa.RecordBatch
    first: int


class _Met:
    """Waiting rows, some of which are met: pairs are put in the order of the blocks that these are in."""

    def __init__(self, waiting: SideRows, columns: list[str] | None, most: int) -> None:
        self._blocks = waiting.blocks if columns is None else [block.select(columns) for block in waiting.blocks]
        self._begins = waiting.begins()
        self._cuts = np.zeros(len(self._begins), np.int64)
        self._places = np.empty(most, np.int32)
        #: The probe of each pair.
        self.probing = np.empty(most, np.int32)

    def divide(self, pairs: I64) -> None:
        """Take these pairs up, in the place of those before."""
        divide(pairs, self._begins, self._cuts, self.probing, self._places)

    def rows(self, begin: int, end: int) -> pa.RecordBatch:
        """The waiting rows of some pairs."""
        parts, cuts = [], self._cuts.tolist()
        for number, block in enumerate(self._blocks):
            first, last = max(cuts[number], begin), min(cuts[number + 1], end)
            if first < last:
                parts.append(block.take(pa.array(self._places[first:last])))
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def entries(self, begin: int, end: int) -> I64:
        """Which they are."""
        blocks = np.searchsorted(self._cuts, np.arange(begin, end), side="right") - 1
        return self._begins[blocks] + self._places[begin:end]


class Pairing:
    """Results of new rows of one side with waiting rows of the other.

    Guarantees
        Every pair with equal keys, within reach and of which the condition holds, once.
    State and cost
        None; a piece of results at a time, of at most as many bytes as there is room for.
    """

    def __init__(self, shape: Shape, window: Window, where: Where | None) -> None:
        self._shape, self._window, self._where = shape, window, where
        self._verify = not injective([shape.left.field(name).type for name in shape.keys[LEFT]])
        # A condition is asked about whole rows; without one, the columns of results are enough.
        self._asked = self._verify or where is not None
        whole = self._asked or len(shape.carried) == len(shape.right)
        self._columns = (None, None if whole else list(shape.carried))

    def results(
        self, coming: Coming, probes: Probes, sides: tuple[SideRows, ...], room: float, note: Note
    ) -> Iterator[pa.RecordBatch]:
        """In pieces that take up `room` bytes while they are made; who meets a partner is marked."""
        other, own = sides[1 - coming.side], sides[coming.side]
        columns = self._columns[coming.side]
        coming = coming if columns is None else coming._replace(rows=coming.rows.select(columns))
        # Rows are copied once more where a condition takes some of them, and where blocks are put together.
        copies = (1 + self._asked, 1 + self._asked + (len(other.blocks) > 1))
        each = None
        if other.width is not None and own.width is not None:
            each = (copies[0] * own.width + copies[1] * other.width) / 8 + PAIR
        most = max(min(_MOST_PAIRS, int(room / (each or 2 * (PAIR + _CUT)))), 16)
        found, met = np.empty(most, np.int64), _Met(other, self._columns[1 - coming.side], most)
        at, noted = Cursor(), 0.0
        while at.probe < len(probes.hashes):
            count, at = probe(other.entries(), probes, self._window.reach(coming.side), at, found)
            if not count:
                continue
            met.divide(found[:count])
            if each is not None:
                used, cuts = each * count, [(0, count)]
            else:
                ours, theirs = coming.first + met.probing[:count] - own.first, met.entries(0, count) - other.first
                sizes = (copies[0] * own.column("sizes")[ours] + copies[1] * other.column("sizes")[theirs]) / 8.0
                cuts = list(runs(sizes, room / 2))
                used = (PAIR + _CUT) * most + max(float(sizes[begin:end].sum()) for begin, end in cuts)
            if used > noted:
                note(used)
                noted = used
            for begin, end in cuts:
                yield from self._piece_of(coming, sides, met, begin, end)

    def _piece_of(
        self, coming: Coming, sides: tuple[SideRows, ...], met: _Met, begin: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        side, probing = coming.side, met.probing[begin:end]
        pair = [coming.rows.take(pa.array(probing)), met.rows(begin, end)]
        left, right = pair if side == LEFT else pair[::-1]
        holds = self._holds(left, right)
        if holds is not None:
            left, right = left.filter(pa.array(holds)), right.filter(pa.array(holds))
        which = slice(None) if holds is None else holds
        if self._shape.outer(side):
            sides[side].mark_met(coming.first + probing[which].astype(np.int64))
        if self._shape.outer(1 - side):
            sides[1 - side].mark_met(met.entries(begin, end)[which])
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
