"""The buffer of a round: holds the best rows so far, gives back the others at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.kernels.mesh.shed.policy import F64, U64, Candidates, Cut, Policy, Scored, salt_of, scatter
from penstock.models.counts import CountTable

I64 = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]

#: A held row: what it is compared by, its number in order of arrival, and its size.
_ROW = np.dtype([("score", np.float64), ("draw", np.uint64), ("number", np.int64), ("size", np.int64)])
#: How many rows are held and what they take up; score and draw of the best row that was shed.
_BOOKS = np.dtype([("held", np.int64), ("size", np.int64), ("score", np.float64), ("draw", np.uint64)])
_FIRST = 1024
_UNLIMITED = np.iinfo(np.int64).max
# Odd, so that no two occurrences of a row meet.
_APART = np.uint64(0xB556B0F1035F9E49)


class Kept(NamedTuple):
    """The rows of a round that go to the join: their numbers in order of arrival, and how likely each was to be kept.

    `inclusion` is None from a policy that keeps no sample. `offered` counts all rows of the round.
    """

    rows: I64
    inclusion: F64 | None
    offered: int


class Reservoir:
    """The best rows of a round, at most `rows` of them and at most `size` in all.

    Rows are numbered from 0 in the order in which they are offered. What does not fit comes back from `offer`, by
    number; what stays, from `close`. With sizes, rows are held from the best down to the first that does not fit: a
    smaller row beyond it is not kept in its stead, because that would depend on order.

    Guarantees
        The kept rows are a function of the bag of rows, the policy, the seed and the round, however rows are ordered or
        cut: `test_what_is_kept_depends_on_the_bag_alone`. (Rows are told apart by 64-bit fingerprints: of a million
        rows, two that differ have the same one with a probability of 3e-8.)
        Every row comes back exactly once: `test_every_row_is_kept_or_shed_once`.
        Equal to sorting all rows and cutting: `test_reservoir_equals_its_naive_twin`.
    State and cost
        32 bytes for each held row, up to 64 while they become more. With `tell_repeats`, 18 to 55 bytes for each
        different fingerprint of the round. A row that is shed at once costs one comparison, another about log2(rows):
        0.1 to 0.6 µs.

    `tell_repeats` draws a number of its own for each of several equal rows. Without it they draw the same one and are
    kept or shed together (but for one group, which the limit may divide). Estimates from samples are unbiased either
    way, but a frequent row then counts for all or nothing. There is no third way with less memory: a reservoir that
    remembers only what it holds cannot know how often it has refused a row.
    """

    def __init__(
        self,
        policy: Policy,
        rows: int,
        *,
        size: int | None = None,
        seed: int = 0,
        round: int = 0,  # noqa: A002
        tell_repeats: bool = True,
    ) -> None:
        if rows < 0 or (size is not None and size < 0):
            raise ValueError(f"No reservoir holds {rows} rows of {size} in all.")
        self._policy = policy
        self._rows = rows
        self._size = _UNLIMITED if size is None else size
        self._salt = salt_of(seed, round)
        self._repeats = CountTable(_UNLIMITED) if tell_repeats else None
        self._heap = np.empty(min(rows + 1, _FIRST), _ROW)
        self._books = np.zeros(1, _BOOKS)
        self._books["score"] = -np.inf
        self._offered = 0
        self._peak = int(self._heap.nbytes)

    @property
    def held(self) -> int:
        """How many rows it holds."""
        return int(self._books["held"][0])

    def offer(self, hashes: U64, fingerprints: U64, sizes: I64 | None = None) -> I64:
        """Offer rows by their key hashes and fingerprints; get the numbers of rows, of these or earlier, that are shed.

        A fingerprint is a hash of the whole row. `sizes` are whole numbers, in the unit of the reservoir's `size`.
        """
        draws = scatter(self._apart(fingerprints), self._salt)
        scores = self._policy.scores(Candidates(hashes, draws), self._salt)
        self._make_room(min(self._rows, self.held + len(hashes)) + 1)
        shed = np.empty(self.held + len(hashes), np.int64)
        each = np.zeros(1, np.int64) if sizes is None else sizes
        count = _offer(self._heap, self._books, self._rows, self._size, scores, draws, each, self._offered, shed)
        self._offered += len(hashes)
        return shed[:count]

    def close(self) -> Kept:
        """End the round: the rows it holds, in order of arrival. It is of no use afterwards."""
        books = self._books[0]
        held = self._heap[: self.held]
        held = held[np.argsort(held["number"])]
        cut = Cut(float(books["score"]), int(books["draw"]), self._offered, len(held), self._size != _UNLIMITED)
        inclusion = self._policy.inclusion(Scored(held["score"], held["draw"]), cut)
        return Kept(np.ascontiguousarray(held["number"]), inclusion, self._offered)

    def memory(self) -> int:
        """Bytes held at the most, without what a call of `offer` takes: 40 for each row offered, 8 for each held."""
        return self._peak + (0 if self._repeats is None else self._repeats.peak)

    def _apart(self, fingerprints: U64) -> U64:
        if self._repeats is None:
            return fingerprints
        return fingerprints + self._repeats.number(fingerprints).view(np.uint64) * _APART

    def _make_room(self, rows: int) -> None:
        if rows > len(self._heap):
            longer = np.empty(min(max(rows, 2 * len(self._heap)), self._rows + 1), _ROW)
            longer[: self.held] = self._heap[: self.held]
            self._peak = int(self._heap.nbytes + longer.nbytes)
            self._heap = longer


def choose(
    policy: Policy,
    hashes: U64,
    fingerprints: U64,
    *,
    rows: int,
    sizes: I64 | None = None,
    size: int | None = None,
    seed: int = 0,
    round: int = 0,  # noqa: A002
) -> Kept:
    """What one round keeps of rows that are all at hand.

    >>> from penstock.kernels.mesh.shed.samplew import SampleW
    >>> hashes = np.arange(5, dtype=np.uint64)
    >>> kept = choose(SampleW(), hashes, hashes, rows=2)
    >>> len(kept.rows), kept.inclusion.tolist()
    (2, [0.4, 0.4])
    """
    reservoir = Reservoir(policy, rows, size=size, seed=seed, round=round)
    reservoir.offer(hashes, fingerprints, sizes)
    return reservoir.close()


@njit(cache=True)
def _offer(
    heap: Rows, books: Rows, most: int, room: int, scores: F64, draws: U64, sizes: I64, first: int, shed: I64
) -> int:
    held, used = books[0]["held"], books[0]["size"]
    best_score, best_draw = books[0]["score"], books[0]["draw"]
    step = 1 if sizes.size > 1 else 0
    count = 0
    for i in range(scores.size):
        if not _less(best_score, best_draw, scores[i], draws[i]):
            shed[count] = first + i
            count += 1
            continue
        _push(heap, held, scores[i], draws[i], first + i, sizes[i * step])
        held += 1
        used += sizes[i * step]
        while held > most or used > room:
            # The worst row goes, and with it every row that is no better: nothing may slip in beneath it later.
            if _less(best_score, best_draw, heap[0]["score"], heap[0]["draw"]):
                best_score, best_draw = heap[0]["score"], heap[0]["draw"]
            shed[count] = heap[0]["number"]
            count += 1
            held -= 1
            used -= heap[0]["size"]
            _pop(heap, held)
    books[0]["held"], books[0]["size"] = held, used
    books[0]["score"], books[0]["draw"] = best_score, best_draw
    return count


@njit(cache=True)
def _less(score: float, draw: np.uint64, than_score: float, than_draw: np.uint64) -> bool:
    return bool(score < than_score or (score == than_score and draw < than_draw))


@njit(cache=True)
def _push(heap: Rows, at: int, score: float, draw: np.uint64, number: int, size: int) -> None:
    while at > 0:
        above = (at - 1) // 2
        if not _less(score, draw, heap[above]["score"], heap[above]["draw"]):
            break
        heap[at] = heap[above]
        at = above
    heap[at]["score"] = score
    heap[at]["draw"] = draw
    heap[at]["number"] = number
    heap[at]["size"] = size


@njit(cache=True)
def _pop(heap: Rows, last: int) -> None:
    """Remove the root of `last + 1` rows: the last one sinks from the top."""
    at = 0
    while 2 * at + 1 < last:
        below = 2 * at + 1
        right = below + 1
        if right < last and _less(heap[right]["score"], heap[right]["draw"], heap[below]["score"], heap[below]["draw"]):
            below = right
        if not _less(heap[below]["score"], heap[below]["draw"], heap[last]["score"], heap[last]["draw"]):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = heap[last]
