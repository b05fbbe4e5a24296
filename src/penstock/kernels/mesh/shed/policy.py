"""What a shedding policy is: a score for every row, the greatest kept.

A round is the time between two transfers of rows to the join (000 §4.2: a buffer of w rows, handed over when the join
asks for it). Whatever a policy wants, it says as a score that depends on the row, the seed and the number of the round
alone. So the rows that are kept are a function of the bag of rows that came: not of their order, not of how they were
cut into portions, and the same in every slot that sees the same rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from penstock.tables.hashing import hash_words

U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]

#: MAX-SUBSET loses the fewest results; RANDOM-SAMPLE keeps a sample from which all results can be estimated.
Goal = Literal["max-subset", "random-sample"]


class MatchCounts(Protocol):
    """Something that knows how many table rows a key hash matches, as `penstock.models.frequency.Frequencies` does."""

    def estimate(self, hashes: U64) -> F64:
        """The match count of each hash."""


class Candidates(NamedTuple):
    """Rows that ask for admission: the hash of each one's key, and a number drawn for it.

    A draw is spread evenly over all 64-bit numbers; equal rows have different ones (see `Reservoir`).
    """

    hashes: U64
    draws: U64


class Scored(NamedTuple):
    """Rows that were kept: their scores and draws."""

    scores: F64
    draws: U64


class Cut(NamedTuple):
    """Where a round drew the line: score and draw of the best row that was shed, and how many rows came and stayed.

    `sized` says that not the number of rows alone was limited.
    """

    score: float
    draw: int
    offered: int
    kept: int
    sized: bool


class Policy(ABC):
    """Scores rows; of those with equal scores the one with the greater draw goes first. Holds no state of its own."""

    name: ClassVar[str]
    goal: ClassVar[Goal]
    #: Whether it must be made with match counts.
    counts_matches: ClassVar[bool] = False

    @abstractmethod
    def scores(self, rows: Candidates, salt: int) -> F64:
        """The score of each row, finite; `salt` differs from round to round and from seed to seed."""

    def inclusion(self, kept: Scored, cut: Cut) -> F64 | None:
        """The probability with which each kept row was kept; None from a policy that keeps no sample.

        Divide what a row brings by it, and the sum over the kept rows is an unbiased estimate of the sum over all.
        """
        return None


def uniform(draws: U64) -> F64:
    """Draws as numbers strictly between 0 and 1.

    >>> uniform(np.array([0, 2**63, 2**64 - 1], np.uint64)).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    return ((draws >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def scatter(hashes: U64, salt: int) -> U64:
    """Draws that depend on a hash and a salt: the same for the same two, unrelated for any others."""
    draws = np.empty(len(hashes), np.uint64)
    hash_words((hashes ^ np.uint64(salt)).view(np.int64), draws)
    return draws


def salt_of(*numbers: int) -> int:
    """One salt from several numbers, such as a seed and a round.

    >>> salt_of(1, 2) == salt_of(1, 2), salt_of(1, 2) == salt_of(2, 1)
    (True, False)
    """
    words = np.random.SeedSequence([number & 0xFFFFFFFFFFFFFFFF for number in numbers]).generate_state(1, np.uint64)
    return int(words[0])
