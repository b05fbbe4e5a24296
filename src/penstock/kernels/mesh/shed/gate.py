"""How many rows of a step a join takes, so that none takes longer than it may; and what the rows kept are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.kernels.fingerprint import fingerprints
from penstock.kernels.mesh.shed.policy import F64, U64, Candidates, MatchCounts, salt_of, scatter
from penstock.kernels.mesh.shed.shedder import check_policy, make_policy
from penstock.tables.keys import hash_keys, joinable

if TYPE_CHECKING:
    from penstock.kernels.mesh.results import How

#: What the last full step says of the rate, against all before it.
_WEIGHT = 0.5


@dataclass(frozen=True)
class Overload:
    """What to do when more rows come than can be served: keep those that `policy` prefers, shed the rest.

    A step may take `max_lag` seconds. `rate` is how many bytes of rows a slot serves in a second where that is known
    beforehand; else it is learned from the first step that fills the window, of which nothing is shed yet.
    """

    policy: str
    max_lag: float
    seed: int = 0
    rate: float | None = None

    @property
    def counts_matches(self) -> bool:
        """Whether the policy must know how many partners a key has."""
        return check_policy(self.policy).counts_matches


class Gate:
    """Says how much a step may take in, from how long earlier ones took, and ranks rows.

    Guarantees
        Whatever is decided follows from what was stored with the step before: a step that is run again decides alike.
        Once a full step was seen, steps take about `max_lag` at the most, or one pass over the table where that takes
        longer: `test_what_is_taken_in_follows_the_time_that_steps_take`.
    State and cost
        The number of the step, its bytes, and the rate: three numbers in the head.
    """

    def __init__(self, overload: Overload, on: tuple[str, ...], matches: MatchCounts | None) -> None:
        self._overload = overload
        self._on = on
        self.policy = make_policy(overload.policy, matches)
        self._matches = matches
        self._rate = overload.rate
        self._round = 0
        self._full = 0.0

    @property
    def rate(self) -> float | None:
        """Bytes of rows served in a second by a full window; None while nothing is known."""
        return self._rate

    def open(self, took: float | None) -> None:
        """A step begins; the one before took so many seconds."""
        self._round += 1
        if took and self._full:
            seen = self._full / took
            self._rate = seen if self._rate is None else self._rate + _WEIGHT * (seen - self._rate)
        self._full = 0.0

    def allowed(self, room: float) -> float:
        """Bytes that this step may take in: at least what one pass over the table serves."""
        return float("inf") if self._rate is None else max(self._rate * self._overload.max_lag, room)

    def close(self, taken: float, room: float) -> None:
        """The step took in so many bytes. Only one that about fills the window tells how fast full ones are."""
        self._full = taken if taken > room / 2 else 0.0

    def ranks(self, rows: pa.RecordBatch) -> tuple[F64, U64]:
        """Score and draw of each row."""
        salt = salt_of(self._overload.seed, self._round)
        draws = scatter(fingerprints(rows), salt)
        return self.policy.scores(Candidates(self._hashes(rows), draws), salt), draws

    def worth(self, rows: pa.RecordBatch) -> float:
        """How many results the rows give, as far as that is known; one each where nothing is."""
        return (
            float(rows.num_rows) if self._matches is None else float(self._matches.estimate(self._hashes(rows)).sum())
        )

    def _hashes(self, rows: pa.RecordBatch) -> U64:
        columns = [rows.column(name) for name in self._on]
        hashes, able = hash_keys(columns), joinable(columns)
        if able is not None:
            # What lies below a NULL is not part of the row.
            hashes[~able] = 0
        return hashes

    def head(self) -> dict[str, Any]:
        """What `restore` needs."""
        return {"rate": self._rate, "round": self._round, "full": self._full}

    def restore(self, said: dict[str, Any]) -> None:
        """Go on where the gate that gave this head stood."""
        self._rate, self._round, self._full = said["rate"], int(said["round"]), float(said["full"])


@dataclass(frozen=True)
class ResultCounts:
    """How many results a row gives in a join of some kind, from how many partners its key has."""

    matches: MatchCounts
    how: How

    def estimate(self, hashes: U64) -> F64:
        """The results of a row with each of these key hashes."""
        found = self.matches.estimate(hashes)
        if self.how == "inner":
            return found
        if self.how == "left":
            return np.maximum(found, 1.0)
        met = np.minimum(found, 1.0)
        return met if self.how == "semi" else 1.0 - met
