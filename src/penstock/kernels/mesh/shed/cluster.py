"""Cluster sampling: w rows, each the likelier the more it matches."""

from __future__ import annotations

import numpy as np

from penstock.kernels.mesh.shed.policy import F64, Candidates, Cut, MatchCounts, Policy, Scored, uniform


class Cluster(Policy):
    """Keep a sample of rows, each with a probability proportional to its match count.

    All results of a kept row are emitted: a cluster of the join. The sample is drawn as a priority sample: a row that
    matches f times and draws u has the priority f / u, and the greatest priorities are kept. If τ is the greatest
    priority that was shed, a row was kept with probability min(1, f / τ), whatever the others drew, which makes sums
    over the kept rows, divided by that probability, unbiased estimates of sums over all.

    Guarantees
        Sums of anything over the join are unbiased: `test_estimates_are_unbiased`; the count of results has a relative
        standard error of at most 1 / √(w - 1): `test_the_size_of_the_join_is_known_within_its_bound`.
        Match counts that are too large cost accuracy but no bias: `test_estimates_are_unbiased`.
    State and cost
        The match counts, which are the caller's; one look-up a row.
    Source
        000 §4.1, Table 2: many-to-many, RANDOM-SAMPLE. Priority sampling: Duffield, Lund, Thorup, J. ACM 2007; its
        variance: Szegedy, STOC 2006.

    A row that matches nothing weighs `least`. 0 leaves it out until nothing else is left, and is right for inner joins
    with counts of the whole table. Give 1 while some pages have not been counted, or where rows without a match are
    results too.
    """

    name = "cluster"
    goal = "random-sample"
    counts_matches = True

    def __init__(self, matches: MatchCounts, *, least: float = 0.0) -> None:
        self._matches = matches
        self._least = least

    def scores(self, rows: Candidates, salt: int) -> F64:
        """The priority."""
        return np.maximum(self._matches.estimate(rows.hashes), self._least) / uniform(rows.draws)

    def inclusion(self, kept: Scored, cut: Cut) -> F64:
        """The share of draws with which the row's priority is above the greatest that was shed."""
        if cut.kept == cut.offered or cut.score == 0.0:
            # What was shed, if anything, weighs nothing.
            return np.ones(len(kept.scores))
        return np.minimum(kept.scores * uniform(kept.draws) / cut.score, 1.0)
