"""MESHJOIN by bands, ranges and predicates, in every kind of join; two loops are the judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Portion
from penstock.kernels.mesh.budget import least_budget
from penstock.kernels.mesh.condition import Condition
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.kernels.mesh.results import How
from penstock.plan.conditions import as_of, band, range, where  # noqa: A004
from penstock.tables import Table, table
from penstock.testing import assert_same_rows
from penstock.testing.conformance import Case, register, side_of
from penstock.testing.strategies import cuts
from tests.kernels.cases.mesh import HOWS, SCRATCH, heated, joined_rows

TOP = (1 << 63) - 1
NUMBERS = st.one_of(st.integers(-2, 4), st.sampled_from([-TOP - 1, TOP]))
KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "integer": (pa.int64(), NUMBERS, st.integers(0, 3)),
    "float": (
        pa.float64(),
        st.sampled_from([-0.0, 0.0, 0.1, 0.2, 0.3, 0.7, 1e16, math.inf, math.nan]),
        st.sampled_from([0, 0.1, 0.2, 0.6]),
    ),
    "date": (pa.date32(), st.dates(date(2024, 2, 27), date(2024, 3, 3)), st.integers(0, 2)),
    "time": (
        pa.timestamp("us", tz="UTC"),
        st.builds(lambda s: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=s), st.integers(0, 9)),
        st.builds(lambda s: timedelta(seconds=s), st.integers(0, 3)),
    ),
}


@dataclass(frozen=True)
class Shape:
    """A condition, what it means row by row, and the table it is asked of."""

    condition: Condition = field(compare=False)
    belong: Callable[[Any, Any], bool] = field(compare=False)
    kind: str
    key: tuple[str, ...]
    rows: pa.Table = field(compare=False, repr=False)
    shown: str
    how: How
    pages_per_step: int | None

    @property
    def carried(self) -> list[str]:
        return [name for name in self.rows.column_names if not (self.condition.by_key and name in self.key)]

    @property
    def table(self) -> Table:
        return stored(self)


@lru_cache(maxsize=64)
def stored(shape: Shape) -> Table:
    folder = Path(SCRATCH.name) / f"conditions-{abs(hash(shape))}"
    folder.mkdir(exist_ok=True)
    pq.write_table(shape.rows, folder / "a.parquet", row_group_size=3)
    return table(folder, key=shape.key)


def schema_of(shape: Shape) -> pa.Schema:
    return pa.schema([("v", pa.int64()), ("s", KINDS[shape.kind][0])])


def known(*values: Any) -> bool:
    return all(value is not None and value == value for value in values)


def odd_sum(ours: pa.RecordBatch, theirs: pa.RecordBatch) -> pa.Array:
    """A predicate that no order helps with; it does not like nines."""
    if pc.any(pc.equal(ours["s"], 9)).as_py():
        raise ValueError("nine")
    total = pc.add(pc.bit_wise_and(ours["s"], 7), pc.bit_wise_and(theirs["a"], 7))
    return pc.equal(pc.bit_wise_and(total, 1), 1)


@st.composite
def shapes(draw: DrawFn) -> Shape:
    what = draw(st.sampled_from(["as of", "band", "range", "where"]))
    kind = "integer" if what in ("as of", "where") else draw(st.sampled_from(sorted(KINDS)))
    type_, values, distances = KINDS[kind]
    key = ("a", "b") if what == "range" else ("a",)
    names = ("a", "b", "c") if what == "as of" else key
    columns = {name: draw(st.lists(st.one_of(values, st.none()), min_size=8, max_size=8)) for name in names}
    count = draw(st.integers(0, 8))
    rows = pa.table({name: pa.array(cells[:count], type_) for name, cells in columns.items()} | {"n": np.arange(count)})
    condition: Condition
    if what == "band":
        below, above = draw(distances), draw(distances)
        condition = band("s", below=below, above=above)

        def belong(row: Any, partner: Any) -> bool:
            s, a = row["s"], partner["a"]
            if not known(s, a):
                return False
            return bool(s - _unit(below, kind) <= a <= s + _unit(above, kind))
    elif what == "as of":
        condition = as_of("s", time="v", since="b", until="c")

        def belong(row: Any, partner: Any) -> bool:
            if row["s"] is None or row["s"] != partner["a"]:
                return False
            begun = partner["b"] is None or partner["b"] <= row["v"]
            return begun and (partner["c"] is None or partner["c"] > row["v"])
    elif what == "range":
        condition = range("s")

        def belong(row: Any, partner: Any) -> bool:
            return known(row["s"], partner["a"], partner["b"]) and partner["a"] <= row["s"] <= partner["b"]
    else:
        condition = where(odd_sum, on="s", candidates=draw(st.sampled_from([1, 7, 1_000])), on_error="set_aside")

        def belong(row: Any, partner: Any) -> bool:
            s, a = row["s"], partner["a"]
            return known(s, a) and ((s & 7) + (a & 7)) % 2 == 1

    how = draw(st.sampled_from(HOWS))
    return Shape(
        condition, belong, kind, key, rows, repr((what, rows.to_pydict())), how, draw(st.sampled_from([None, 1]))
    )


def _unit(distance: Any, kind: str) -> Any:
    return timedelta(days=distance) if kind == "date" else distance


@st.composite
def arrivals(draw: DrawFn, shape: Shape) -> list[Portion]:
    values = st.one_of(KINDS[shape.kind][1], st.none(), *([st.just(9)] if shape.condition.flags else []))
    cells = draw(st.lists(values, max_size=10))
    rows = pa.table({"v": pa.array(np.arange(len(cells)), pa.int64()), "s": pa.array(cells, schema_of(shape)[1].type)})
    return [Portion(0, piece) for piece in draw(cuts(rows))]


def twin(shape: Shape, portions: Sequence[Portion]) -> dict[str, pa.Table]:
    ours = side_of(portions, 0, schema_of(shape)).to_pylist()
    partners = shape.rows.to_pylist()
    # A row that the predicate raises for is set aside, if it is asked at all.
    failing = [row for row in ours if shape.condition.flags and row["s"] == 9 and partners]
    joined = joined_rows(shape.how, [row for row in ours if row not in failing], partners, shape.belong, shape.carried)
    schema = pa.schema(
        [*schema_of(shape), *([] if shape.how in ("semi", "anti") else shape.rows.select(shape.carried).schema)]
    )
    aside = [{"reason": "", "source": "", "raw": ""} for _ in failing]
    return {
        RESULTS: pa.Table.from_pylist(joined, schema=schema),
        SET_ASIDE: pa.Table.from_pylist(aside, schema=SET_ASIDE_SCHEMA),
    }


def agree(shape: Shape, got: dict[str, pa.Table], want: dict[str, pa.Table]) -> None:
    assert_same_rows(got[RESULTS], want[RESULTS])
    assert got[SET_ASIDE].num_rows == want[SET_ASIDE].num_rows
    assert all("nine" in reason for reason in got[SET_ASIDE].column("reason").to_pylist())


def budget(shape: Shape) -> int:
    return least_budget(shape.table.pages, shape.condition) + (1 << 18)


register(
    Case(
        "mesh join, beyond equality",
        MeshJoin,
        plans=shapes(),
        make=lambda shape: heated(
            MeshJoin(
                schema_of(shape),
                shape.table,
                on=shape.condition,
                how=shape.how,
                budget=budget(shape),
                pages_per_step=shape.pages_per_step,
                front=0.0,
            )
        ),
        inputs=arrivals,
        twin=twin,
        budget=budget,
        agree=agree,
        bulk_rows=2_000,
    )
)
