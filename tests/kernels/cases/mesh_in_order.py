"""The mesh join whose results come in order: the same results."""

from __future__ import annotations

from penstock.kernels.mesh.in_order import SORT_SHARE, OrderedMeshJoin
from penstock.testing.conformance import Case, register
from penstock.testing.strategies import key_names, table_schema
from tests.kernels.cases import mesh


def budget(plan: mesh.MeshPlan) -> int:
    return mesh.budget(plan) * SORT_SHARE // (SORT_SHARE - 1) + 1


def make(plan: mesh.MeshPlan) -> OrderedMeshJoin:
    kernel = OrderedMeshJoin(
        table_schema(plan.kind, mesh.WIDE),
        plan.table,
        on=key_names(plan.kind),
        order_by="v",
        how=plan.how,
        budget=budget(plan),
        front=0.0 if plan.hot else None,
    )
    return mesh.heated(kernel)


register(
    Case(
        "mesh join in order",
        OrderedMeshJoin,
        plans=mesh.plans(),
        make=make,
        inputs=lambda plan: mesh.arrivals(plan.kind, mesh.WIDE),
        twin=lambda plan, portions: mesh.twin(plan, portions, mesh.WIDE),
        budget=budget,
        agree=mesh.agree,
        bulk_rows=300,
        bulk_portion=10,
    )
)
