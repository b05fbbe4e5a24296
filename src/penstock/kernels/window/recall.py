"""Which share of the results was produced, as estimated from rows that went too soon.

By key probabilities it could not be told: a policy lets go of what it thinks unlikely, so where it is wrong, so is the
sum of what it thought. Some of the rows that go are followed instead until they leave the window, and the results that
they would have had are counted. A row that was shed has missed what was there before it, too: so it looks back once, on
the rows in memory and on those that went earlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import ChunkLog
from penstock.kernels.window.chains import Probes, count
from penstock.kernels.window.ghosts import GHOST, Ghosts, Gone, draws
from penstock.kernels.window.side import SideRows
from penstock.kernels.window.windows import FAR, LEFT, RIGHT, Clock, Window

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

#: Share of a kernel's memory for what is known of rows that went.
SHARE = 1 / 40
#: Rows of a side and step that look back, at the most.
_LOOK_BACK = 4_096
#: Bytes of a shed row that may yet be followed, and as many while the sample is cut.
_SHED = 48
_NONE = Gone(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))


class Recall:
    """Counts results produced, and estimates those that were missed because a row was evicted or shed.

    Guarantees
        Right on average for every policy, whatever was evicted or shed: `test_recall_is_estimated_where_rows_are_shed`.
        The same however the rows of a step were cut or ordered: `test_the_estimate_does_not_depend_on_cuts`.
        A further condition of the join is not asked of rows that are gone: with one, too many are counted as missed.
    State and cost
        At most `budget` bytes: `Ghosts`, and during a step a sample of the rows that it sheds. A shed row costs its
        draw; at most `_LOOK_BACK` of a side look back.
    """

    def __init__(self, window: Window, budget: float) -> None:
        self._window = window
        room = budget * GHOST / (GHOST + _SHED)
        self._most = max(int(room / GHOST), 1)
        self._ghosts = Ghosts(window, room)
        self._shed = [_NONE, _NONE]
        self._counts = [0, 0]
        self.produced = 0.0
        self.missed = 0.0

    @property
    def nbytes(self) -> float:
        """Bytes held."""
        return self._ghosts.nbytes + sum(_SHED * len(rows.hashes) for rows in self._shed)

    def estimate(self) -> float:
        """The share of all results so far that was produced."""
        total = self.produced + self.missed
        return self.produced / total if total else 1.0

    def evicted(self, side: int, gone: Gone, log: ChunkLog) -> None:
        """Rows that leave memory."""
        self._ghosts.follow(side, gone, log)

    def shed(self, side: int, hashes: U64, moments: I64, prints: U64) -> None:
        """Rows that never reach the join, and their fingerprints; of all in this step those with the lowest draws."""
        self._counts[side] += len(hashes)
        # They have no numbers; any will do that are below those of rows to come.
        came = Gone(hashes, moments, -1 - (prints >> np.uint64(4)).astype(np.int64))
        rows = Gone(*(np.concatenate(both) for both in zip(self._shed[side], came, strict=True)))
        if len(rows.hashes) > self._most:
            rows = rows.where(np.argpartition(draws(rows.numbers), self._most - 1)[: self._most])
        self._shed[side] = rows

    def look_back(self, waiting: Sequence[SideRows], log: ChunkLog) -> float:
        """Results that shed rows would have had with rows that came before; they are followed from now on."""
        missed = 0.0
        for side in (LEFT, RIGHT):
            rows, total = self._shed[side], self._counts[side]
            if not total:
                continue
            each = draws(rows.numbers)
            some = rows.where(np.argsort(each, kind="stable")[:_LOOK_BACK])
            probes = Probes(some.hashes, some.moments, np.full(len(some.hashes), FAR // 2))
            met = count(waiting[1 - side].entries(), probes, self._window.reach(side))
            # Of two that are shed in the same step the second side's looks back on the first's.
            missed += (met + self._ghosts.missed(side, probes)) * total / len(some.hashes)
            known = {} if total == len(each) else {"known": int(each.max())}
            self._ghosts.follow(side, rows, log, **known)
        self._shed, self._counts = [_NONE, _NONE], [0, 0]
        self.missed += missed
        return missed

    def arrived(self, side: int, probes: Probes) -> float:
        """Results that new rows would have had with rows that are gone."""
        missed = self._ghosts.missed(side, probes)
        self.missed += missed
        return missed

    # -- state -------------------------------------------------------------------------------------------------

    def fit(self, log: ChunkLog) -> None:
        """Let go of what a budget does not hold that became smaller."""
        self._ghosts.follow(LEFT, _NONE, log)

    def close(self, clock: Clock, log: ChunkLog) -> None:
        """Forget rows that have left the window."""
        self._ghosts.close(clock, log)

    def store(self, number: int, log: ChunkLog) -> None:
        """Write what is new."""
        self._ghosts.store(number, log)

    def head(self) -> dict[str, Any]:
        """What the chunks do not say."""
        return {"produced": self.produced, "missed": self.missed, "ghosts": self._ghosts.head()}

    def restore(self, said: Mapping[str, Any], chunks: Mapping[str, pa.Buffer]) -> None:
        """Count on."""
        self.produced, self.missed = said["produced"], said["missed"]
        self._ghosts.restore(said["ghosts"], chunks)
