"""Sample-w: a uniform sample of w rows."""

from __future__ import annotations

import numpy as np

from penstock.kernels.mesh.shed.policy import F64, Candidates, Cut, Policy, Scored, uniform


class SampleW(Policy):
    """Keep a uniform random sample: the rows with the greatest draws.

    Where every row has one partner, the results are a uniform sample of the join.

    Guarantees
        Every set of w rows is as likely as any other: `test_samplew_gives_every_row_the_same_chance` and
        `test_samplew_gives_every_pair_the_same_chance`.
        Sums over the kept rows, divided by `inclusion`, are unbiased: `test_estimates_are_unbiased`.
    State and cost
        None; no cost of its own.
    Source
        000 §4.1, Table 2: many-to-one, RANDOM-SAMPLE. A reservoir that keeps the w greatest of one random number a row
        holds the same distribution as Vitter's, and does not depend on the order of rows.
    """

    name = "samplew"
    goal = "random-sample"

    def scores(self, rows: Candidates, salt: int) -> F64:
        """The same for all: the draws decide."""
        return np.ones(len(rows.hashes))

    def inclusion(self, kept: Scored, cut: Cut) -> F64:
        """w of n. Where sizes decided how many fit, the share of draws above the greatest that was shed."""
        if cut.kept == cut.offered:
            chance = 1.0
        elif cut.sized:
            chance = 1.0 - float(uniform(np.array([cut.draw], np.uint64))[0])
        else:
            chance = cut.kept / cut.offered
        return np.full(len(kept.scores), chance)
