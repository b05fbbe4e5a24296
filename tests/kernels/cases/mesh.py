"""MESHJOIN over every kind of key: wide and tight windows, one page a step or all, plain Parquet and prepared.

The tight window has room for two or three rows: most steps overflow and go round the table several times, and some rows
are too large for it altogether. Half of the joins have a front cache.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Portion
from penstock.kernels.mesh.budget import LEAST_WINDOW, least_budget
from penstock.kernels.mesh.front import SHARE
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.kernels.mesh.results import How
from penstock.tables import Table, prepare, table
from penstock.testing import assert_same_rows
from penstock.testing.conformance import Case, register, side_of
from penstock.testing.strategies import KEY_KINDS, cuts, key_names, table_schema, tables

CARRIED = pa.schema([("name", pa.string()), ("price", pa.decimal128(12, 2))])
NARROW = pa.schema([("v", pa.int64())])
WIDE = pa.schema([("v", pa.int64()), ("pad", pa.binary())])
#: Some fit a dozen times, some twice, one exactly not at all.
PADS = [b"", b"x" * 5_000, b"y" * 25_000, b"z" * 40_000, b"!" * LEAST_WINDOW]
HOWS: tuple[How, ...] = ("inner", "left", "semi", "anti")
SCRATCH = tempfile.TemporaryDirectory(prefix="penstock-mesh-cases-")


@dataclass(frozen=True)
class MeshPlan:
    """A table as rows, how they are cut into pages, and how the kernel is to go about it."""

    kind: str
    rows: pa.Table = field(compare=False, repr=False)
    shown: str = field(init=False)
    page: int = 1_000
    pages_per_step: int | None = None
    prepared: bool = False
    how: How = "inner"
    #: Whether some keys are in the front cache from the beginning, and any saving is reason enough to choose others.
    hot: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", repr(self.rows.to_pydict()))

    @property
    def table(self) -> Table:
        """As stored."""
        return stored(self)


@lru_cache(maxsize=64)  # each holds files open, and Spark in the same process breaks at a thousand
def stored(plan: MeshPlan) -> Table:
    """The plan's table on disk, in two files of row groups of `page` rows."""
    folder = Path(tempfile.mkdtemp(dir=SCRATCH.name))
    half = plan.rows.num_rows // 2
    for number, part in enumerate([plan.rows.slice(0, half), plan.rows.slice(half)]):
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=plan.page)
    if plan.prepared:
        # Pages as small as they can be: some dozens of these rows each.
        return prepare(folder, f"{folder}-prepared", key=key_names(plan.kind), page_bytes=4 << 10)
    return table(folder, key=key_names(plan.kind))


@st.composite
def plans(draw: DrawFn) -> MeshPlan:
    kind = draw(st.sampled_from(KEY_KINDS))
    rows = draw(tables(kind, CARRIED, max_rows=8))
    if draw(st.booleans()):  # the key may stand anywhere
        rows = rows.select([*CARRIED.names, *key_names(kind)])
    return MeshPlan(
        kind,
        rows,
        page=draw(st.sampled_from([1, 3, 1_000])),
        pages_per_step=draw(st.sampled_from([None, 1, 2])),
        prepared=draw(st.booleans()),
        how=draw(st.sampled_from(HOWS)),
        hot=draw(st.booleans()),
    )


K = TypeVar("K", bound=MeshJoin)


def make(plan: MeshPlan, payload: pa.Schema) -> MeshJoin:
    kernel = MeshJoin(
        table_schema(plan.kind, payload),
        plan.table,
        on=key_names(plan.kind),
        how=plan.how,
        budget=budget(plan),
        pages_per_step=plan.pages_per_step,
        front=0.0 if plan.hot else None,
    )
    return heated(kernel)


def heated(kernel: K) -> K:
    """With every second key of the table in the front cache, if there is one, and a key that the table lacks."""
    if kernel._front.on and kernel._pages:
        reader = kernel._reader
        found = np.unique(np.concatenate([reader.hashes(page).copy() for page in kernel._pages]))[::2]
        chosen = np.unique(np.append(found, np.uint64(1) << np.uint64(60)))
        kernel._front.cache.fill(reader, kernel._pages, chosen, kernel._room / SHARE, 100)
        assert kernel._front.cache
    return kernel


def budget(plan: MeshPlan) -> int:
    return least_budget(plan.table.pages)


@st.composite
def arrivals(draw: DrawFn, kind: str, payload: pa.Schema, widths: Sequence[bytes] = PADS) -> list[Portion]:
    rows = draw(tables(kind, NARROW, max_rows=12))
    if "pad" in payload.names:
        pads = draw(st.lists(st.sampled_from(widths), min_size=rows.num_rows, max_size=rows.num_rows))
        rows = rows.append_column("pad", pa.array(pads, pa.binary()))
    return [Portion(0, piece) for piece in draw(cuts(rows))]


def twin(plan: MeshPlan, portions: Sequence[Portion], payload: pa.Schema) -> dict[str, pa.Table]:
    """Every row of the stream beside every row of the table with an equal key that is nowhere NULL, and what `how`
    makes of that.
    """
    names = key_names(plan.kind)
    ours = side_of(portions, 0, table_schema(plan.kind, payload)).to_pylist()
    fits = [row for row in ours if len(row.get("pad", b"")) < LEAST_WINDOW or any(row[n] is None for n in names)]
    joined = joined_rows(
        plan.how,
        fits,
        plan.rows.to_pylist(),
        lambda row, partner: all(row[n] is not None and row[n] == partner[n] for n in names),
        CARRIED.names,
    )
    aside = [{"reason": "", "source": "", "raw": str(row["v"])} for row in ours if row not in fits]
    ours_alone = plan.how in ("semi", "anti")
    schema = pa.schema([*table_schema(plan.kind, payload), *([] if ours_alone else CARRIED)])
    return {
        RESULTS: pa.Table.from_pylist(joined, schema=schema),
        SET_ASIDE: pa.Table.from_pylist(aside, schema=SET_ASIDE_SCHEMA),
    }


def joined_rows(
    how: How, rows: list[Any], partners: list[Any], belong: Callable[[Any, Any], bool], carried: Sequence[str]
) -> list[Any]:
    """The join by two loops."""
    out = []
    for row in rows:
        found = [partner for partner in partners if belong(row, partner)]
        if how in ("inner", "left"):
            out += [row | {name: partner[name] for name in carried} for partner in found]
        if how == "left" and not found:
            out.append(row | dict.fromkeys(carried))
        if how == ("semi" if found else "anti"):
            out.append(row)
    return out


def agree(plan: object, got: dict[str, pa.Table], want: dict[str, pa.Table]) -> None:
    """The same results; as many rows set aside, each with a reason."""
    assert_same_rows(got[RESULTS], want[RESULTS])
    assert got[SET_ASIDE].num_rows == want[SET_ASIDE].num_rows
    assert all("larger than" in reason for reason in got[SET_ASIDE].column("reason").to_pylist())


def case(name: str, payload: pa.Schema, drawn: SearchStrategy[MeshPlan]) -> None:
    register(
        Case(
            name,
            MeshJoin,
            plans=drawn,
            make=lambda plan: make(plan, payload),
            inputs=lambda plan: arrivals(plan.kind, payload),
            twin=lambda plan, portions: twin(plan, portions, payload),
            budget=budget,
            agree=agree,
            bulk_rows=300 if payload is WIDE else 10_000,
            bulk_portion=10 if payload is WIDE else 100,
        )
    )


case("mesh join, narrow rows", NARROW, plans())
case("mesh join, rows as wide as the window", WIDE, plans())
