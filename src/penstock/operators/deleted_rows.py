"""`deleted_rows`: what a table still has and its source has no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import PlanError
from penstock.plan.given import check_table, column_names
from penstock.spark.deleted import rows_that_lack
from penstock.spark.schema import arrow_schema
from penstock.tables.base import Table
from penstock.tables.keys import check_key_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def deleted_rows(snapshot: DataFrame, table: Table, *, on: str | list[str] | tuple[str, ...]) -> DataFrame:
    """The rows of the table whose key is not in a snapshot of its source: R − S.

    The other direction, rows that the table lacks, is `join_table(…, how="anti")`. Whether a row was deleted is known
    only when all of the source was seen, so the snapshot is bounded: a DataFrame that is no stream.

    Guarantees
        All rows of the table with such a key, each once, from one version of it; a file that changes meanwhile is an
        error. A row of the table whose key is NULL or NaN equals nothing and is among them.
    State and cost
        One pass over the table's keys, which are sorted and merged with those of the snapshot by Spark, on disk where
        they are many; other columns are read of the deleted rows alone.

    Parameters
        on: the snapshot's columns that equal the table's key, in its order.

    Example::

        customers = ps.table("customers/", key="customer_id")
        gone = ps.deleted_rows(spark.read.parquet("today/"), customers, on="customer_id")
        gone.write.parquet("deleted/")
    """
    check_table(table, 'penstock.table("customers/", key="customer_id")')
    names, schema = column_names(on), arrow_schema(snapshot)
    if snapshot.isStreaming:
        raise PlanError(
            "This DataFrame is a stream.",
            why="What a stream has not brought yet may still come: no row is surely deleted.",
            do="Give a snapshot: spark.read instead of spark.readStream.",
        )
    check_key_types(schema, names, table.schema, table.key)
    return rows_that_lack(snapshot, table, names)
