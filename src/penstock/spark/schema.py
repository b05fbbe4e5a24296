"""Arrow and Spark schemas of the same rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.errors import BadOption, PlanError, UnsupportedType
from penstock.plan.given import kind_of
from penstock.spark.wire import marks_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


def quoted(name: str) -> Column:
    """A column by its name: those of users may have dots and backticks in them."""
    return fn.col("`" + name.replace("`", "``") + "`")


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The rows of a DataFrame as they arrive in `mapInArrow`, without the columns that mark what a source could not
    read.
    """
    if not hasattr(frame, "sparkSession"):
        raise BadOption(
            f"The stream is {kind_of(frame)}, and not a DataFrame of Spark.",
            do='Give a streaming DataFrame: spark.readStream.schema("id long, at timestamp").parquet("orders/").',
        )
    twice = [name for name, count in Counter(frame.columns).items() if count > 1]
    if twice:
        raise PlanError(
            f"The stream has several columns {twice[0]!r}.",
            why="Nobody could say which of them is meant.",
            do="Rename or drop all but one, for example with toDF(…).",
        )
    try:
        schema = to_arrow_schema(frame.schema, timezone="UTC")
    except Exception as fault:
        raise UnsupportedType(
            f"A column of the stream cannot travel as Arrow: {fault}".splitlines()[0],
            do="Cast it to a plain type first, or drop it.",
        ) from fault
    marks = marks_in(frame.columns)
    return pa.schema([field for field in schema if field.name not in marks])


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of Arrow rows."""
    return from_arrow_schema(schema)
