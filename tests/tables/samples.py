"""Tables to test with: random rows of every type that a table can have, and ways to write and read them plainly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from penstock.tables import Table
from penstock.testing.values import values

TYPES = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint32(),
    pa.bool_(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("ms", "UTC"),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.decimal128(38, 4),
    pa.decimal128(7, 2),
    pa.list_(pa.int32()),
    pa.list_(pa.string()),
    pa.struct([("a", pa.int64()), ("b", pa.string())]),
    pa.map_(pa.string(), pa.int32()),
]

KEYS = [pa.int32(), pa.int64(), pa.string(), pa.date32(), pa.bool_(), pa.decimal128(38, 4), pa.float64()]


@st.composite
def random_tables(draw: st.DrawFn, max_rows: int = 40) -> pa.Table:
    """One or two key columns `k0`, `k1`, up to five others, and `row`, which tells rows apart."""
    key_types = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    others = draw(st.lists(st.sampled_from(TYPES), max_size=5))
    rows = draw(st.integers(0, max_rows))
    fields = [(f"k{i}", t) for i, t in enumerate(key_types)] + [(f"c.{i}", t) for i, t in enumerate(others)]
    columns = {}
    for name, type_ in fields:
        nulls = draw(st.booleans())
        column = draw(st.lists(values(type_, nulls=nulls, longest=50), min_size=rows, max_size=rows))
        columns[name] = pa.array(column, type_)
    columns["row"] = pa.array(np.arange(rows), pa.int64())
    return pa.table(columns)


def key_of(table: pa.Table) -> list[str]:
    """The key columns of a random table."""
    return [name for name in table.column_names if name.startswith("k")]


def write(table: pa.Table, directory: Path, *, files: int = 1, row_group_size: int = 7, **options: Any) -> Path:
    """The table as Parquet files."""
    directory.mkdir(parents=True, exist_ok=True)
    cuts = [table.num_rows * i // files for i in range(files + 1)]
    for number in range(files):
        part = table.slice(cuts[number], cuts[number + 1] - cuts[number])
        pq.write_table(part, directory / f"part-{number}.parquet", row_group_size=row_group_size, **options)
    return directory


def plain(table: pa.Table, schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows as Python values, in the types in which a table gives them; NaN as text, so that it equals itself."""
    return comparable(pa.table([table.column(f.name).cast(f.type) for f in schema], schema=schema).to_pylist())


def comparable(rows: Any) -> Any:
    """The same values with NaN as text, and -0.0 apart from 0.0."""
    if isinstance(rows, float):
        return repr(rows)
    if isinstance(rows, dict):
        return {name: comparable(value) for name, value in rows.items()}
    if isinstance(rows, list | tuple):
        return [comparable(value) for value in rows]
    return rows


def all_rows(table: Table) -> list[dict[str, Any]]:
    """Every row, page by page."""
    reader = table.open()
    rows: list[dict[str, Any]] = []
    for page in table.pages:
        batch = reader.take(page, np.arange(page.rows))
        batch.validate(full=True)
        rows += comparable(batch.to_pylist())
    reader.close()
    return rows


def numbers(rows: int = 1000, seed: int = 0) -> pa.Table:
    """A plain table: `id`, a text and two numbers."""
    random = np.random.default_rng(seed)
    ids = random.permutation(rows)
    names = pa.array([f"name-{i}" for i in ids])
    return pa.table({"id": ids, "name": names, "a": random.integers(0, 1 << 60, rows), "b": random.random(rows)})
