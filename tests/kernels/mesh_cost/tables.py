"""A small table on disk, plain and prepared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.tables import Table, prepare, table

WINDOWS = (1 << 10, 1 << 14)


def rows(count: int = 60_000, text: bool = False) -> pa.Table:
    rng = np.random.default_rng(5)
    keys = rng.permutation(count)
    columns = {f"v{i}": rng.integers(0, 1 << 60, count) for i in range(4)}
    return pa.table({"id": [f"key-{k:012d}" for k in keys] if text else keys, **columns})


def plain(where: Path, group: int = 8_192, *, text: bool = False) -> Table:
    where.mkdir(parents=True)
    pq.write_table(rows(text=text), where / "rows.parquet", row_group_size=group)
    return table(where, key="id")


def prepared(where: Path, page_bytes: int = 64 << 10) -> Table:
    return prepare(plain(where / "plain"), where / "prepared", key="id", page_bytes=page_bytes)
