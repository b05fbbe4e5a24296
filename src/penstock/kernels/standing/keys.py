"""Keys of rows as numbers: equal keys have the same one, different keys have different ones.

A key's number is its hash. For whole numbers, dates and timestamps that is all: no two of them have the same hash. Of
texts, decimals, and keys of several columns two may, once in a very long while. So each row's key is compared with one
that is kept under its number, and where that is another key, the one that came later *moves* to the next number that
is free. It stays there until no row of it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.standing.held import U64, Held
from penstock.kernels.standing.search import Flags
from penstock.kernels.standing.shape import LEFT, Shape
from penstock.tables.keys import canonical, equal_keys, hash_keys, injective

Key = tuple[Any, ...]
#: Bytes of Python's own for a key that moved, beside its values.
_MOVED = 400


def compared(shape: Shape, schemas: tuple[pa.Schema, pa.Schema]) -> bool:
    """Whether keys are to be compared because hashes do not tell them apart; rows then need their key columns."""
    return bool(shape.on[LEFT]) and not injective([schemas[LEFT].field(name).type for name in shape.on[LEFT]])


class KeyNumbers:
    """The numbers of the keys of both sides.

    Guarantees
        Among the rows that are kept and those that come, a number stands for one key, and a key has one number:
        `test_keys_with_one_hash_are_told_apart`.
    State and cost
        Nothing for keys that have a hash of their own. A row costs a look at one kept row of each side.
    """

    def __init__(self, shape: Shape, held: Sequence[Held]) -> None:
        self._on = shape.on
        self._held = held
        self._moved: dict[Key, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return _MOVED * len(self._moved)

    def numbers(self, side: int, hashes: U64, rows: pa.RecordBatch) -> U64:
        """The numbers of arriving rows, by the hashes of their keys."""
        columns = [rows.column(name) for name in self._on[side]]
        if not self._moved and not self._strange(hashes, columns).any():
            return hashes
        return self._one_by_one(hashes, columns)

    def restored(self) -> None:
        """Find those that moved among the rows that are kept."""
        self._moved.clear()
        for held, names in zip(self._held, self._on, strict=True):
            for chunk, numbers in held.numbered():
                columns = [chunk.column(name) for name in names]
                for at in np.flatnonzero(numbers != hash_keys(columns)).tolist():
                    self._moved[_key(columns, at)] = int(numbers[at])

    def forget(self) -> None:
        """Rows were let go: keys that moved and are kept no longer, have their hash again when they come back."""
        if self._moved:
            kept = self._taken(np.array([*self._moved.values()], np.uint64))
            self._moved = {key: number for (key, number), there in zip(self._moved.items(), kept, strict=True) if there}

    def _strange(self, hashes: U64, columns: list[pa.Array]) -> Flags:
        """Rows whose number is that of another key, of a kept row or of an earlier one among them."""
        strange = np.zeros(len(hashes), np.bool_)
        alone = np.ones(len(hashes), np.bool_)
        for side, held in enumerate(self._held):
            begin, end = held.partners(hashes)
            met = np.flatnonzero(begin < end)
            if len(met):
                kept, order = held.take(begin[met], self._on[side])
                met = met[order]
                same = equal_keys([column.take(pa.array(met)) for column in columns], kept.columns)
                strange[met[~same]] = True
                alone[met] = False
        rest = np.flatnonzero(alone)
        _, first, back = np.unique(hashes[rest], return_index=True, return_inverse=True)
        others = np.flatnonzero(first[back] != np.arange(len(rest)))
        if len(others):
            mine, theirs = rest[others], rest[first[back[others]]]
            same = equal_keys(*([column.take(pa.array(at)) for column in columns] for at in (mine, theirs)))
            strange[mine[~same]] = True
        return strange

    def _one_by_one(self, hashes: U64, columns: list[pa.Array]) -> U64:
        """The same with keys that moved, or are to."""
        numbers = hashes.copy()
        keys = [_key(columns, at) for at in range(len(hashes))]
        moved = np.array([key in self._moved for key in keys], np.bool_)
        rest = np.flatnonzero(~moved)
        strange = rest[self._strange(hashes[rest], [column.take(pa.array(rest)) for column in columns])]
        there = set(hashes.tolist())
        for at in strange.tolist():
            if keys[at] not in self._moved:
                self._moved[keys[at]] = self._free(int(hashes[at]), there)
        for at in (*np.flatnonzero(moved).tolist(), *strange.tolist()):
            numbers[at] = self._moved[keys[at]]
        return numbers

    def _free(self, number: int, there: set[int]) -> int:
        """The next number that no key has."""
        taken = there.union(self._moved.values())
        while number in taken or self._taken(np.array([number], np.uint64))[0]:
            number = (number + 1) % (1 << 64)
        return number

    def _taken(self, numbers: U64) -> Flags:
        begins, ends = zip(*(held.partners(numbers) for held in self._held), strict=True)
        return np.logical_or(*(begin < end for begin, end in zip(begins, ends, strict=True)))


def _key(columns: list[pa.Array], at: int) -> Key:
    """A key as Python has it, the same for equal keys of either side."""
    values = (canonical(column.slice(at, 1))[0] for column in columns)
    return tuple(value.as_py() if isinstance(value, pa.Scalar) else int(value) for value in values)
