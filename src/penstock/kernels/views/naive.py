"""NAIVE: what everybody does. When the bound is about to break, process everything."""

from __future__ import annotations

from penstock.kernels.views.planner import Planner, Situation, Tables


class Naive(Planner):
    """Clears every table whenever it is asked; the yardstick of the chapter's figures (§2.5).

    >>> from penstock.kernels.views.costs import Linear
    >>> Naive().choose(Situation((3, 0, 5), (Linear(1, 0),) * 3, bound=7.0, now=0))
    (0, 2)
    """

    def choose(self, situation: Situation) -> Tables:
        """All that has changes."""
        return tuple(table for table, changes in enumerate(situation.pending) if changes)
