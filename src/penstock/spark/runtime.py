"""The one way onto Spark that all operators use: pack, group by slot, host the kernels, unpack."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import functions as fn

from penstock.errors import PlanError
from penstock.kernels.contract import SET_ASIDE, SET_ASIDE_SCHEMA
from penstock.spark.flow import Flow
from penstock.spark.host import FAMILIES, NUMBERS, OUTPUT, reports_of
from penstock.spark.processor import Processor
from penstock.spark.session import check_session, warn_of_idle_tasks
from penstock.spark.slots import spread
from penstock.spark.watermarks import without_watermark
from penstock.spark.wire import PACKED, marks_in, packer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from penstock.kernels.contract import Metric
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
    warn_of_idle_tasks(spark, plan.slots)
    ids = spread(plan.slots)
    packed = reduce(
        lambda one, other: one.unionByName(other),
        (_pack(plan, number, without_watermark(frame), ids) for number, frame in enumerate(inputs)),
    )
    flow = kind(spark, plan, dict(plan.channels) | {SET_ASIDE: SET_ASIDE_SCHEMA})
    observed = [_observed(*each) for each in enumerate(reports_of(plan))]
    if any(metric.is_family for metric in plan.reports):
        observed.append(fn.collect_list(FAMILIES).alias(FAMILIES))

    def make(plan: Plan) -> DataFrame:
        grouped = packed.withWatermark("at", "0 seconds").groupBy("slot")
        out = grouped.transformWithStateInPandas(Processor(plan, ids), OUTPUT, "Append", "EventTime")
        return out.observe(flow.id, *observed)

    flow._make, flow._out = make, make(plan)
    return flow


def _pack(plan: Plan, number: int, frame: DataFrame, ids: tuple[int, ...]) -> DataFrame:
    # Columns go by their places: `mapInArrow` asks for them by name, and takes a dot in one for a field of another.
    side = plan.sides[number]
    places = {name: f"c{place}" for place, name in enumerate(frame.columns)}
    marks = [fn.col(places[name]).alias(name) for name in marks_in(frame.columns)]
    columns = frame.toDF(*places.values()).select(*(places[name] for name in side.schema.names), *marks)
    return columns.mapInArrow(packer(side, number, ids), PACKED)


def _observed(place: int, metric: Metric) -> Column:
    return _COMBINE[metric.combine](fn.col(NUMBERS)[place]).alias(metric.name)
