"""How much of a table is read to find the rows that a snapshot lacks; without Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.deleted import _keys, _rows
from penstock.tables import table

ROWS = 300_000


@pytest.fixture
def giant(tmp_path: Path) -> Path:
    """One row group that is decoded in several pieces."""
    rows = pa.table({"k": np.arange(ROWS), "n": np.arange(ROWS) % 7})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=ROWS)
    return tmp_path


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of what was decoded, piece by piece."""
    found: list[int] = []
    whole = pq.ParquetFile.iter_batches

    def counted(*args, **options):
        for batch in whole(*args, **options):
            found.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    return found


def test_keys_of_a_giant_row_group_are_read_once(giant: Path, decoded: list[int]):
    place = [("page", pa.int32()), ("row", pa.int64())]
    read = _keys(table(giant, key="k"), pa.schema([*place, ("k0", pa.int64())]))
    found = pa.Table.from_batches(read([pa.record_batch({"id": [0]})]))
    assert found["row"].equals(found["k0"])
    assert found.num_rows == sum(decoded) == ROWS


def test_rows_of_a_giant_row_group_are_read_once(giant: Path, decoded: list[int]):
    asked = np.concatenate([np.arange(0, 200_000, 2), [250_000, 250_001, ROWS - 1]])
    pages = pa.array(np.zeros(len(asked), np.int32))
    places = pa.RecordBatch.from_arrays([pages, pa.array(asked)], names=["page", "row"])
    read = _rows(table(giant, key="k"))
    found = pa.Table.from_batches(read(places.slice(at, 10_000) for at in range(0, len(asked), 10_000)))
    assert found["k"].to_pylist() == asked.tolist()
    assert found["n"].to_pylist() == (asked % 7).tolist()
    assert sum(decoded) == ROWS
