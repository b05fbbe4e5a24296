"""The mesh join that sheds, in windows so tight that most steps do: results and the join of what was shed add up."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import RESULTS, SET_ASIDE, Portion
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.shed.gate import Overload
from penstock.kernels.mesh.shed.shedder import POLICIES
from penstock.kernels.mesh.shedding import REASON, SHED, SheddingJoin, with_counts
from penstock.testing import assert_same_rows
from penstock.testing.conformance import Case, register
from penstock.testing.strategies import key_names, table_schema
from tests.kernels.cases import mesh


@dataclass(frozen=True)
class SheddingPlan:
    """A mesh join, and what it does when rows come faster than it can serve them."""

    join: mesh.MeshPlan
    overload: Overload


@st.composite
def plans(draw: DrawFn) -> SheddingPlan:
    # A rate as low as this lets each step take in what one pass serves, and no more.
    rate = draw(st.sampled_from([None, 1.0]))
    return SheddingPlan(draw(mesh.plans()), Overload(draw(st.sampled_from(sorted(POLICIES))), 0.001, seed=3, rate=rate))


def budget(plan: SheddingPlan) -> int:
    return with_counts(plan.overload, mesh.budget(plan.join))


def make(plan: SheddingPlan) -> SheddingJoin:
    kernel = SheddingJoin(
        table_schema(plan.join.kind, mesh.WIDE),
        plan.join.table,
        on=Equal(tuple(key_names(plan.join.kind))),
        how=plan.join.how,
        budget=budget(plan),
        overload=plan.overload,
        pages_per_step=plan.join.pages_per_step,
        front=0.0 if plan.join.hot else None,
    )
    return mesh.heated(kernel)


def settled(plan: SheddingPlan, got: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The results, and those of the rows that were shed."""
    shed = got[SHED].drop_columns([REASON])
    later = mesh.twin(plan.join, [Portion(0, piece) for piece in shed.to_batches()], mesh.WIDE)
    return {RESULTS: pa.concat_tables([got[RESULTS], later[RESULTS]])}


def agree(plan: SheddingPlan, got: dict[str, pa.Table], want: dict[str, pa.Table]) -> None:
    both = settled(plan, got)
    assert_same_rows(both[RESULTS], want[RESULTS])
    if plan.overload.rate is None:
        assert not got[SHED].num_rows
        assert got[SET_ASIDE].num_rows == want[SET_ASIDE].num_rows


register(
    Case(
        "mesh join that sheds",
        SheddingJoin,
        plans=plans(),
        make=make,
        inputs=lambda plan: mesh.arrivals(plan.join.kind, mesh.WIDE),
        twin=lambda plan, portions: mesh.twin(plan.join, portions, mesh.WIDE),
        budget=budget,
        agree=agree,
        settled=settled,
        bulk_rows=300,
        bulk_portion=10,
    )
)
