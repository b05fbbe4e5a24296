"""`catch_up_streams`: what a window join under a budget missed, found later and exactly."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.plan.join_streams import JoinStreamsPlan
from penstock.spark.catch_up_streams import CaughtUpStreams, archived_schemas, open_archive, run_catch_up_streams
from penstock.tables.places import place_of

if TYPE_CHECKING:
    from datetime import timedelta

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.kernels.window.shape import How
    from penstock.plan.two_streams import On, Within


def catch_up_streams(
    spark: SparkSession,
    archive: str | os.PathLike[str],
    *,
    on: On,
    within: Within,
    into: str | os.PathLike[str],
    time: str | tuple[str, str] | None = None,
    lateness: str | timedelta = "0 seconds",
    how: How = "inner",
    where: Callable[[pa.RecordBatch, pa.RecordBatch], Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CaughtUpStreams:
    """Find the results that a window join missed, from its archive, and add them to `into`, each exactly once.

    Guarantees
        Live results and those in `into` together are the exact join of the rows that are in the archive, each once:
        also if runs were killed, and while the flow goes on. A run takes what is committed when it begins, and commits
        all of its results at once, or none.
    State and cost
        One sort-merge join by Spark of the archive with itself, which spills to disk; the live results are not read.

    Parameters
        archive: the directory given to `ps.archive(…)` when the flow was started.
        into: a directory for results, of this archive alone.
        on, within, time, lateness, how, where: as in the flow; another join than the flow's is refused.

    Example::

        done = ps.catch_up_streams(
            spark,
            "archive/",
            on="order_id",
            within="2 hours",
            time=("ordered_at", "shipped_at"),
            lateness="10 minutes",
            into="caught-up/",
        )
        print(done.rows, done.left_early, done.results)
    """
    archives = open_archive(place_of(archive, "archive"))
    schemas = archived_schemas(archives)
    if schemas is None:
        return CaughtUpStreams()
    plan = JoinStreamsPlan.checked(
        *schemas, on=on, within=within, time=time, lateness=lateness, how=how, where=where, memory="1GB", archive=True
    )
    return run_catch_up_streams(spark, archives, plan, place_of(into, "into"), progress)
