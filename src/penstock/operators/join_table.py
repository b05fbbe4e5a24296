"""`join_table`: a stream against a table larger than memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BadOption
from penstock.kernels.mesh.condition import Condition
from penstock.kernels.mesh.meshjoin import How
from penstock.plan.join_table import Division, JoinTablePlan
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
    plan = JoinTablePlan.checked(
        arrow_schema(stream),
        table,
        on=on if isinstance(on, Condition) else (on,) if isinstance(on, str) else tuple(on),
        how=how,
        memory=memory,
        slots=shuffle_partitions(stream.sparkSession) if slots is None else slots,
        division=division,
        pages_per_step=pages_per_step,
    )
    return run(plan, [stream])
