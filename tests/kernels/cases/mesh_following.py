"""The mesh join that follows its table, while the table stays as it is: the exact join, with rows parked or not."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import RESULTS
from penstock.kernels.mesh.budget import least_budget
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.following import FollowingJoin
from penstock.tables import Table
from penstock.testing import assert_same_rows
from penstock.testing.conformance import Case, register
from penstock.testing.strategies import key_names, table_schema
from tests.kernels.cases import mesh


@dataclass(frozen=True)
class FollowingPlan:
    """A mesh join, and for how many steps a row waits for its partner."""

    join: mesh.MeshPlan
    patience: int


@dataclass(frozen=True)
class Still:
    """A table with one version."""

    table: Table
    kept: bool

    def newest(self) -> str:
        return "1"

    def load(self, version: str) -> Table:
        return self.table


@st.composite
def plans(draw: DrawFn) -> FollowingPlan:
    return FollowingPlan(draw(mesh.plans()), draw(st.sampled_from([0, 0, 1, 2])))


def budget(plan: FollowingPlan) -> int:
    return least_budget(plan.join.table.pages) * 3 // 2


def make(plan: FollowingPlan) -> FollowingJoin:
    kernel = FollowingJoin(
        table_schema(plan.join.kind, mesh.NARROW),
        plan.join.table,
        on=Equal(tuple(key_names(plan.join.kind))),
        how=plan.join.how,
        budget=budget(plan),
        source=Still(plan.join.table, kept=plan.patience > 0),
        choose=lambda table: table.pages,
        patience=plan.patience,
        front=0.0 if plan.join.hot else None,
    )
    return mesh.heated(kernel)


def agree(plan: FollowingPlan, got: dict[str, pa.Table], want: dict[str, pa.Table]) -> None:
    """The same results; of rows that may still be waiting, those without a partner come later or not at all."""
    if plan.patience and plan.join.how in ("left", "anti"):
        assert got[RESULTS].num_rows <= want[RESULTS].num_rows
        return
    assert_same_rows(got[RESULTS], want[RESULTS])


def settled(plan: FollowingPlan, got: dict[str, pa.Table]) -> dict[str, pa.Table]:
    lonely = plan.patience and plan.join.how in ("left", "anti")
    return {} if lonely else {RESULTS: got[RESULTS]}


register(
    Case(
        "mesh join that follows its table",
        FollowingJoin,
        plans=plans(),
        make=make,
        inputs=lambda plan: mesh.arrivals(plan.join.kind, mesh.NARROW),
        twin=lambda plan, portions: mesh.twin(plan.join, portions, mesh.NARROW),
        budget=budget,
        agree=agree,
        settled=settled,
    )
)
