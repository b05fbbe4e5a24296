"""How often each key occurs: exactly while it fits a budget, by a bounded sketch beyond it."""

from __future__ import annotations

import json
import math

import numpy as np
import numpy.typing as npt

from penstock.errors import MemoryTooSmall, StateDamaged
from penstock.models.countmin import CountMin
from penstock.models.counts import CountTable

U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]

LEAST_BUDGET = 4096
#: Of the budget, for the exact table and for the sketch; the rest is what changing over takes.
_SHARE = 0.4
_FORMAT = 1
#: Decaying weights grow by this power of two before all are scaled back.
_HEADROOM = 40.0


class Frequencies:
    """Counts by key hash under a hard budget; with `half_life`, recent occurrences weigh more.

    The match count f_R of the papers is this, filled with the key hashes of every page of a table. With a half-life h
    an occurrence at time t weighs 2 ** -((now - t) / h): a key's share of `total()` is then its recent probability.

    Guarantees
        While `exact`, the number of times a hash was added: `test_exact_counts_equal_a_dictionary`.
        Else at least that, and with probability 1 - e ** -4 at most `bound()` more: `test_the_sketch_keeps_its_bound`.
        A decaying weight may be too small, by less than 0.002: `test_decayed_weights_equal_their_definition`.
        Never above `budget`, growing and changing over included: `test_never_above_the_budget`.
        Bytes read back go on as the first would have: `test_bytes_read_back_go_on_alike`.
    State and cost
        An exact table of up to 40% of the budget, which holds a key for every 46 bytes of the budget; then a sketch of
        40%. 20 to 200 ns a hash.

    >>> counts = Frequencies(1 << 16)
    >>> counts.add(np.array([5, 5, 6], np.uint64))
    >>> counts.estimate(np.array([5, 6, 7], np.uint64)).tolist(), counts.exact
    ([2.0, 1.0, 0.0], True)
    """

    def __init__(self, budget: int, *, half_life: float | None = None) -> None:
        if budget < LEAST_BUDGET:
            raise MemoryTooSmall(
                f"{budget} bytes are too few to count keys.",
                why="A sketch this small would say the same of every key.",
                do=f"Give at least {LEAST_BUDGET} bytes.",
            )
        if half_life is not None and not half_life > 0:
            raise ValueError(f"A half-life of {half_life} is none: it must be above 0.")
        self.budget = budget
        self.half_life = half_life
        self._table: CountTable | None = CountTable(int(budget * _SHARE))
        self._sketch: CountMin | None = None
        self._weight = 0.0
        self._landmark = 0.0
        self._peak = 0

    @property
    def exact(self) -> bool:
        """Whether every count is the true one."""
        return self._sketch is None

    def add(self, hashes: U64, now: float = 0.0) -> None:
        """Count each of these hashes once, at time `now`, which matters with a half-life alone."""
        weight = 1.0
        if self.half_life is not None:
            if now - self._landmark > _HEADROOM * self.half_life:
                self._rebase(now)
            weight = 2.0 ** ((now - self._landmark) / self.half_life)
            if weight == 0.0:
                return
        self._put(hashes, weight, now)

    def estimate(self, hashes: U64, now: float = 0.0) -> F64:
        """The count of each hash, as of `now`."""
        store = self._table if self._table is not None else self._sketch
        assert store is not None
        found = store.find(hashes)
        return found if self.half_life is None else found * self._fade(now)

    def total(self, now: float = 0.0) -> float:
        """All counts together."""
        return self._weight * self._fade(now)

    def bound(self, now: float = 0.0) -> float:
        """What an estimate exceeds the true count by, at most: always while `exact`, else with probability 0.98."""
        return 0.0 if self._sketch is None else self._sketch.bound() * self._fade(now)

    def merge(self, other: Frequencies) -> None:
        """Count what `other` counted, too; the two have one budget and one half-life."""
        if (other.budget, other.half_life) != (self.budget, self.half_life):
            raise ValueError("Only counts of the same budget and half-life can be put together.")
        now = max(self._landmark, other._landmark)
        self._rebase(now)
        factor = other._fade(now)
        if other._table is not None:
            hashes, weights = other._table.items()
            self._put(hashes, weights * factor, now)
            return
        assert other._sketch is not None
        if self._table is not None:
            self._change_over()
        assert self._sketch is not None
        self._sketch.merge(other._sketch, factor)
        self._weight += other._weight * factor

    def memory(self) -> int:
        """Bytes held at the most so far."""
        return max(self._peak, self._table.peak if self._table is not None else 0)

    def to_bytes(self) -> bytes:
        """All of it, for `from_bytes`; an exact table depends on what was counted alone, not on its order."""
        head = {
            "format": _FORMAT,
            "budget": self.budget,
            "half_life": self.half_life,
            "weight": self._weight,
            "landmark": self._landmark,
            "exact": self.exact,
        }
        if self._table is not None:
            parts = [part.tobytes() for part in self._table.items()]
        else:
            assert self._sketch is not None
            head["total"] = self._sketch.total
            parts = [self._sketch.cells.tobytes()]
        return b"\n".join([json.dumps(head).encode(), b"".join(parts)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Frequencies:
        """What `to_bytes` wrote."""
        line, _, body = data.partition(b"\n")
        try:
            head = json.loads(line)
            if head["format"] != _FORMAT:
                raise StateDamaged(f"Key counts of format {head['format']}; this version reads {_FORMAT}.")
            self = cls(head["budget"], half_life=head["half_life"])
            if head["exact"]:
                whole = np.frombuffer(body, np.uint64)
                self._put(whole[: whole.size // 2], whole[whole.size // 2 :].view(np.float64), 0.0)
            else:
                self._change_over()
                assert self._sketch is not None
                self._sketch.cells.reshape(-1)[:] = np.frombuffer(body, self._sketch.cells.dtype)
                self._sketch.total = head["total"]
            self._weight, self._landmark = head["weight"], head["landmark"]
        except (ValueError, KeyError, TypeError) as fault:
            raise StateDamaged(
                "Stored key counts cannot be read.", why=f"{fault}", do="Delete them; they are counted again."
            ) from fault
        return self

    def _put(self, hashes: U64, weights: F64 | float, now: float) -> None:
        self._weight += float(np.sum(weights)) if isinstance(weights, np.ndarray) else weights * len(hashes)
        taken = 0
        if self._table is not None:
            taken = self._table.add(hashes, weights)
            if taken == len(hashes):
                return
            if self.half_life is not None and isinstance(weights, float):
                if self._forget(now):
                    # What was negligible is gone and the scale is new: the rest goes the usual way.
                    self._weight -= len(hashes) - taken
                    self.add(hashes[taken:], now)
                    return
                # The scale is new in any case: what comes now counts 1.
                weights = 1.0
            self._change_over()
        assert self._sketch is not None
        self._sketch.add(hashes[taken:], weights[taken:] if isinstance(weights, np.ndarray) else weights)

    def _forget(self, now: float) -> bool:
        """Drop what has decayed; whether that made enough room to go on exactly."""
        assert self._table is not None
        before = self._table.used
        self._rebase(now)
        return self._table.used <= before // 2

    def _change_over(self) -> None:
        """From exact counts to a sketch of them."""
        assert self._table is not None
        sketch = CountMin(int(self.budget * _SHARE), fractions=self.half_life is not None)
        self._peak = max(self._table.peak, self._table.nbytes + 8 * self._table.used + sketch.nbytes)
        for hashes, weights in self._table.drain():
            sketch.add(hashes, weights)
        self._table, self._sketch = None, sketch

    def _fade(self, now: float) -> float:
        if self.half_life is None:
            return 1.0
        return math.pow(2.0, (self._landmark - now) / self.half_life)

    def _rebase(self, now: float) -> None:
        """State all weights as of `now`."""
        if self.half_life is None:
            return
        factor = self._fade(now)
        for store in (self._table, self._sketch):
            if store is not None:
                store.scale(factor)
        self._weight *= factor
        self._landmark = now
