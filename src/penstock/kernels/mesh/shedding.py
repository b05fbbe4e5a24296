"""A mesh join that sheds rows when they come faster than it can serve them, and says which."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.contract import Batch, Changes, Emission, Metric
from penstock.kernels.measure import widths
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.kernels.mesh.results import How
from penstock.kernels.mesh.shed.gate import Gate, Overload, ResultCounts
from penstock.kernels.mesh.shed.policy import F64, U64, Cut
from penstock.kernels.mesh.shed.sift import Sift
from penstock.models.frequency import LEAST_BUDGET, Frequencies
from penstock.tables.base import Page, Table

SHED = "shed"
#: The last column of a shed row: why it was shed.
REASON = "_reason"
_MATCHES = "matches"
#: Of the budget, for counting partners, where a policy needs that.
_MATCH_SHARE = 8


def shed_schema(stream: pa.Schema) -> pa.Schema:
    """The stream's columns, then the reason."""
    return stream.append(pa.field(REASON, pa.string()))


def with_inclusion(stream: pa.Schema, name: str | None) -> pa.Schema:
    """The stream's columns, then the probability with which a row was kept, if that is asked for."""
    return stream if name is None else stream.append(pa.field(name, pa.float64()))


def match_bytes(overload: Overload, budget: int) -> int:
    """Bytes of a slot's budget that counting partners takes."""
    return max(budget // _MATCH_SHARE, LEAST_BUDGET) if overload.counts_matches else 0


def with_counts(overload: Overload, exact: int) -> int:
    """The smallest budget that leaves so much to the exact join beside counting partners."""
    if not overload.counts_matches:
        return exact
    return max(-(-exact * _MATCH_SHARE // (_MATCH_SHARE - 1)), exact + LEAST_BUDGET)


class SheddingJoin(MeshJoin):
    """MESHJOIN that takes in no more than it can serve within `max_lag`, and sheds the rest by a policy.

    With `inclusion` the results have a column of that name after those of the stream: the probability with which their
    row was kept, of a policy that keeps a sample.

    Guarantees
        Results and the join of the rows on channel `shed`, together, are the exact join, each once; which rows are shed
        follows from what is stored and the bag of rows that came: `test_conformance`.
        Nothing is shed while steps are served in time: `test_conformance` runs it as an exact join.
        Sums over the results, each divided by its inclusion, are unbiased: `test_live_results_are_a_sample`.
    State and cost
        As `MeshJoin`. While a step is taken in, its rows lie in a temporary file. Policies that prefer rows with many
        partners count these when rows must be shed for the first time: one pass over the table's keys, and an eighth of
        the budget for an exact table or a sketch, one more chunk.
    Source
        000 §4; the goals and policies are in `kernels/mesh/shed`.
    """

    reports = (
        *MeshJoin.reports,
        Metric("rows_shed", help="rows on channel shed, because they came faster than they could be served"),
        Metric("results_shed", help="results of the rows shed, where the policy counts partners; else these rows"),
    )

    def __init__(
        self,
        schema: pa.Schema,
        table: Table,
        *,
        on: Equal,
        budget: int,
        overload: Overload,
        how: How = "inner",
        pages: Sequence[Page] | None = None,
        pages_per_step: int | None = None,
        front: float | None = None,
        inclusion: str | None = None,
    ) -> None:
        aside = match_bytes(overload, budget)
        self._inclusion = inclusion
        super().__init__(
            with_inclusion(schema, inclusion),
            table,
            on=on,
            budget=budget - aside,
            how=how,
            pages=pages,
            pages_per_step=pages_per_step,
            front=front,
        )
        self.budget = budget
        self.channels = {**self.channels, SHED: shed_schema(schema)}
        self._reason = (
            f"overload: more than {overload.max_lag:g} s of work waited; {overload.policy} chose what to shed"
        )
        self._counter = _Partners(self, aside, how) if overload.counts_matches else None
        self._gate = Gate(overload, on.on, self._counter)
        # Counts are those of a table and of a budget: where either is another after a restart, they are made anew.
        self._matches = f"{_MATCHES}-{aside}-{table.version}"
        self._matches_stored: set[str] = set()

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Choose among all rows of the step if there are too many; then as the exact join."""
        self._begin()
        gate = self._gate
        gate.open(batch.took)
        with Sift(self._sizes, gate.ranks) as sift:
            sift.fill(rows for _, rows in batch)
            sift.divide(gate.allowed(self._room))
            gone = yield from self._shed(sift.shed())
            gate.close(sift.total - gone, self._room)
            self._counts["rows_in"] += sift.rows
            yield from self._take_in(sift.kept() if self._inclusion is None else self._with_inclusion(sift))

    def _with_inclusion(self, sift: Sift) -> Iterator[pa.RecordBatch]:
        """The kept rows, each with the probability that it was."""
        cut = None
        if sift.line is not None:
            # Bytes decided how many fit, not their number.
            cut = Cut(*sift.line, sift.rows, sift.rows - int(self._counts["rows_shed"]), sized=True)
        for rows, ranks in sift.ranked():
            chance = None if cut is None or ranks is None else self._gate.policy.inclusion(ranks, cut)
            column = pa.array(np.ones(rows.num_rows) if chance is None else chance)
            yield pa.RecordBatch.from_arrays([*rows.columns, column], schema=self._schema)

    def _shed(self, portions: Iterable[pa.RecordBatch]) -> Generator[Emission, None, float]:
        """Emit rows with their reason; returns their bytes."""
        gone = 0.0
        schema = self.channels[SHED]
        for rows in portions:
            gone += float(self._sizes(rows).sum())
            self._counts["rows_shed"] += rows.num_rows
            self._counts["results_shed"] += self._gate.worth(rows)
            reason = pa.repeat(self._reason, rows.num_rows)
            yield Emission(SHED, pa.RecordBatch.from_arrays([*rows.columns, reason], schema=schema))
        return gone

    def _sizes(self, rows: pa.RecordBatch) -> F64:
        more = 0.0 if self._inclusion is None else 8.125
        return widths(rows, np.arange(rows.num_rows)) + self._window.row_bytes + more

    def memory(self) -> int:
        """As the exact join, and what partners are counted in."""
        return super().memory() + (self._counter.memory() if self._counter is not None else 0)

    def changes(self) -> Changes:
        """As the exact join; the counts once, when they were made."""
        new, gone = super().changes()
        counted = {self._matches} if self._counter is not None and self._counter.ready else set()
        if self._counter is not None and counted - self._matches_stored:
            new = {**new, self._matches: pa.py_buffer(self._counter.to_bytes())}
        left, self._matches_stored = self._matches_stored - counted, counted
        return Changes(new, (*gone, *sorted(left)))

    def head(self) -> bytes:
        """The exact join's, and what the gate knows."""
        return json.dumps({"join": super().head().decode(), "gate": self._gate.head()}).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Take up both."""
        said: dict[str, Any] = json.loads(head)
        super().restore(said["join"].encode(), chunks)
        self._gate.restore(said["gate"])
        self._matches_stored = {name for name in chunks if name.startswith(_MATCHES)}
        if self._counter is not None and self._matches in chunks:
            self._counter.from_bytes(bytes(chunks[self._matches]))

    def count_partners(self, counts: Frequencies) -> None:
        """Add the key hashes of every page."""
        for page in self._pages:
            counts.add(self._reader.hashes(page))


class _Partners:
    """How many results a row gives, counted when it is first asked for."""

    def __init__(self, join: SheddingJoin, budget: int, how: How) -> None:
        self._join = join
        self._counts = Frequencies(budget)
        self._how: How = how
        self.ready = False

    def estimate(self, hashes: U64) -> F64:
        """The results of a row with each of these key hashes."""
        if not self.ready:
            self._join.count_partners(self._counts)
            self.ready = True
        return ResultCounts(self._counts, self._how).estimate(hashes)

    def memory(self) -> int:
        """Bytes held at the most."""
        return self._counts.memory()

    def to_bytes(self) -> bytes:
        """The counts."""
        return self._counts.to_bytes()

    def from_bytes(self, blob: bytes) -> None:
        """Counts that were made before."""
        self._counts = Frequencies.from_bytes(blob)
        self.ready = True
