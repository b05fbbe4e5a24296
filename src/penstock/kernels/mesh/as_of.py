"""Look-ups in a table that keeps history: the row of a key that was valid at the stream row's own time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError, PlanError
from penstock.kernels.mesh.condition import Condition, Equal, Organised, Waiting, type_fault
from penstock.kernels.mesh.index import BYTES_PER_ROW
from penstock.tables.base import Table
from penstock.tables.keys import column_kind, equal_keys, joinable

if TYPE_CHECKING:
    from penstock.tables.keys import Mask


@dataclass(frozen=True)
class AsOf(Condition):
    """Keys are equal, and the stream's time lies in the row's validity: `since <= time < until`.

    A NULL in `since` or `until` means for ever. A slowly changing dimension of type 2 has these columns.
    """

    keys: Equal
    time: str
    since: str
    until: str

    row_bytes = BYTES_PER_ROW

    @property
    def on(self) -> tuple[str, ...]:  # type: ignore[override]
        """The key, then the time."""
        return (*self.keys.on, self.time)

    def slot(self, hashes: tuple[int, int]) -> AsOf:
        """The same for the rows of a range of hashes."""
        return replace(self, keys=self.keys.slot(hashes))

    @property
    def routes(self) -> tuple[str, ...]:
        """All times of a key are in one slot."""
        return self.keys.on

    @property
    def equality(self) -> Equal:
        """That of the keys: validity only narrows it."""
        return self.keys

    def asks(self, table: Table) -> tuple[str, ...]:
        """Key and validity."""
        return (*table.key, self.since, self.until)

    def able(self, rows: pa.RecordBatch) -> Mask | None:
        """NULL is no time."""
        return joinable([rows.column(name) for name in self.on])

    def faults(self, stream: pa.Schema, table: Table) -> list[PenstockError]:
        """Columns that are missing or cannot be compared."""
        found = self.keys.faults(stream, table)
        for name in (self.since, self.until):
            fault = type_fault(stream, self.time, table, name)
            if fault is not None:
                found.append(fault)
            elif name in table.key:
                found.append(PlanError(f"{name!r} is a part of the table's key.", do="Open the table by its own key."))
        if not found and not column_kind(stream, self.time, "The stream").startswith(("date", "timestamp", "integer")):
            found.append(PlanError(f"{self.time!r} is not a time.", do="Cast it to TIMESTAMP, DATE or BIGINT."))
        return found

    def organise(self, waiting: Waiting) -> Organised:
        """By the key's hash."""
        return self.keys.organise(waiting)

    def holds(self, rows: pa.RecordBatch, partners: pa.RecordBatch) -> Mask:
        """Compare keys, then times."""
        count = len(self.keys.on)
        # By place: a column may be named twice.
        same = equal_keys(rows.columns[:count], partners.columns[:count])
        time, since, until = rows.column(count), partners.column(count), partners.column(count + 1)
        begun = pc.less_equal(since, time).fill_null(True)
        going = pc.greater(until, time).fill_null(True)
        mask: Mask = same & pc.and_(begun, going).to_numpy(zero_copy_only=False)
        return mask

    def describe(self, key: tuple[str, ...]) -> str:
        """As SQL has it."""
        return f"{self.keys.describe(key)} and {self.since} <= {self.time} < {self.until}"
