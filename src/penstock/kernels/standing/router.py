"""DYNAMIC: every row goes to the strategy that is estimated to cost it least (003, §4.5).

A row's partners are counted exactly, which costs one search that is needed anyway; the queries whose own range has
its value are estimated by a histogram of equal width, which is kept up to date as queries come and go.

Dividing rows costs something, too. So a batch is looked at first: some of its rows say what each strategy would cost
for all, and what the best one for each would. Only where that is notably less are rows divided, one by one; else the
batch goes to one strategy as it is, with nothing gathered and nothing put back in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from penstock.kernels.standing.hotspots import HotspotTracker
from penstock.kernels.standing.search import F64, I32, I64, Rows
from penstock.kernels.standing.shape import LEFT, RIGHT
from penstock.kernels.standing.strategies import Strategy
from penstock.models.interval_histogram import EqualWidth
from penstock.models.standing_cost import I8, Coefficients, Load, cheapest, for_all

if TYPE_CHECKING:
    from penstock.kernels.standing.query_set import Change, QuerySet

Dynamic = Literal["dynamic"]
DYNAMIC: Dynamic = "dynamic"
BUCKETS = 512
#: Rows of a batch that are looked at first, at the most; and what dividing must seem to save of their cost: it costs
#: some of that itself, and estimates are off by as much.
_LOOKED_AT, _WORTH = 256, 0.1
#: From this part of all rows on, those without partners are left out of a walk over groups, which looks at every row
#: once for each.
_ALONE = 8
#: From this part of all queries on, changes make histograms anew.
_ANEW = 4
_CHOICES: tuple[Strategy, ...] = ("hotspot", "select_first", "join_first", "join_first_scan")
_BAND: tuple[Strategy, ...] = ("ssi", "merge")


def walked(strategy: Strategy | Dynamic, own: bool) -> tuple[Strategy, ...]:
    """The strategies that a choice of strategy may walk."""
    if strategy == "dynamic":
        return _CHOICES if own else _BAND
    return (strategy,)


class Router:
    """Divides rows between strategies.

    Guarantees
        The results are those of any one strategy: `test_every_strategy_gives_the_same_results`.
    State and cost
        One histogram for each range. Where one strategy is as good as any for all rows, some 40 µs a batch; else some
        20 ns a row, and one walk for each strategy that rows were given to.
    """

    def __init__(self, queries: QuerySet, coefficients: Coefficients) -> None:
        self.queries = queries
        self.coefficients = coefficients
        #: How many rows each strategy was given so far.
        self.routed = dict.fromkeys((*_CHOICES, *_BAND), 0)
        self._histograms: dict[tuple[int, int], EqualWidth] = {}
        #: What features of a row cost, by side, while no query changes.
        self._weights: dict[int, F64] = {}
        self._changed = 0

    def load(self) -> None:
        """Count all queries anew."""
        self._weights.clear()
        self._changed = 0
        standing = self.queries.bounds[self.queries.alive]
        for side in (LEFT, RIGHT):
            for attribute in range(len(self.queries.shape.ranges[side])):
                lo, hi = (standing[:, column] for column in self.queries.columns(side, attribute)[:2])
                ends = np.concatenate([lo, hi])
                ends = ends[np.isfinite(ends)]
                low, high = (float(ends.min()), float(ends.max())) if len(ends) else (0.0, 1.0)
                histogram = EqualWidth(low, high, BUCKETS)
                histogram.add(lo, hi)
                self._histograms[side, attribute] = histogram

    def before(self, change: Change) -> None:
        """Queries are about to change: those that stand now and will not, leave."""
        self._weights.clear()
        slots = np.array([self.queries.find(int(query)) for query in (*change.removed, *change.ids)], np.int64)
        self._count(self.queries.bounds[slots[slots >= 0]], -1.0)
        self._count(change.bounds, 1.0)
        self._changed += len(slots)

    def after(self) -> None:
        """Queries have changed. After very many, histograms are made anew: they may lie in other places now."""
        if _ANEW * self._changed > self.queries.count:
            self.load()

    def _count(self, bounds: F64, sign: float) -> None:
        for (side, attribute), histogram in self._histograms.items():
            begin, end = self.queries.columns(side, attribute)[:2]
            histogram.add(bounds[:, begin], bounds[:, end], sign)

    def selected(self, side: int, owns: F64) -> F64:
        """About how many queries each own value of each row selects, one column for each attribute."""
        return np.stack([self._histograms[side, at](owns[:, at]) for at in range(owns.shape[1])], axis=1)

    def choose(self, side: int, rows: Rows, owns: F64 | None = None) -> I8:
        """For each row the number of its strategy."""
        owns = rows.own[:, None] if owns is None else owns
        return cheapest((rows.end - rows.begin).astype(np.float64), self._fewest(side, owns), self._weights_of(side))

    def for_all(self, side: int, rows: Rows, owns: F64) -> int:
        """The strategy for all rows, where dividing them would save little; else -1, as where none that was looked at
        has a partner.
        """
        some = slice(None, None, len(rows.own) // _LOOKED_AT + 1)
        partners = (rows.end[some] - rows.begin[some]).astype(np.float64)
        best, alone, divided = for_all(partners, self._fewest(side, owns[some]), self._weights_of(side))
        return best if divided >= (1 - _WORTH) * alone > 0 else -1

    def _fewest(self, side: int, owns: F64) -> F64:
        """About how many queries each row selects, by the attribute that selects the fewest."""
        if not self.queries.shape.own:
            return np.zeros(len(owns))
        if owns.shape[1] == 1:
            return self._histograms[side, 0](owns[:, 0])
        return self.selected(side, owns).min(axis=1)

    def answers(self, side: int, rows: Rows, values: F64, owns: F64 | None = None) -> Iterator[I32]:
        """All runs of a batch, in pieces; each is overwritten by the next.

        `owns` are the own values of all attributes, the first as in `rows`. A row whose queries are selected is
        looked up by the attribute that selects the fewest; its runs are then still to be checked by all others.
        """
        owns = rows.own[:, None] if owns is None else owns
        for name, mine in self._divided(side, rows, owns):
            self.routed[name] += len(rows.own) if mine is None else len(mine)
            for attribute, part in self._looked_up_by(name, side, mine, owns):
                asked = rows if part is None else rows.some(part)
                if attribute:
                    asked = asked._replace(own=np.ascontiguousarray(owns[part, attribute]))
                for runs in self.queries.answers(name, side, asked, values, attribute):
                    if part is not None:
                        runs[:, 0] = part[runs[:, 0]]
                    yield runs

    def _divided(self, side: int, rows: Rows, owns: F64) -> Iterator[tuple[Strategy, I64 | None]]:
        """Strategies, each with the numbers of its rows; None for all rows, as they are."""
        strategies = _CHOICES if self.queries.shape.own else _BAND
        one = self.for_all(side, rows, owns)
        if one >= 0:
            yield strategies[one], self._met_if_few(rows) if strategies[one] == "hotspot" else None
            return
        chosen, met = self.choose(side, rows, owns), rows.begin < rows.end
        for number, name in enumerate(strategies):
            mine = np.flatnonzero((chosen == number) & met)
            if len(mine):
                yield name, mine

    def _met_if_few(self, rows: Rows) -> I64 | None:
        """The rows with partners, if those without are so many that a walk gains by leaving them out."""
        met = rows.begin < rows.end
        return np.flatnonzero(met) if _ALONE * (len(met) - np.count_nonzero(met)) > len(met) else None

    def _looked_up_by(self, name: Strategy, side: int, rows: I64 | None, owns: F64) -> Iterator[tuple[int, I64 | None]]:
        """An attribute, and those of a strategy's rows that are looked up by it."""
        if name != "select_first" or owns.shape[1] == 1:
            yield 0, rows
            return
        rows = np.arange(len(owns)) if rows is None else rows
        by = np.argmin(self.selected(side, owns[rows]), axis=1)
        for attribute in np.unique(by).tolist():
            yield attribute, rows[by == attribute]

    def _weights_of(self, side: int) -> F64:
        if side not in self._weights:
            own = self.queries.shape.own
            index = self.queries.index(side, "hotspot" if own else "ssi")
            assert index is not None
            hot = sum(index.partition.hot_sizes().values()) if isinstance(index.partition, HotspotTracker) else 0
            load = Load(self.queries.count, hot, index.groups)
            self._weights[side] = self.coefficients.weights(load) if own else self.coefficients.band_weights(load)
        return self._weights[side]
