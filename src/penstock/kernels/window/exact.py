"""EXACT: nothing goes."""

from __future__ import annotations

from penstock.kernels.window.policy import F64, Candidates, Policy


class Exact(Policy):
    """Keep every row until it leaves the window; an error where memory does not suffice.

    Guarantees
        The results are those of the window join: `test_conformance`.
    State and cost
        None.
    Source
        002 §2.1.
    """

    name = "exact"
    lossy = False

    def scores(self, rows: Candidates, salt: int) -> F64:
        """Never asked for."""
        raise AssertionError("EXACT evicts nothing")
