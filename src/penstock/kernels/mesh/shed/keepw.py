"""Keep-w: any w rows will do."""

from __future__ import annotations

from penstock.kernels.mesh.shed.policy import F64, Candidates, Policy, scatter, uniform


class KeepW(Policy):
    """Keep as many rows as can be admitted, key by key.

    Where every row has one partner no choice is better than another, so this one is made to cost little: the rows of a
    key are kept or shed together (one key at most is divided), and the join looks up few keys. Which keys are kept
    changes from round to round, so that none is always left out.

    Guarantees
        Of n rows, n - w are lost, the fewest possible where each has one partner: `test_keepw_keeps_as_many_as_fit`.
        At most one key is divided: `test_keepw_divides_at_most_one_key`.
    State and cost
        None; a few nanoseconds a row.
    Source
        000 §4.1, Table 2: many-to-one, MAX-SUBSET.
    """

    name = "keepw"
    goal = "max-subset"

    def scores(self, rows: Candidates, salt: int) -> F64:
        """A number drawn for the key."""
        return uniform(scatter(rows.hashes, salt))
