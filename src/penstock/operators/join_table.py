"""`join_table`: a stream against a table larger than memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernels.mesh.condition import Condition
from penstock.kernels.mesh.results import How
from penstock.plan.join_table import Division
from penstock.plan.table_joins import plan_join_table
from penstock.spark.runtime import run
from penstock.spark.schema import arrow_schema
from penstock.spark.slots import usual_slots
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
    inclusion: str | None = None,
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
        Spark's state store. One pass over the table's keys is shared by all rows that wait. Divided by input, none
        waits longer.

    Parameters
        on: the stream's columns that equal the table's key, in its order; or `ps.band(…)`, `ps.range(…)`,
            `ps.where(…)`.
        how: "inner"; "left", with NULLs for rows without partner; "semi", the rows that have one; "anti", those that
            have none.
        memory: a size as people write it, "64MB".
        slots: how many kernels share the work; as many as shuffle partitions by default.
        division: how slots share the work: "input" (at once, in the tasks that read the stream, without state), "key"
            (a prepared table), "pages" (inner joins) or "rows"; chosen by the table and the join if not given.
        pages_per_step: pages that a micro-batch scans at least; by default as many as its rows call for.
        shed: which rows to keep when they come faster than they can be joined: "keepw" (any), "samplew" (a uniform
            sample), "topw" (those with the most partners) or "cluster" (a sample by partners). The others go to channel
            `shed`, with a reason, from where `ps.catch_up` joins them later. Off if not given: rows wait in the source.
        max_lag: how long a micro-batch may take before rows of it are shed, "10 seconds".
        seed: of the samples.
        inclusion: a name for a column of the results: the probability with which their row was kept, with "samplew"
            and "cluster". What is summed over live results, each divided by it, estimates the sum over all.
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
    plan = plan_join_table(
        arrow_schema(stream),
        table,
        on=on,
        memory=memory,
        how=how,
        slots=usual_slots(stream.sparkSession) if slots is None else slots,
        division=division,
        pages_per_step=pages_per_step,
        shed=shed,
        max_lag=max_lag,
        seed=seed,
        inclusion=inclusion,
        follow=follow,
        patience=patience,
        order_by=order_by,
    )
    return run(plan, [stream])
