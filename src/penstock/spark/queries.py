"""Streams as queries know them, and the rows and columns of a query built without a word of its text.

Names of columns come from the DataFrame itself; all else is built node by node (`spark.views.expressions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from penstock.plan.views.expressions import Call, Expression, walk
from penstock.plan.views.expressions import Column as OurColumn
from penstock.spark.schema import quoted, spark_schema
from penstock.spark.views.expressions import build
from penstock.spark.views.expressions import condition as truth
from penstock.spark.wire import marks_in

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

#: Where Spark notes, in a column's metadata, that it has a watermark, and by how much rows may be late.
_WATERMARK = "spark.watermarkDelayMs"


def watermark_of(frame: DataFrame) -> tuple[str, int] | None:
    """The column on which a DataFrame has a watermark, and the lateness in microseconds."""
    for field in frame.schema.fields:
        if _WATERMARK in field.metadata:
            return field.name, int(field.metadata[_WATERMARK]) * 1000
    return None


def named(frame: DataFrame, columns: Sequence[tuple[str, str]], every: str | None = None) -> DataFrame:
    """Some columns by other names; `every` is a further one that is the same for all rows."""
    chosen = [quoted(old).alias(new) for old, new in columns]
    marks = [quoted(name) for name in marks_in(frame.columns)]
    return frame.select(*chosen, *([fn.lit(0).cast("int").alias(every)] if every else []), *marks)


def chosen(
    frame: DataFrame,
    condition: Expression | None,
    columns: Sequence[tuple[str, Expression]],
    schema: pa.Schema,
    names: Callable[[OurColumn], str] | None = None,
) -> DataFrame:
    """The rows that a condition lets through, with the columns of a select list, as Spark's own expressions."""

    def column(part: Any) -> Column:
        return quoted(names(part) if names is not None else part.name)

    rows = frame if condition is None else frame.where(truth(condition, column))
    types = [field.dataType for field in spark_schema(schema).fields]
    return rows.select(
        *(build(item, column).cast(kind).alias(name) for (name, item), kind in zip(columns, types, strict=True))
    )


def answered(frame: DataFrame, answer: Any, schema: pa.Schema) -> DataFrame:
    """What an answer makes of rows, for queries with registered functions."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield answer(batch)

    return frame.mapInArrow(run, spark_schema(schema))


def is_plain(expressions: Iterable[Expression]) -> bool:
    """Whether Spark has all of their functions."""
    return not any(isinstance(p, Call) and p.function == "registered" for e in expressions for p in walk(e))


def is_usual(spark: SparkSession) -> bool:
    """Whether Spark's expressions take moments for those of UTC, and an overflow for an error, as ours do."""
    zone, ansi = spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.sql.ansi.enabled")
    return zone in ("UTC", "Etc/UTC", "Z") and ansi == "true"


def empty(spark: Any, schema: pa.Schema) -> DataFrame:
    """A table of these columns without rows."""
    frame: DataFrame = spark.createDataFrame([], spark_schema(schema))
    return frame


def inserts(frame: DataFrame, operation: str) -> DataFrame:
    """A stream as changes of a table to which its rows are added."""
    return frame.withColumn(operation, fn.lit("insert"))
