"""`join_shared`: one window join of two streams for many queries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.plan.join_shared import SLICE, JoinSharedPlan
from penstock.spark.runtime import run
from penstock.spark.schema import arrow_schema
from penstock.spark.shared_flow import SharedFlow, changes_stream
from penstock.spark.slots import usual_slots
from penstock.tables.places import place_of

if TYPE_CHECKING:
    from datetime import timedelta

    from pyspark.sql import DataFrame

    from penstock.kernels.shared.pairing import Where
    from penstock.plan.join_shared import Windows
    from penstock.plan.two_streams import On


def join_shared(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On | None = None,
    windows: Windows,
    memory: str | int,
    scheduler: str = "greedy",
    time: str | tuple[str, str] | None = None,
    lateness: str | timedelta = "0 seconds",
    where: Where | None = None,
    slice: int | None = SLICE,  # noqa: A002
    changes: str | os.PathLike[str] | None = None,
    slots: int | None = None,
) -> SharedFlow:
    """Join two streams once for many queries that differ in their windows.

    Guarantees
        Every query gets exactly the results that it would get alone, each once, also after crashes; within a slot in
        the same order: by the later row of each pair, then from its newest partner to the oldest. With `slots=1` that
        is the order of the whole stream.
        A query with a small window does not wait for the large ones ("swf", "greedy"): what a step cannot do in its
        slice goes on in the next, smaller windows first.
        Waiting rows, work left over and results on their way never take more than `memory`, over all slots together;
        where work left over would, it is done beyond the slice, the oldest first. Where the widest window itself does
        not fit, the query stops and says by how much.
    State and cost
        Rows of the widest window are kept and scanned once for all queries, and written to Spark's state store once.

    Parameters
        on: columns that are equal; a mapping where they have other names on the right. Without it, `where` decides
            alone, in nested loops and one slot.
        windows: by name, "10 minutes", `ps.rows(1000)`, or `ps.query("10 minutes", select=…)` for a query that wants
            some of the results only. All are times or all are numbers of rows.
        scheduler: "greedy" (what releases results for the least work goes first), "swf" (the smallest window first) or
            "lwo" (every row scans the largest window at once).
        time: the event time of both sides; `lateness` is how much later than the latest a row may come.
        where: a further condition of all queries: a function of two record batches, pair by pair, that gives truth
            values.
        slice: how much work a step of a slot may do, in units: rows looked at, pairs found, rows begun. A million is
            about a second of one core; None is no limit.
        changes: a directory for `flow.add(name, window)` and `flow.remove(name)`; changes that lie there are read
            before the first rows.

    Example::

        flow = ps.join_shared(
            asked,
            answered,
            on="id",
            windows={"fast": "1 second", "slow": "10 minutes"},
            time=("asked_at", "answered_at"),
            memory="256MB",
            changes="queries/",
        )
        running = flow.start(fast="fast/", slow="slow/", added="added/", checkpoint="ck/")
        flow.add("hourly", "1 hour")
    """
    place = None if changes is None else str(place_of(changes, "changes"))
    plan = JoinSharedPlan.checked(
        arrow_schema(left),
        arrow_schema(right),
        on=on,
        windows=windows,
        memory=memory,
        scheduler=scheduler,
        slots=slots,
        cores=usual_slots(left.sparkSession),
        time=time,
        lateness=lateness,
        where=where,
        slice=slice,
        changes=place,
    )
    told = [] if place is None else [changes_stream(left.sparkSession, place)]
    return run(plan, [left, right, *told], SharedFlow)
