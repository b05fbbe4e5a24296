"""A stream's own watermark, which Spark will not have beside the one that drives a flow.

Spark refuses a second watermark in one query, and says so only in its second micro-batch. A watermark changes no row by
itself; only stateful operators look at it. So one that nobody has looked at yet can be left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_WATERMARK = "EventTimeWatermark"
#: Operators that keep state by the watermark before them.
_STATEFUL = (
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "Join",
    "TransformWithState",
    "TransformWithStateInPySpark",
)


def without_watermark(frame: DataFrame, *, may_stay: bool = False) -> DataFrame:
    """The same rows without a watermark on them. Where a stateful operator already works by it, it stays if it may, and
    is an error otherwise.
    """
    from pyspark.sql import DataFrame as Frame

    spark: Any = frame.sparkSession
    plan = frame._jdf.queryExecution().analyzed()
    nodes = list(nodes_of(plan))
    if not any(node.nodeName() == _WATERMARK for node in nodes):
        return frame
    stateful = [node.nodeName() for node in nodes if _keeps_state(node)]
    if stateful and may_stay:
        return frame
    if stateful:
        raise PlanError(
            f"This stream has a watermark, and a stateful operator ({stateful[0]}) that works by it.",
            why="A flow has a watermark of its own, and Spark allows one in a query.",
            do="Write the stream to files or a topic in a query of its own, and read these here.",
        )
    plans = getattr(spark._jvm.org.apache.spark.sql.classic, "Dataset$")
    return Frame(getattr(plans, "MODULE$").ofRows(spark._jsparkSession, _strip(plan, spark._jvm)), spark)


def _children(node: Any) -> list[Any]:
    found = node.children()
    return [found.apply(number) for number in range(found.size())]


def nodes_of(node: Any) -> Iterator[Any]:
    """An operator of a logical plan, and all below it."""
    yield node
    for child in _children(node):
        yield from nodes_of(child)


def _keeps_state(node: Any) -> bool:
    """A join with a table keeps none, nor does what stands above a table alone."""
    return node.nodeName() in _STATEFUL and all(child.isStreaming() for child in _children(node))


def _strip(node: Any, jvm: Any) -> Any:
    children = [_strip(child, jvm) for child in _children(node)]
    if node.nodeName() == _WATERMARK:
        return children[0]
    return node.withNewChildren(jvm.PythonUtils.toSeq(children)) if children else node
