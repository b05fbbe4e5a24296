"""What a policy is: a score for every waiting row, the lowest evicted first.

A policy sees many rows of a side at once, and not always all of them: a score is one vectorised expression over rows
that do not know of each other. Which rows go follows from the scores alone: of equal ones the older goes, and of
equally old ones the left. Whatever is random is drawn from the row's number and a salt, so the same state evicts the
same rows again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import PredicateFailed
from penstock.kernels.window.windows import Clock

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass
class Candidates:
    """Rows of one side that compete for memory."""

    side: int
    hashes: U64
    numbers: I64
    #: How long each still waits, and how long it has waited, in the unit of the window.
    life: I64
    age: I64
    clock: Clock
    #: The probability that the next row of the other side has the key of each, and the key itself.
    probabilities: Callable[[], F64]
    key_values: Callable[[], pa.Array]

    @cached_property
    def partner(self) -> F64:
        """The probability that the next row of the other side has the key of each."""
        return self.probabilities()

    @cached_property
    def keys(self) -> pa.Array:
        """The keys; a struct where they have several columns."""
        return self.key_values()


@dataclass(frozen=True)
class Arrivals:
    """Rows of one side that came in one step, in order: what a policy may learn from."""

    side: int
    #: Event times, or numbers where the window is counted in rows.
    times: I64
    first_number: int
    key_values: Callable[[], pa.Array]


class Policy(ABC):
    """Scores rows. A kernel works with a copy of its own, so a policy may learn; what it learned is `head()`."""

    name: ClassVar[str]
    #: Whether rows may be evicted at all.
    lossy: ClassVar[bool] = True

    @property
    def single_slot(self) -> bool:
        """Whether it must see the whole of both streams."""
        return False

    @abstractmethod
    def scores(self, rows: Candidates, salt: int) -> F64:
        """The score of each row; the lowest go. `salt` differs from step to step and from seed to seed."""

    def observe(self, rows: Arrivals) -> None:
        """See what came."""
        return

    def departed(self, side: int, ages: I64) -> None:
        """See how long rows had waited that left, evicted or not."""
        return

    def head(self) -> Mapping[str, Any]:
        """What it has learned, as JSON has it."""
        return {}

    def restore(self, head: Mapping[str, Any]) -> None:
        """Know again what another knew."""
        return

    def model(self, side: int) -> int:
        """The number of the model in force for a side; 0 where there is none."""
        return 0

    def describe(self) -> str:
        """For people."""
        return self.name.upper()


def checked_scores(policy: Policy, rows: Candidates, salt: int) -> F64:
    """The scores, or an error if they are not one number for each row."""
    scores = np.asarray(policy.scores(rows, salt), np.float64)
    if scores.shape != rows.hashes.shape or np.isnan(scores).any():
        missing = "NaN" if scores.shape == rows.hashes.shape else f"{scores.shape} scores for {len(rows.hashes)} rows"
        raise PredicateFailed(
            f"The policy {policy.name!r} returned {missing}.",
            why="Which row is to go cannot be decided by that.",
            do="Return one number for each row: the lowest are evicted first.",
        )
    return scores
