"""`join_streams`: two streams over a window, under a memory budget."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.kernels.window.shape import ARCHIVE, RESIDENCE
from penstock.plan.join_streams import JoinStreamsPlan
from penstock.spark.runtime import run
from penstock.spark.schema import arrow_schema
from penstock.spark.slots import usual_slots
from penstock.tables.places import place_of

if TYPE_CHECKING:
    from datetime import timedelta

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.kernels.window.estimates import Given
    from penstock.kernels.window.policy import Policy
    from penstock.kernels.window.shape import How
    from penstock.plan.join_streams import Allocation
    from penstock.plan.two_streams import On, Within
    from penstock.spark.flow import Flow


def join_streams(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On,
    within: Within,
    memory: str | int,
    time: str | tuple[str, str] | None = None,
    lateness: str | timedelta = "0 seconds",
    policy: str | Policy | Callable[..., Any] = "exact",
    how: How = "inner",
    where: Callable[[pa.RecordBatch, pa.RecordBatch], Any] | None = None,
    allocation: Allocation = "variable",
    archive: bool = False,
    estimator: str | int | None = None,
    half_life: str | timedelta | int | None = None,
    probabilities: tuple[Given | None, Given | None] = (None, None),
    slots: int | None = None,
    seed: int = 0,
) -> Flow:
    """Join two streams over a window, within a memory budget.

    Guarantees
        With `policy="exact"` the results are those of the window join, each exactly once, also after crashes, and
        however rows were ordered within the lateness; where memory does not suffice, the query stops and says so.
        With another policy they are some of these, as many as it can keep; with `archive` the others are found later,
        exactly (`ps.catch_up_streams`).
        Waiting rows, key counts and what is on its way never take more than `memory`, over all slots together.
    State and cost
        A row waits until the watermark (of the stream that is behind) is beyond its window. Rows are written to Spark's
        state store once, when they come.

    Parameters
        on: columns that are equal; a mapping where they have other names on the right.
        within: "10 minutes", a pair of durations (how long left rows wait, how long right rows do), `ps.rows(1000)`,
            or `ps.landmark("1 day")`.
        time: the event time of both sides; `lateness` is how much later than the latest a row may come.
        policy: "exact", "rand", "prob", "life", `ps.heeb(…)`, or a function of (keys, ages, partner
            probabilities) that scores rows, each by itself: the lowest go first.
        how: "inner", "left", "right" or "full"; a row without partner is a result when it leaves the window.
        where: a further condition: a function of two record batches, pair by pair, that gives truth values.
        allocation: "variable", or "fixed" with half of the memory for each side.
        estimator: memory for counting keys, of each slot; a sixteenth by default.
        half_life: after what time a key's occurrences count half; eight windows by default.
        probabilities: how likely keys are on the left and on the right, as functions of an array of keys, if known.

    Example::

        flow = ps.join_streams(
            orders,
            shipments,
            on="order_id",
            within="2 hours",
            time=("ordered_at", "shipped_at"),
            lateness="10 minutes",
            memory="256MB",
            policy="prob",
            archive=True,
        )
        flow.start(results="matched/", checkpoint="ck/", **ps.archive("archive/"))
    """
    plan = JoinStreamsPlan.checked(
        arrow_schema(left),
        arrow_schema(right),
        on=on,
        within=within,
        memory=memory,
        slots=slots,
        cores=usual_slots(left.sparkSession),
        time=time,
        lateness=lateness,
        policy=policy,
        how=how,
        where=where,
        allocation=allocation,
        archive=archive,
        estimator=estimator,
        half_life=half_life,
        probabilities=probabilities,
        seed=seed,
    )
    return run(plan, [left, right])


def archive(place: str | os.PathLike[str]) -> dict[str, str]:
    """The places of an archive's channels below one directory, for `flow.start(…, **ps.archive("archive/"))`.

    >>> sorted(archive("a"))
    ['archive_left', 'archive_right', 'residence']
    """
    place_of(place, "archive")
    return {channel: os.path.join(os.fspath(place), channel) for channel in (*ARCHIVE, RESIDENCE)}
