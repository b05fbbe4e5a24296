"""Changes of keys that updates give or take, one after the other: such an update is done as a whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

#: A row that a key had before the first change.
OLD = -1


@dataclass
class Moves:
    """Decides about the changes of some keys, which are numbers from 0, in the order in which they came.

    Of each change: its key; whether it gives the key a row (`comes`), takes it (`goes`), or neither, an update; its
    file; and whether it is one half of an update that changes the key: the one that takes, right before the one that
    gives.

    Guarantees
        What is refused has no effect, also not by half. A row may be given a key that another row has, if that one
        loses it by the next change of the key, in the same file, and by an update that is not refused either:
        `test_a_keyed_table_is_as_if_changes_came_one_by_one`.
    State and cost
        The row of each key; one look at each change, and at those of a statement that follow from it.
    """

    keys: Sequence[int]
    comes: Sequence[bool]
    goes: Sequence[bool]
    files: Sequence[int]
    half: Sequence[bool]
    there: Sequence[bool]
    valid: list[bool] = field(init=False)
    #: Of those that are not valid, whether the key is there already; else there is no such row.
    taken: list[bool] = field(init=False)
    #: The rows that keys have, by the change that brought them; two of them only within a statement.
    rows: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.keys)
        self.valid, self.taken = [False] * count, list(self.comes)
        self.rows = [[OLD] if there else [] for there in self.there]
        self._next = [-1] * count
        following = [-1] * len(self.there)
        for at in range(count - 1, -1, -1):
            self._next[at], following[self.keys[at]] = following[self.keys[at]], at
        #: Updates whose new key is left by another that follows from one that was done; and those that cannot be, by
        #: how much had been done when that was found: what follows from them need not be looked at until more is.
        self._agreed: set[int] = set()
        self._hopeless: dict[int, int] = {}
        self._done = 0

    def decide(self) -> Moves:
        """Go through all changes."""
        for at, key in enumerate(self.keys):
            rows = self.rows[key]
            if self.half[at]:
                if self.goes[at]:
                    self._move(at)
            elif self.comes[at] != bool(rows):
                self.valid[at] = True
                self._done += 1
                if self.comes[at]:
                    rows.append(at)
                elif self.goes[at]:
                    rows.pop()
                else:
                    rows[-1] = at
        return self

    def _move(self, at: int) -> None:
        old, new = self.rows[self.keys[at]], self.rows[self.keys[at + 1]]
        if not old:
            self.taken[at + 1] = False
            return
        fits = not new or self._vacated(at)
        if not fits and len(old) == 1:
            self.taken[at] = True
            return
        # A key that was given on already is left in any case, though what came between leaves no other one for its row.
        old.pop(0)
        self.valid[at], self.valid[at + 1] = True, fits
        self._done += 1
        if fits:
            new.append(at + 1)

    def _vacated(self, at: int) -> bool:
        """Whether the row that has the new key loses it by the same statement."""
        if at in self._agreed:
            return True
        freed = self.keys[at] if len(self.rows[self.keys[at]]) == 1 else None
        chain, one = [at], at
        while True:
            one = self._next[one + 1]
            goes_on = one >= 0 and self.goes[one] and self.half[one] and self.files[one] == self.files[at]
            if not goes_on or self._hopeless.get(one) == self._done:
                self._hopeless |= dict.fromkeys(chain, self._done)
                return False
            if one in self._agreed or self.keys[one + 1] == freed or not self.rows[self.keys[one + 1]]:
                self._agreed.update(chain)  # but not the last: its new key may be taken until it is its turn
                return True
            chain.append(one)
