"""A policy of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PredicateFailed
from penstock.kernels.window.policy import F64, I64, Candidates, Policy


class Custom(Policy):
    """Evict by a function of (keys, ages, partner probabilities), each with one value for each row; the lowest go.

    Keys are an Arrow array (a struct where the key has several columns), ages are microseconds or, in a row window,
    rows.

    Guarantees
        NaN, or another number of scores than rows, is an error: `test_a_policy_that_returns_nan_is_told`.
    State and cost
        Those of the function; it is called once a side whenever rows must go.
    """

    name = "custom"

    def __init__(self, score: Callable[[pa.Array, I64, F64], Any]) -> None:
        self._score = score

    def scores(self, rows: Candidates, salt: int) -> F64:
        """What the function says."""
        try:
            return np.asarray(self._score(rows.keys, rows.age, rows.partner), np.float64)
        except Exception as error:
            raise PredicateFailed(
                f"The policy {getattr(self._score, '__name__', 'of your own')!r} raised {error!r}.",
                why="Which rows are to go cannot be decided without it.",
                do="It is given keys (Arrow), ages and partner probabilities (NumPy), one value for each row.",
            ) from error
