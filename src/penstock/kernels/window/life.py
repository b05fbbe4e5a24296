"""LIFE: the row with the least to expect from the rest of its life goes."""

from __future__ import annotations

from penstock.kernels.window.policy import F64, Candidates, Policy


class Life(Policy):
    """Evict the row with the lowest product of remaining life and probability of a partner.

    It overrates rows that will not live to their end, and so falls behind PROB (002 §4.1).

    Guarantees
        Equal to its definition, evaluated for each row: `test_policies_equal_their_naive_twins`.
    State and cost
        As PROB.
    Source
        002 §3.3.2.
    """

    name = "life"

    def scores(self, rows: Candidates, salt: int) -> F64:
        """Remaining life times the probability of a partner."""
        return rows.life * rows.partner
