"""The ways onto Spark that all operators use: kernels with state where their state is, others where rows are read.

*With state*: rows are packed, grouped by slot, hosted, and what leaves is opened. *Without* (`Plan.keeps_nothing`): all
of that in the task that reads the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import functions as fn

from penstock.errors import PlanError
from penstock.kernels.contract import SET_ASIDE, SET_ASIDE_SCHEMA
from penstock.spark.at_once import answerer, answerer_in_few_rows
from penstock.spark.flow import Emitted, Flow
from penstock.spark.host import FAMILIES, NUMBERS, TOLD, plain_of
from penstock.spark.outbox import PARCEL, Parcel
from penstock.spark.processor import Processor
from penstock.spark.schema import spark_schema
from penstock.spark.session import check_session, warn_of_idle_tasks
from penstock.spark.slots import spread
from penstock.spark.watermarks import without_watermark
from penstock.spark.wire import PACKED, Reader, marks_in, opener, packer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.plan.base import Plan

F = TypeVar("F", bound=Flow)
_COMBINE = {"sum": fn.sum, "max": fn.max, "min": fn.min}


def run(plan: Plan, inputs: Sequence[DataFrame], kind: type[F] = Flow) -> F:  # type: ignore[assignment]
    """The flow of a plan over its input streams; of another kind where an operator adds to what a flow can do."""
    spark = inputs[0].sparkSession
    check_session(spark)
    for frame in inputs:
        if not frame.isStreaming:
            raise PlanError(
                "This DataFrame is not a stream.",
                why="A flow reads its input as it arrives.",
                do="Read it with spark.readStream, or join it with Spark's own batch join.",
            )
    flow = kind(spark, plan, dict(plan.channels) | {SET_ASIDE: SET_ASIDE_SCHEMA})
    at_once = plan.keeps_nothing  # such a flow has no watermark, with which another would clash
    frames = [
        _by_place(without_watermark(frame, may_stay=at_once), side.schema)
        for frame, side in zip(inputs, plan.sides, strict=True)
    ]
    flow._make = _at_once(flow, frames[0]) if at_once else _with_state(flow, frames)
    flow._emitted = flow._make(plan)
    return flow


def _at_once(flow: Flow, frame: DataFrame) -> Callable[[Plan], Emitted]:
    """Kernels in the tasks that read the stream, no more of them than there are slots."""

    def make(plan: Plan) -> Emitted:
        tasks = frame.coalesce(plan.slots)

        def emitted(read: Reader, wanted: Mapping[str, pa.Schema], made: pa.Schema, few: bool) -> DataFrame:
            if not few:
                return tasks.mapInArrow(answerer(plan, read, wanted, flow._teller), spark_schema(made))
            schema = f"{spark_schema(made).toDDL()}, {TOLD}"
            return _observed(flow, tasks.mapInArrow(answerer_in_few_rows(plan, read, wanted, made), schema))

        return emitted

    return make


def _with_state(flow: Flow, frames: Sequence[DataFrame]) -> Callable[[Plan], Emitted]:
    """Kernels in slots, by Spark's operator for state."""
    sides, slots = flow._plan.sides, flow._plan.slots
    warn_of_idle_tasks(frames[0].sparkSession, slots)
    ids = spread(slots)
    packed = reduce(
        lambda one, other: one.unionByName(other),
        (frame.mapInArrow(packer(sides[number], number, ids), PACKED) for number, frame in enumerate(frames)),
    )

    def make(plan: Plan) -> Emitted:
        grouped = packed.withWatermark("at", "0 seconds").groupBy("slot")
        out = grouped.transformWithStateInPandas(Processor(plan, ids), f"{PARCEL}, {TOLD}", "Append", "EventTime")
        # No operator that drops rows may stand before their reader: a file that nobody reads stays.
        parcels = _observed(flow, out).select(*Parcel._fields)

        def emitted(read: Reader, wanted: Mapping[str, pa.Schema], made: pa.Schema, few: bool) -> DataFrame:
            return parcels.mapInArrow(opener(read, wanted), spark_schema(made))

        return emitted

    return make


def _observed(flow: Flow, frame: DataFrame) -> DataFrame:
    """The same, with the numbers that travel in it observed under the name of the flow."""
    observed = [
        _COMBINE[metric.combine](fn.col(NUMBERS)[place]).alias(metric.name)
        for place, metric in enumerate(plain_of(flow._plan))
    ]
    if any(metric.is_family for metric in flow._plan.reports):
        observed.append(fn.collect_list(FAMILIES).alias(FAMILIES))
    return frame.observe(flow.id, *observed)


def _by_place(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """A stream's columns, and those that mark what its source could not read."""
    # Columns go by their places: `mapInArrow` asks for them by name, and takes a dot in one for a field of another.
    places = {name: f"c{place}" for place, name in enumerate(frame.columns)}
    marks = [fn.col(places[name]).alias(name) for name in marks_in(frame.columns)]
    return frame.toDF(*places.values()).select(*(places[name] for name in schema.names), *marks)
