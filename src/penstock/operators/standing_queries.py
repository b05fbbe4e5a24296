"""`StandingQueries`: very many join queries over two streams, each answered as rows arrive."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import BadOption
from penstock.kernels.standing.results import Output
from penstock.kernels.standing.router import Dynamic
from penstock.kernels.standing.shape import Shape
from penstock.kernels.standing.strategies import Strategy
from penstock.plan.standing_queries import StandingQueriesPlan
from penstock.spark.runtime import run
from penstock.spark.schema import arrow_schema
from penstock.spark.slots import usual_slots

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.spark.flow import Flow


def StandingQueries(  # noqa: N802
    left: DataFrame,
    right: DataFrame,
    *,
    shape: Shape,
    memory: str | int,
    queries: str | os.PathLike[str] | pa.Table | DataFrame | None = None,
    changes: DataFrame | None = None,
    keep: int | None = None,
    within: str | timedelta | None = None,
    time: str | tuple[str, str] | None = None,
    lateness: str | timedelta = "0 seconds",
    output: Output = "pairs",
    strategy: Strategy | Dynamic = "dynamic",
    slots: int | None = None,
    split: Sequence[float] = (),
    reach: tuple[float, float] | None = None,
) -> Flow:
    """Answer very many standing join queries over two streams.

    Guarantees
        Every pair of rows that a query wants is reported for it exactly once, when the later of the two arrives, if
        the earlier is still kept and the query stands; also after crashes.
        Queries, their indexes and the rows that are kept never take more than `memory`, over all slots together:
        where they would, the flow stops and says how much it needs.
    State and cost
        A row costs what it affects and a little for each group of queries that share a point, not for each query.
        Every slot has all queries; rows are kept in Spark's state store.

    Parameters
        shape: what all queries have in common: `ps.select_join(…)` or `ps.band_join(…)`.
        queries: those to begin with: the path of Parquet files with a column `query` (an integer id) and two for each
            range, or a small table.
        changes: a stream of the same columns and of `op` ("set" or "remove") and `version`; a change counts from the
            micro-batch it arrives in, and only if its version is above that of the query as it stands.
        keep: how many rows of each side wait for partners, in whole micro-batches; or
        within: how far apart in event time partners may be; needs `time`.
        time: the event time of both sides; rows later than `lateness` go to the channels `late_left` and `late_right`.
        output: "pairs" of rows; "factored", one row for each query that a new row affects (with a window, or several
            ranges on a side, one for each run of partners without a gap); or "counts" for each query.
        strategy: how queries are found; all give the same results. "dynamic" decides for every row.
        slots: how many kernels share the work; as many as shuffle partitions by default.
        split, reach: for band joins without a key: where each slot's range of left values ends, and what every band
            lies in.

    Example::

        shape = ps.select_join("product", left="offered", right="wanted")
        flow = ps.StandingQueries(supply, demand, shape=shape, queries="alerts/", keep=1_000_000, memory="1GB")
        flow.start(results="found/", checkpoint="ck/")
    """
    given: Any = queries
    if hasattr(given, "toArrow"):
        if given.isStreaming:
            raise BadOption("queries is a stream.", do="Give it as changes=…, with the columns op and version.")
        given = given.toArrow()
    plan = StandingQueriesPlan.checked(
        arrow_schema(left),
        arrow_schema(right),
        shape=shape,
        queries=given,
        changes=None if changes is None else arrow_schema(changes),
        memory=memory,
        slots=usual_slots(left.sparkSession) if slots is None else slots,
        output=output,
        strategy=strategy,
        keep=keep,
        within=within,
        time=time,
        lateness=lateness,
        split=split,
        reach=reach,
    )
    return run(plan, [left, right, *([] if changes is None else [changes])])
