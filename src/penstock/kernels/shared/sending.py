"""Pairs as results, each query its own: made once for all that are sent them, and told how long they took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import Emission
from penstock.kernels.shared.pairing import Pairing
from penstock.kernels.shared.queries import Query
from penstock.kernels.shared.response import Response
from penstock.kernels.shared.router import Pairs
from penstock.kernels.shared.scan import Tally
from penstock.kernels.shared.selection import Selection
from penstock.kernels.window.shape import Shape, truths

I64 = npt.NDArray[np.int64]
Select = Callable[[pa.RecordBatch], Any]

#: Results of queries that were not there at the beginning, with the name of each.
ADDED = "added"
#: The column that has it.
WHOSE = "query"


class Sending:
    """Results on their way to queries; those of `names` have a channel each, the others share one.

    Guarantees
        A pair that several queries are sent together is looked up once: `test_a_pair_is_looked_up_once`.
    State and cost
        None beyond a step.
    """

    def __init__(self, shape: Shape, names: Sequence[str], select: Mapping[str, Select], pairing: Pairing) -> None:
        self._shape, self._names, self._select, self._pairing = shape, frozenset(names), dict(select), pairing
        added = pa.schema([pa.field(WHOSE, pa.string()), *shape.results])
        self.channels = dict.fromkeys(names, shape.results) | {ADDED: added}
        self._responses: dict[str, Response] = {}
        self.rows_out = 0

    def start(self, queries: Sequence[Query]) -> None:
        """A step begins."""
        self._responses = {query.name: Response() for query in queries}
        self.rows_out = 0

    def metrics(self) -> dict[str, float]:
        """Of each query."""
        said: dict[str, float] = {}
        for name, response in self._responses.items():
            said |= response.numbers(name)
        return said

    def worked(self, queries: Sequence[Query], tally: Tally) -> None:
        """Count what a scan released for each query."""
        for level, query in enumerate(queries):
            self._response(query).work(tally, level)

    def send(
        self, queries: Sequence[Query], ready: Sequence[I64], held: Pairs, waited: Callable[[I64], I64]
    ) -> Iterator[Emission]:
        """To each query those of the held pairs that it is to have now; `waited` is for how long rows did."""
        wanted = np.zeros(len(held.outer), np.bool_)
        for mine in ready:
            wanted[mine] = True
        pairs, place = held.where(wanted), np.cumsum(wanted) - 1
        theirs = [(query, place[mine]) for query, mine in zip(queries, ready, strict=True)]
        times = waited(pairs.outer)
        for query, mine in theirs:
            self._response(query).waits(times[mine])
        for begin, end, results in self._pairing.results(pairs):
            for query, mine in theirs:
                first, last = np.searchsorted(mine, (begin, end))
                if first < last:
                    yield from self._send_to(query, _some(results, mine[first:last] - begin))

    def _response(self, query: Query) -> Response:
        return self._responses.setdefault(query.name, Response())

    def _send_to(self, query: Query, rows: pa.RecordBatch) -> Iterator[Emission]:
        # One that was added may have the name of one that went: what that one selected is not its business.
        select = None if query.added else self._select.get(query.name)
        if query.select is not None:
            select = _selection(query.select, self._shape)
        if select is not None:
            rows = rows.filter(pa.array(truths(select, rows)))
        if not rows.num_rows:
            return
        self._response(query).results += rows.num_rows
        self.rows_out += rows.num_rows
        if query.name in self._names:
            yield Emission(query.name, rows)
        else:
            names = pa.repeat(pa.scalar(query.name), rows.num_rows)
            yield Emission(ADDED, pa.RecordBatch.from_arrays([names, *rows.columns], schema=self.channels[ADDED]))


def _some(rows: pa.RecordBatch, which: I64) -> pa.RecordBatch:
    """Some rows, in their order; without a copy where they lie together."""
    first, count = int(which[0]), len(which)
    if int(which[-1]) - first + 1 == count:
        return rows.slice(first, count)
    return rows.take(pa.array(which))


@lru_cache(maxsize=1024)
def _selection(written: str, shape: Shape) -> Selection:
    return Selection.read(written, shape.results)
