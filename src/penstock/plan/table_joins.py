"""Which plan a `join_table` has: plain, or one that sheds, follows its table, or keeps an order."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import BadOption
from penstock.kernels.mesh.condition import Condition
from penstock.kernels.mesh.results import How
from penstock.plan.following import FollowingJoinPlan
from penstock.plan.given import check_table, column_names
from penstock.plan.in_order import OrderedJoinPlan
from penstock.plan.join_table import Division, JoinTablePlan
from penstock.plan.shedding import SheddingJoinPlan
from penstock.tables.base import Table


def plan_join_table(
    stream: pa.Schema,
    table: Table,
    *,
    on: str | list[str] | tuple[str, ...] | Condition,
    memory: str | int,
    slots: int,
    how: How = "inner",
    division: Division | None = None,
    pages_per_step: int | None = None,
    shed: str | None = None,
    max_lag: str | None = None,
    seed: int = 0,
    inclusion: str | None = None,
    follow: bool = False,
    patience: int = 0,
    order_by: str | None = None,
) -> JoinTablePlan:
    """The plan of the options of `join_table`, or why there is none."""
    check_table(table)
    names = on if isinstance(on, Condition) else column_names(on)
    if shed is None and max_lag is not None:
        raise BadOption(
            f"max_lag={max_lag!r} without shed.",
            why="A join that may not shed joins every row, however long they wait.",
            do='Say which rows to keep: shed="keepw", "samplew", "topw" or "cluster". Or leave max_lag out.',
        )
    if shed is None and inclusion is not None:
        raise BadOption(
            f"inclusion={inclusion!r} without shed.",
            why="A join that may not shed keeps every row.",
            do='Give shed="samplew" or "cluster" as well, or leave inclusion out.',
        )
    if patience and not follow:
        raise BadOption(
            f"patience={patience} without follow.",
            why="A table that does not change will not have the partner later either.",
            do="Give follow=True as well.",
        )
    if order_by is not None and (follow or shed is not None):
        raise BadOption("order_by is for joins without shed and follow.", do="Leave one of them out.")
    if follow and shed is not None:
        raise BadOption(
            "shed and follow exclude each other.",
            why="Rows that are shed are joined later, by catch-up, with another version than that of their time.",
            do="Leave one of them out.",
        )
    plan = JoinTablePlan.checked(
        stream,
        table,
        on=names,
        how=how,
        memory=memory,
        slots=slots,
        division=division,
        to_extend=shed is not None or follow or order_by is not None,
        pages_per_step=pages_per_step,
    )
    if order_by is not None:
        plan = OrderedJoinPlan.of(plan, order_by=order_by)
    if follow:
        plan = FollowingJoinPlan.of(plan, patience=patience)
    if shed is not None:
        plan = SheddingJoinPlan.of(plan, shed=shed, max_lag=max_lag, seed=seed, inclusion=inclusion)
    return plan
