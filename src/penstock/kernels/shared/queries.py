"""The queries that share a join: their windows as levels, and how far each has got.

A query that comes sees rows that arrive from then on, as if it were started alone; one that goes still gets all that
is owed to it by rows that came before. So coming and going change nothing for the others, and it does not matter how
much work is left over at that moment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import ChunkLog
from penstock.kernels.shared.budget import QUERY
from penstock.kernels.shared.scan import Levels
from penstock.kernels.shared.scheduler import Scheduler
from penstock.kernels.window.windows import FAR

I64 = npt.NDArray[np.int64]

#: Bytes for each character of a selection: a value that was read takes some five times its digits.
_SELECTED = 6


@dataclass
class Query:
    """One query: its window (microseconds or rows), the rows it wants, and how far it has got.

    `since` is the first row it wants, over both sides, and `since_sides` the first of each; `until` the first that it
    does not want any more. All rows before `done` have scanned its window. It has been sent all pairs of the rows
    before `sent`, and of that row the first `sent_pairs`. One that was `added` by a change wants the pairs that
    `select` says, as the change had it.
    """

    name: str
    window: int
    since: int = 0
    since_sides: tuple[int, int] = (0, 0)
    until: int = FAR
    done: int = 0
    sent: int = 0
    sent_pairs: int = 0
    select: str | None = None
    added: bool = False


class QuerySet:
    """Queries in the order of their windows.

    Guarantees
        A query gets the pairs of rows that came while it stood, whatever comes and goes beside it:
        `test_queries_come_and_go`.
    State and cost
        `QUERY` bytes each, of which a hundred are in the head, and what they select, in a chunk for each selection.
    """

    def __init__(self, queries: Iterable[tuple[str, int]] = ()) -> None:
        self.all: list[Query] = []
        #: The chunks of what queries select.
        self._chunks: dict[str, str] = {}
        for name, window in queries:
            self.add(name, window, 0, (0, 0), added=False)

    def __len__(self) -> int:
        return len(self.all)

    def standing(self, name: str) -> Query | None:
        """The query of this name that is not on its way out."""
        return next((query for query in self.all if query.name == name and query.until == FAR), None)

    @property
    def widest(self) -> int:
        """The largest window; 0 without queries."""
        return self.all[-1].window if self.all else 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return QUERY * len(self.all) + self.selected

    @property
    def selected(self) -> int:
        """Bytes that selections take up: those of several queries that are the same, once."""
        return _SELECTED * sum(map(len, self._selections()))

    def _selections(self) -> set[str]:
        return {query.select for query in self.all if query.select is not None}

    @property
    def finished(self) -> int:
        """The first row that has jobs left; beyond all rows without queries."""
        return self.all[-1].done if self.all else FAR

    def add(
        self,
        name: str,
        window: int,
        arrived: int,
        sides: tuple[int, int],
        select: str | None = None,
        *,
        added: bool = True,
    ) -> None:
        """A query comes when `arrived` rows have, so many of each side."""
        at = bisect_right([query.window for query in self.all], window)
        # It wants none of the rows that wait for the next smaller window: for it they are done.
        done = self.all[at - 1].done if at else arrived
        self.all.insert(at, Query(name, window, arrived, sides, done=done, sent=done, select=select, added=added))

    def remove(self, name: str, arrived: int) -> None:
        """A query goes when `arrived` rows have come."""
        query = self.standing(name)
        if query is not None:
            query.until = arrived

    def retire(self) -> None:
        """Let go of queries that have got all that was owed to them."""
        self.all = [query for query in self.all if query.until == FAR or query.done < query.until]

    def levels(self, scheduler: Scheduler) -> Levels:
        """For the scan, which moves `done` on; `moved` takes that back."""
        windows, since, until, done = (
            np.array([getattr(query, name) for query in self.all], np.int64)
            for name in ("window", "since", "until", "done")
        )
        return Levels(windows, since, until, done, scheduler.order(windows))

    def moved(self, levels: Levels) -> None:
        """What the scan has done."""
        for query, done in zip(self.all, levels.done.tolist(), strict=True):
            query.done = done

    def store(self, step: int, log: ChunkLog) -> None:
        """Write selections that came; drop those that nobody has any more."""
        wanted = self._selections()
        for text in [text for text in self._chunks if text not in wanted]:
            log.drop(self._chunks.pop(text))
        for number, text in enumerate(sorted(wanted - self._chunks.keys())):
            self._chunks[text] = f"q{step}-{number}"
            log.add(self._chunks[text], pa.py_buffer(text.encode()))

    def head(self) -> list[dict[str, Any]]:
        """As JSON has it, selections by their chunks."""
        return [asdict(query) | {"select": query.select and self._chunks[query.select]} for query in self.all]

    def restore(self, said: list[dict[str, Any]], chunks: Mapping[str, pa.Buffer]) -> None:
        """The same queries again."""
        texts = {name: blob.to_pybytes().decode() for name, blob in chunks.items() if name.startswith("q")}
        self._chunks = {text: name for name, text in texts.items()}
        self.all = [
            Query(
                **(one | {"since_sides": tuple(one["since_sides"]), "select": one["select"] and texts[one["select"]]})
            )
            for one in said
        ]
