"""Surrogate keys: those that the table has, and new ones for keys that it lacks."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import MemoryTooSmall, UnsupportedType
from penstock.kernels.contract import RESULTS, Batch, Changes, Emission, Metric
from penstock.kernels.measure import measure
from penstock.kernels.mesh.assigned import UNKNOWN, AssignedKeys, distinct
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.tables.base import Page, Table

if TYPE_CHECKING:
    from penstock.tables.keys import Mask

ASSIGNED = "assigned"
#: Of the budget, for keys that were given a number.
KEYS_SHARE = 2


def assigned_schema(stream: pa.Schema, on: Sequence[str], key: Sequence[str], surrogate: pa.Field) -> pa.Schema:
    """The table's key columns, as the stream has them, and the surrogate."""
    return pa.schema([*(pa.field(k, stream.field(o).type) for o, k in zip(on, key, strict=True)), surrogate])


class SurrogateKeys(MeshJoin):
    """A left join with a table of surrogate keys, in which keys that the table lacks are given new ones.

    Slot s of n gives out the numbers from `first` on that leave s when divided by n: slots share no key, so none is
    given twice. In a step, new keys are numbered in the order of their hashes: run again, it gives the same.

    Guarantees
        A key has one surrogate for ever, whatever is restarted; each new one is on channel `assigned` once:
        `test_conformance`.
        `memory()` at most `budget`; when new keys no longer fit half of it, `MemoryTooSmall` says what to do.
    State and cost
        As `MeshJoin`; every key that was given a number, until the table has it and a new checkpoint is begun. Rows
        with new keys lie in a temporary file until their step ends.
    """

    reports: tuple[Metric, ...] = (
        *MeshJoin.reports,
        Metric("keys_assigned", help="new surrogate keys given out"),
        Metric("keys_held", help="all keys that were given a new surrogate, after the step"),
    )

    def __init__(
        self,
        schema: pa.Schema,
        table: Table,
        *,
        on: Equal,
        surrogate: str,
        budget: int,
        first: int,
        slot: int,
        slots: int,
        pages: Sequence[Page] | None = None,
    ) -> None:
        super().__init__(schema, table, on=on, budget=budget, how="left", pages=pages)
        self._for_keys = budget // KEYS_SHARE
        self._use(table, self._pages, self._for_keys)
        self._place = self.channels[RESULTS].get_field_index(surrogate)
        self._assigned_schema = assigned_schema(schema, on.on, table.key, self.channels[RESULTS].field(surrogate))
        self.channels = {**self.channels, ASSIGNED: self._assigned_schema}
        self._on = on.on
        self._keys = AssignedKeys()
        # A multiple of the slots: numbers of two slots differ also where they began at different times.
        self._first, self._slot, self._slots = -(-first // slots) * slots, slot, slots
        self._given = 0
        self._new = pa.RecordBatch.from_pylist([], self._key_schema)

    @property
    def _key_schema(self) -> pa.Schema:
        return pa.schema(list(self._assigned_schema)[:-1])

    # -- the contract ------------------------------------------------------------------------------------------

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Join; at the end of the step give numbers to the keys that are new, and let their rows go."""
        yield from self._settled(super().step(batch, now))

    def tick(self, now: int, watermark: int | None = None) -> Iterator[Emission]:
        """The same without input."""
        yield from self._settled(super().tick(now, watermark))

    def _settled(self, emissions: Iterator[Emission]) -> Iterator[Emission]:
        with tempfile.TemporaryFile(prefix="penstock-keys-") as file:
            with pa.ipc.new_stream(file, self._schema) as self._spill:
                yield from emissions
            yield from self._assign()
            file.seek(0)
            for rows in pa.ipc.open_stream(file):
                yield from self._numbered(rows)

    def _unmatched(self, rows: pa.RecordBatch, which: Mask) -> Iterator[Emission]:
        some = rows.filter(pa.array(which))
        if some.num_rows:
            self._spill.write_batch(some)
            columns = self._key_columns(some)
            fresh = pa.array(self._keys.find(columns) == UNKNOWN)
            keys = pa.RecordBatch.from_arrays(columns, schema=self._key_schema).filter(fresh)
            self._new = distinct(pa.concat_batches([self._new, keys]))
            self._note(2 * measure(self._new))
            self._check_room()
        return iter(())

    def _key_columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [rows.column(name) for name in self._on]

    def _assign(self) -> Iterator[Emission]:
        count = self._new.num_rows
        if not count:
            return
        begin = self._first + self._slot + self._slots * self._given
        last = begin + self._slots * (count - 1)
        kind = self._assigned_schema.field(len(self._assigned_schema) - 1).type
        # Before they are made: numbers beyond 64 bits would go on below all others.
        if last > np.iinfo(kind.to_pandas_dtype()).max:
            wider = "Write the table with the surrogate as int64" if kind != pa.int64() else "Number the table anew"
            raise UnsupportedType(
                f"Surrogate key {last:,} is greater than a column of type {kind} can hold.",
                why=f"{count:,} keys that the table lacks are to get numbers from {begin:,} on.",
                do=f"{wider} and begin a new checkpoint. Nothing is lost.",
            )
        numbers = begin + self._slots * np.arange(count, dtype=np.int64)
        columns = [*self._new.columns, pa.array(numbers).cast(kind)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._assigned_schema)
        self._given += count
        self._keys.add(rows.set_column(rows.num_columns - 1, "number", pa.array(numbers)))
        self._new = self._new.slice(0, 0)
        self._counts["keys_assigned"] += count
        yield Emission(ASSIGNED, rows)

    def _numbered(self, rows: pa.RecordBatch) -> Iterator[Emission]:
        schema = self.channels[RESULTS]
        numbers = pa.array(self._keys.find(self._key_columns(rows))).cast(schema.field(self._place).type)
        columns = [*rows.columns, *(pa.nulls(rows.num_rows, field.type) for field in list(schema)[rows.num_columns :])]
        columns[self._place] = numbers
        self._counts["rows_without_partner"] += rows.num_rows
        self._counts["rows_out"] += rows.num_rows
        yield Emission(RESULTS, pa.RecordBatch.from_arrays(columns, schema=schema))

    def _check_room(self) -> None:
        # A merge holds the largest run twice, and the new keys are there beside.
        self._check_fits(self._keys.nbytes + self._keys.largest + 2 * (measure(self._new) + 16 * self._new.num_rows))

    def _check_fits(self, needed: float) -> None:
        if needed > self._for_keys:
            raise MemoryTooSmall(
                f"{self._keys.count + self._new.num_rows:,} new surrogate keys do not fit {self._for_keys} bytes.",
                why="They are remembered, so that each has one number for ever, until the table has them.",
                do="Add the rows of channel `assigned` to the table and begin a new checkpoint; or start again with "
                "more memory. Nothing is lost.",
            )

    def memory(self) -> int:
        """As `MeshJoin`, and the keys."""
        return super().memory() + (self._for_keys if self._given else 0)

    def changes(self) -> Changes:
        """Packets and runs of keys."""
        ours, keys = super().changes(), self._keys.changes()
        return Changes({**ours.new, **keys.new}, (*ours.gone, *keys.gone))

    def head(self) -> bytes:
        """The join's, and how many numbers were given."""
        said = {"join": super().head().decode(), "given": self._given, "first": self._first, "keys": self._keys.head()}
        return json.dumps(said).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Go on numbering where it stood, or at `first` where the table has got greater numbers since."""
        said: dict[str, Any] = json.loads(head)
        super().restore(said["join"].encode(), chunks)
        self._given = said["given"]
        self._first = max(said["first"], self._first - self._slots * self._given)
        self._keys.restore(said["keys"], chunks)
        self._check_fits(self._keys.nbytes)  # the budget may be another one

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step."""
        return {**super().metrics(), "keys_held": self._keys.count}
