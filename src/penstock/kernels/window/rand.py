"""RAND: any row goes."""

from __future__ import annotations

import numpy as np

from penstock.kernels.window.policy import F64, Candidates, Policy
from penstock.tables.hashing import hash_words


class Rand(Policy):
    """Evict rows at random, each with the same probability.

    Guarantees
        Every waiting row is as likely to go as any other: `test_rand_is_fair`.
    State and cost
        None; draws come from the row's number and the salt.
    Source
        002 §4; the state of the art before it.
    """

    name = "rand"

    def scores(self, rows: Candidates, salt: int) -> F64:
        """A number drawn anew for each row in each step."""
        draws = np.empty(len(rows.numbers), np.uint64)
        mixed = (rows.numbers * 2 + rows.side).view(np.uint64) ^ np.uint64(salt)
        hash_words(mixed.view(np.int64), draws)
        return (draws >> np.uint64(12)).astype(np.float64)
