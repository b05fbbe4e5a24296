"""A mesh join whose results come in the order of the stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.kernels.contract import RESULTS, Batch, Emission
from penstock.kernels.mesh.condition import Condition
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.kernels.mesh.results import How
from penstock.kernels.mesh.runs import Runs
from penstock.tables.base import Page, Table

#: Of the budget, for results that are being sorted.
SORT_SHARE = 4


class OrderedMeshJoin(MeshJoin):
    """MESHJOIN in which a step's results come by a column of the stream, as a sort of the whole step has them.

    A stream that comes through several files and tasks has no order but that of its columns, so one of them says it.
    Results wait until their rows have met every page, and none waits longer than its step.

    Guarantees
        The results of `MeshJoin`: `test_conformance`. Those of a step in order, NULL last:
        `test_results_of_a_step_are_in_order`.
    State and cost
        As `MeshJoin`; a quarter of the budget and temporary files for sorting.
    Source
        000 §3.4, ordered output.
    """

    def __init__(
        self,
        schema: pa.Schema,
        table: Table,
        *,
        on: Sequence[str] | Condition,
        order_by: str,
        budget: int,
        how: How = "inner",
        pages: Sequence[Page] | None = None,
        front: float | None = None,
    ) -> None:
        super().__init__(schema, table, on=on, budget=budget, how=how, pages=pages, front=front)
        self._for_sorting = budget // SORT_SHARE
        self._use(table, self._pages, self._for_sorting)
        self._order_by = order_by

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Join, then sort."""
        runs = Runs(self.channels[RESULTS], self._order_by, self._for_sorting)
        for emission in super().step(batch, now):
            if emission.channel == RESULTS:
                runs.add(emission.rows)
            else:
                yield emission
        for rows in runs.close():
            yield Emission(RESULTS, rows)

    def _due(self, admitted: float) -> int:
        return len(self._pages)

    def memory(self) -> int:
        """As `MeshJoin`, and what sorting may take."""
        return super().memory() + self._for_sorting
