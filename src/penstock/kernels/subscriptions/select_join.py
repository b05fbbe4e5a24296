"""Select-join subscriptions: every pair that a join gains or loses is a message, two selections are a rectangle.

A subscription asks for σ(a in [a1, a2]) R ⋈ σ(c in [c1, c2]) S. Which pairs there are depends on the tables and on no
subscription; whether a pair concerns a subscription can be seen from its a and c alone. So the server says the pairs,
and the subscription is the stateless question whether (a, c) lies in its rectangle. Xie, §5.4.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Side = Literal[0, 1]


class Row(NamedTuple):
    """A row of either table: what it is joined on, and what is selected by. All are codes."""

    on: int
    x: int


class Pairs(NamedTuple):
    """Pairs that one update changed, all of the same kind: they come, they go, or they stay and one side moved.

    `left` and `right` are the keys of the two rows; `before` and `after` have (a, c) of each pair, or None.
    """

    left: I64
    right: I64
    before: I64 | None
    after: I64 | None

    def concerning(self, a1: int, a2: int, c1: int, c2: int) -> tuple[I64, I64, I64]:
        """What a subscription is told: the numbers of pairs that it gains, loses, and that changed inside it."""
        was, now = (
            _inside(self.before, len(self.left), a1, a2, c1, c2),
            _inside(self.after, len(self.left), a1, a2, c1, c2),
        )
        return np.flatnonzero(now & ~was), np.flatnonzero(was & ~now), np.flatnonzero(was & now)


def _inside(places: I64 | None, count: int, a1: int, a2: int, c1: int, c2: int) -> npt.NDArray[np.bool_]:
    if places is None:
        return np.zeros(count, np.bool_)
    a, c = places[:, 0], places[:, 1]
    return (a1 <= a) & (a <= a2) & (c1 <= c) & (c <= c2)


class _Group:
    """The rows of one table with one join value: keys and xs, in arrays that double."""

    def __init__(self) -> None:
        self._rows = np.empty((4, 2), np.int64)
        self._places: dict[int, int] = {}

    @property
    def rows(self) -> I64:
        return self._rows[: len(self._places)]

    def set(self, key: int, x: int) -> None:
        at = self._places.setdefault(key, len(self._places))
        if at == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[at] = key, x

    def drop(self, key: int) -> bool:
        """Whether any row is left."""
        at, last = self._places.pop(key), len(self._places)
        if at != last:
            self._rows[at] = self._rows[last]
            self._places[int(self._rows[at, 0])] = at
        return bool(self._places)


class SelectJoin:
    """Two tables that change, and the pairs that each change makes, breaks or moves.

    Guarantees
        Every pair of the join that a subscription's selections gained, lost or saw changed is in exactly one of the
        messages of the update, as exactly that: `test_pairs_are_told_to_those_whose_selections_they_meet`.
    State and cost
        Both tables, 16 bytes and some Python objects a row; an update costs the partners of its row, vectorised.

    >>> join = SelectJoin()
    >>> join.update(0, key=1, new=Row(on=7, x=10))
    []
    >>> (pairs,) = join.update(1, key=5, new=Row(on=7, x=20))
    >>> pairs.after.tolist(), pairs.concerning(0, 15, 0, 30)[0].tolist()
    ([[10, 20]], [0])
    """

    def __init__(self) -> None:
        self._rows: tuple[dict[int, Row], dict[int, Row]] = ({}, {})
        self._groups: tuple[dict[int, _Group], dict[int, _Group]] = ({}, {})

    def update(self, side: Side, key: int, new: Row | None) -> list[Pairs]:
        """Put a row of a table in the place of the one with the same key, or delete it; the pairs that changed."""
        old = self._rows[side].get(key)
        if old == new:
            return []
        self._replace(side, key, old, new)
        if old is not None and new is not None and old.on == new.on:
            return self._pairs(side, key, old, new)
        return [*self._pairs(side, key, old, None), *self._pairs(side, key, None, new)]

    def _replace(self, side: Side, key: int, old: Row | None, new: Row | None) -> None:
        rows, groups = self._rows[side], self._groups[side]
        if old is not None and (new is None or new.on != old.on) and not groups[old.on].drop(key):
            del groups[old.on]
        if new is None:
            rows.pop(key, None)
        else:
            rows[key] = new
            groups.setdefault(new.on, _Group()).set(key, new.x)

    def _pairs(self, side: Side, key: int, old: Row | None, new: Row | None) -> list[Pairs]:
        row = new or old
        partners = self._groups[1 - side].get(row.on) if row is not None else None
        if partners is None:
            return []
        theirs = partners.rows
        mine = np.full(len(theirs), key)
        left, right = (mine, theirs[:, 0].copy()) if side == 0 else (theirs[:, 0].copy(), mine)
        return [Pairs(left, right, *(_places(side, one, theirs[:, 1]) for one in (old, new)))]


def _places(side: Side, row: Row | None, theirs: I64) -> I64 | None:
    if row is None:
        return None
    ours = np.full(len(theirs), row.x)
    return np.stack([ours, theirs] if side == 0 else [theirs, ours], axis=1)
