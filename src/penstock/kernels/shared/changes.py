"""Changes of the queries that share a join, as rows of its third input.

They are applied in the order of their versions, to a micro-batch as a whole and before its rows. One that makes no
sense is told, and passed over; one that comes again is not applied twice. A file may be seen a micro-batch later than
one that was written after it, where a directory is listed while both get their names: it is applied then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import BadOption
from penstock.kernels.shared.queries import QuerySet
from penstock.kernels.shared.selection import Selection
from penstock.kernels.window.windows import FAR

#: What a change has: its place among them, "add" or "remove", a name, a window in microseconds ("us") or rows ("rows"),
#: and what the query selects (`Selection.written`), if not all.
CHANGES = pa.schema(
    [
        ("version", pa.int64()),
        ("op", pa.string()),
        ("query", pa.string()),
        ("window", pa.int64()),
        ("unit", pa.string()),
        ("select", pa.string()),
    ]
)


_MOST_GAPS = 64


class Registrar:
    """Applies changes to a set of queries, each version once.

    Guarantees
        What makes no sense changes nothing: `test_changes_without_sense_are_set_aside_and_told_once`.
        One that was overtaken is not lost: `test_a_change_that_was_overtaken_is_applied_when_it_comes`.
    State and cost
        The last version, and the last `_MOST_GAPS` ranges of versions before it that have not come.
    """

    def __init__(self, queries: QuerySet, results: pa.Schema, *, by_rows: bool) -> None:
        self._queries, self._results, self._by_rows = queries, results, by_rows
        self._last = -1
        self._gaps: list[tuple[int, int]] = []

    def head(self) -> list[Any]:
        """As JSON has it."""
        return [self._last, self._gaps]

    def restore(self, said: list[Any]) -> None:
        """Know again which versions have come."""
        self._last, self._gaps = said[0], [(first, last) for first, last in said[1]]

    def apply(
        self, portions: Sequence[pa.RecordBatch], arrived: tuple[int, int]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Queries come and go when so many rows of each side have come; why a change makes no sense, and the change."""
        rows = [row for part in portions for row in part.to_pylist()]
        for row in sorted(rows, key=lambda row: row["version"] if row["version"] is not None else -1):
            fault = self._fault(row)
            if row["version"] is not None:
                self._note(row["version"])
            if fault is None:
                if row["op"] == "add":
                    self._queries.add(row["query"], row["window"], sum(arrived), arrived, row["select"])
                else:
                    self._queries.remove(row["query"], sum(arrived))
            elif fault:
                yield fault, pa.RecordBatch.from_pylist([row], schema=CHANGES)
        self._queries.retire()

    def _came(self, version: int) -> bool:
        return version <= self._last and not any(first <= version <= last for first, last in self._gaps)

    def _note(self, version: int) -> None:
        """A version has come; those between it and the last may come yet."""
        gaps = [*self._gaps, (self._last + 1, version)] if version > self._last else self._gaps
        around = [
            part
            for first, last in gaps
            for part in (((first, version - 1), (version + 1, last)) if first <= version <= last else ((first, last),))
        ]
        self._gaps = [(first, last) for first, last in around if first <= last][-_MOST_GAPS:]
        self._last = max(self._last, version)

    def _fault(self, row: Mapping[str, Any]) -> str | None:
        """Why a change makes no sense; nothing where it was applied before."""
        if row["version"] is None or row["query"] is None:
            return "a change needs a version and a query"
        if self._came(row["version"]):
            return ""
        standing = self._queries.standing(row["query"])
        if row["op"] == "remove":
            return None if standing else "there is no query of this name to remove"
        if row["op"] != "add":
            return "a change is add or remove"
        if row["unit"] != ("rows" if self._by_rows else "us") or not 0 < (row["window"] or 0) < FAR:
            return "its window is not of the kind of the others"
        if row["select"] is not None:
            try:
                Selection.read(row["select"], self._results)
            except BadOption as fault:
                return fault.what
        return "there is a query of this name" if standing else None
