"""`catch_up`: rows that a flow shed under load, joined later and exactly."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.plan.catch_up import check_how
from penstock.plan.given import check_table, column_names
from penstock.spark.archive import Archive
from penstock.spark.catch_up import CaughtUp, run_catch_up
from penstock.tables.base import Table
from penstock.tables.places import place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.kernels.mesh.results import How


def catch_up(
    spark: SparkSession,
    archive: str | os.PathLike[str],
    table: Table,
    *,
    on: str | list[str] | tuple[str, ...],
    into: str | os.PathLike[str],
    how: How = "inner",
    progress: Callable[[int, int], None] | None = None,
) -> CaughtUp:
    """Join what a flow shed into its archive, and add the results to `into`, each exactly once.

    Guarantees
        Live results and those in `into` together are the exact join, once no rows are left in the archive: also if runs
        were killed, and while the flow still adds to the archive. A run takes what is committed when it begins; it
        commits all results of these rows at once, or none.
        The results have the columns of the flow's own.
    State and cost
        One pass over the table's keys for each run, one over the archived rows that are new, and Spark's sort-merge
        join of these with the table's rows of the same keys, which spills to disk. 16 MB in the driver and each worker
        say which keys there are.

    Parameters
        archive: the directory that a flow was started with as `shed`.
        table: the table it was joined with.
        on: the stream's columns that equal the table's key, in its order.
        into: a directory for results, of this archive alone.
        how: "inner", "left", "semi" or "anti"; as in the flow.
        progress: is told tasks done and tasks known, while Spark works.

    Example::

        stock = ps.table("products/", key="product_id")
        done = ps.catch_up(spark, "archive/", stock, on="product_id", into="caught-up/")
        print(done.rows, done.results, done.reasons, done.left_rows)
    """
    check_table(table)
    check_how(how)
    return run_catch_up(
        spark,
        Archive.open(archive),
        table,
        on=column_names(on),
        into=place_of(into, "into"),
        how=how,
        progress=progress,
    )
