"""TOPW: the w rows that match most."""

from __future__ import annotations

from penstock.kernels.mesh.shed.policy import F64, Candidates, MatchCounts, Policy


class TopW(Policy):
    """Keep the rows whose keys have the most partners in the table.

    The buffer is the paper's: it holds the w best of the rows that came since the last transfer, and is empty after the
    next. (The paper calls it a max heap; what must be at hand is its least element, the next to go.) Rows that match
    equally often are chosen between at random.

    Guarantees
        No other w rows of the round give more results, with exact counts: `test_topw_keeps_the_most_results`.
        Within 2% of the offline optimum in the setting of Figure 11: `test_figure_11`.
    State and cost
        The match counts, which are the caller's; one look-up a row.
    Source
        000 §4.2, TOPW; Table 2: many-to-many, MAX-SUBSET.
    """

    name = "topw"
    goal = "max-subset"
    counts_matches = True

    def __init__(self, matches: MatchCounts) -> None:
        self._matches = matches

    def scores(self, rows: Candidates, salt: int) -> F64:
        """The match count of the key."""
        return self._matches.estimate(rows.hashes)
