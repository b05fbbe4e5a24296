"""Answers to queries over another kernel's results: one keeps some rows, one remembers how many there were."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from penstock.kernels.answering import Answering
from penstock.kernels.contract import Portion
from penstock.kernels.passthrough import PassThrough
from penstock.testing.conformance import Case, register, side_of
from penstock.testing.strategies import streams

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


class Even:
    """Rows with an even number."""

    schema = SCHEMA

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.filter(pc.equal(pc.bit_wise_and(rows["n"], 1), 0))

    def state(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None: ...


class Running:
    """For each row, how many there were until then."""

    schema = pa.schema([("count", pa.int64())])

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        numbers = range(self.count + 1, self.count + rows.num_rows + 1)
        self.count += rows.num_rows
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=self.schema)

    def state(self) -> bytes:
        return str(self.count).encode()

    def restore(self, state: bytes) -> None:
        self.count = int(state or b"0")


def twin(portions: Sequence[Portion]) -> dict[str, pa.Table]:
    rows = side_of(portions, 0, SCHEMA)
    even = [row for row in rows.to_pylist() if row["n"] is not None and row["n"] % 2 == 0]
    return {
        "even": pa.Table.from_pylist(even, SCHEMA),
        "running": pa.table({"count": pa.array(range(1, rows.num_rows + 1), pa.int64())}),
    }


register(
    Case(
        "answers to two queries",
        Answering,
        plans=st.sampled_from([0, 5]),
        make=lambda keep: Answering(PassThrough(SCHEMA, keep), {"even": Even(), "running": Running()}),
        inputs=lambda keep: streams(SCHEMA, max_rows=12),
        twin=lambda keep, portions: twin(portions),
        budget=lambda keep: 900_000,
        ordered=True,
    )
)
