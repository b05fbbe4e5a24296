"""`join_table`: a stream against a table larger than memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BadOption
from penstock.kernels.mesh.condition import Condition
from penstock.kernels.mesh.meshjoin import How
from penstock.plan.following import FollowingJoinPlan
from penstock.plan.in_order import OrderedJoinPlan
from penstock.plan.join_table import Division, JoinTablePlan
from penstock.plan.shedding import SheddingJoinPlan
from penstock.spark.runtime import run
from penstock.spark.schema import arrow_schema
from penstock.spark.slots import shuffle_partitions
from penstock.tables.base import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.flow import Flow


def join_table(
    stream: DataFrame,
    table: Table,
    *,
    on: str | list[str] | tuple[str, ...] | Condition,
    memory: str | int,
    how: How = "inner",
    slots: int | None = None,
    division: Division | None = None,
    pages_per_step: int | None = None,
    shed: str | None = None,
    max_lag: str | None = None,
    seed: int = 0,
    follow: bool = False,
    patience: int = 0,
    order_by: str | None = None,
) -> Flow:
    """Join a stream with a table that need not fit in memory, exactly.

    Guarantees
        The results are those of `SELECT … FROM stream JOIN table`, each exactly once, also after crashes.
        Waiting rows, pages and indexes never take more than `memory`, over all slots together.
    State and cost
        Rows wait until the scan of the table has come round; those that wait longer than a micro-batch are kept in
        Spark's state store. One pass over the table's keys is shared by all rows that wait.

    Parameters
        on: the stream's columns that equal the table's key, in its order; or `ps.band(…)`, `ps.range(…)`,
            `ps.where(…)`.
        how: "inner"; "left", with NULLs for rows without partner; "semi", the rows that have one; "anti", those that
            have none.
        memory: a size as people write it, "64MB".
        slots: how many kernels share the work; as many as shuffle partitions by default.
        division: how slots share the work: "key" (a prepared table), "pages" (inner joins) or "rows"; chosen by the
            table and the join if not given.
        pages_per_step: pages that a micro-batch scans at least; by default as many as its rows call for.
        shed: which rows to keep when they come faster than they can be joined: "keepw" (any), "samplew" (a uniform
            sample), "topw" (those with the most partners) or "cluster" (a sample by partners). The others go to channel
            `shed`, with a reason, from where `ps.catch_up` joins them later. Off if not given: rows wait in the source.
        max_lag: how long a micro-batch may take before rows of it are shed, "10 seconds".
        seed: of the samples.
        follow: whether the table may change while the query runs: each micro-batch joins with the version that is the
            newest when it begins (of a Delta or Iceberg table: when the one before it ended), and no row with two.
        patience: for how many further micro-batches a row without partner waits for a version that has it; Delta and
            Iceberg tables, with `follow`.
        order_by: a column of the stream: in each slot, the results of a micro-batch come in its order.

    Example::

        stock = ps.table("products/", key="product_id")
        flow = ps.join_table(orders, stock, on="product_id", memory="64MB")
        flow.start(results="enriched/", checkpoint="ck/")
    """
    if not isinstance(table, Table):
        raise BadOption(
            f"{type(table).__name__} is not a table.",
            do='Open it first: penstock.table("products/", key="product_id").',
        )
    if shed is None and max_lag is not None:
        raise BadOption(
            f"max_lag={max_lag!r} without shed.",
            why="A join that may not shed joins every row, however long they wait.",
            do='Say which rows to keep: shed="keepw", "samplew", "topw" or "cluster". Or leave max_lag out.',
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
        arrow_schema(stream),
        table,
        on=on if isinstance(on, Condition) else (on,) if isinstance(on, str) else tuple(on),
        how=how,
        memory=memory,
        slots=shuffle_partitions(stream.sparkSession) if slots is None else slots,
        division=division,
        rows_decide=shed is not None or follow or order_by is not None,
        pages_per_step=pages_per_step,
    )
    if order_by is not None:
        plan = OrderedJoinPlan.of(plan, order_by=order_by)
    if follow:
        plan = FollowingJoinPlan.of(plan, patience=patience)
    if shed is not None:
        plan = SheddingJoinPlan.of(plan, shed=shed, max_lag=max_lag, seed=seed)
    return run(plan, [stream])
