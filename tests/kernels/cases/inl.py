"""Index nested loops over every kind of key: narrow rows, rows wider than a slice of results, and nested columns.

The pool has room for sixteen pages, which is the least.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Portion
from penstock.kernels.mesh.inl import SLICE_BYTES, IndexNestedLoops, least_budget
from penstock.tables import table
from penstock.tables.lmdb_index import LmdbIndex, build_index
from penstock.testing.conformance import Case, register, side_of
from penstock.testing.strategies import KEY_KINDS, key_names, table_schema, tables
from tests.kernels.cases.mesh import NARROW, WIDE, agree, arrivals, joined_rows

CARRIED = pa.schema([("name", pa.string()), ("price", pa.decimal128(12, 2)), ("tags", pa.list_(pa.string()))])
#: Some fit a slice many times, some twice, one not at all.
PADS = [b"", b"x" * 5_000, b"y" * 120_000, b"!" * SLICE_BYTES]
#: In memory where possible: hundreds of small files, each synced, and what is asked here is not about disks.
SCRATCH = tempfile.TemporaryDirectory(
    prefix="penstock-inl-cases-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
)


@dataclass(frozen=True)
class IndexPlan:
    """A table as rows, to be stored as an index."""

    kind: str
    rows: pa.Table = field(compare=False, repr=False)
    shown: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", repr(self.rows.to_pydict()))

    @property
    def index(self) -> LmdbIndex:
        """As stored."""
        return stored(self)


@lru_cache(maxsize=64)
def stored(plan: IndexPlan) -> LmdbIndex:
    folder = Path(tempfile.mkdtemp(dir=SCRATCH.name))
    pq.write_table(plan.rows, folder / "rows.parquet")
    return build_index(table(folder, key=key_names(plan.kind)), folder / "index.lmdb")


@st.composite
def plans(draw: DrawFn) -> IndexPlan:
    kind = draw(st.sampled_from(KEY_KINDS))
    # Nested columns are decoded row by row; most tables have none.
    carried = pa.schema(list(CARRIED)[: draw(st.sampled_from([2, 2, 3]))])
    return IndexPlan(kind, draw(tables(kind, carried, max_rows=8)))


def twin(plan: IndexPlan, portions: Sequence[Portion], payload: pa.Schema) -> dict[str, pa.Table]:
    """Every row of the stream beside every row of the table with an equal key that is nowhere NULL."""
    names = key_names(plan.kind)
    carried = [field for field in plan.rows.schema if field.name not in names]
    ours = side_of(portions, 0, table_schema(plan.kind, payload)).to_pylist()
    keyed = [row for row in ours if all(row[n] is not None and row[n] == row[n] for n in names)]
    fits = [row for row in keyed if len(row.get("pad", b"")) < SLICE_BYTES]
    joined = joined_rows(
        "inner",
        fits,
        plan.rows.to_pylist(),
        lambda row, partner: all(row[n] == partner[n] for n in names),
        [field.name for field in carried],
    )
    aside = [{"reason": "", "source": "", "raw": str(row["v"])} for row in keyed if row not in fits]
    schema = pa.schema([*table_schema(plan.kind, payload), *carried])
    return {
        RESULTS: pa.Table.from_pylist(joined, schema=schema),
        SET_ASIDE: pa.Table.from_pylist(aside, schema=SET_ASIDE_SCHEMA),
    }


def case(name: str, payload: pa.Schema) -> None:
    register(
        Case(
            name,
            IndexNestedLoops,
            plans=plans(),
            make=lambda plan: IndexNestedLoops(
                table_schema(plan.kind, payload),
                plan.index,
                on=key_names(plan.kind),
                budget=least_budget(plan.index),
            ),
            inputs=lambda plan: arrivals(plan.kind, payload, PADS),
            twin=lambda plan, portions: twin(plan, portions, payload),
            budget=lambda plan: least_budget(plan.index),
            agree=agree,
            bulk_rows=100 if payload is WIDE else 5_000,
            bulk_portion=10 if payload is WIDE else 100,
        )
    )


case("index nested loops, narrow rows", NARROW)
case("index nested loops, rows as wide as a slice", WIDE)
