"""PROB: the row least likely to meet a partner goes."""

from __future__ import annotations

from penstock.kernels.window.policy import F64, Candidates, Policy


class Prob(Policy):
    """Evict the row whose key is least likely to come next on the other side; of equal ones, the older.

    Guarantees
        Optimal without a window for stationary independent streams (003 §3.5.2):
        `test_prob_is_optimal_when_stationary`.
    State and cost
        None of its own: key counts are the kernel's. One look-up a row.
    Source
        002 §3.3.1.
    """

    name = "prob"

    def scores(self, rows: Candidates, salt: int) -> F64:
        """The probability of a partner."""
        return rows.partner
