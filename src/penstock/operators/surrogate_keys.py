"""`surrogate_keys`: the numbers by which a warehouse knows its keys, with new ones for keys it does not know yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plan.given import check_table, column_names
from penstock.plan.join_table import JoinTablePlan
from penstock.plan.surrogate import SurrogateKeysPlan
from penstock.spark.runtime import run
from penstock.spark.schema import arrow_schema
from penstock.spark.slots import usual_slots
from penstock.tables.base import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.flow import Flow


def surrogate_keys(
    stream: DataFrame,
    table: Table,
    *,
    on: str | list[str] | tuple[str, ...],
    surrogate: str,
    memory: str | int,
    first: int | None = None,
    slots: int | None = None,
) -> Flow:
    """Give each row the surrogate key of its natural key, and a new one where the table has none.

    Guarantees
        A natural key gets one surrogate, for ever: after crashes, restarts, and in whichever slot. New ones are greater
        than all in the table; each is on channel `assigned` exactly once, to be added to the table.
        Rows whose key is NULL or NaN get NULL.
    State and cost
        As `join_table`. New keys are remembered in half of `memory`; when they no longer fit, the query stops and says
        so: add what is on `assigned` to the table and begin a new checkpoint.

    Parameters
        on: the stream's columns that equal the table's key, in its order.
        surrogate: the table's column with the surrogate keys, whole numbers.
        first: new numbers are no less than this; in any case they begin above the largest in the table, for which that
            column is read once.

    Example::

        products = ps.table("products/", key="code")
        flow = ps.surrogate_keys(orders, products, on="code", surrogate="product_key", memory="64MB")
        flow.start(results="orders-with-keys/", assigned="new-products/", checkpoint="ck/")
    """
    check_table(table, 'penstock.table("products/", key="code")')
    plan = JoinTablePlan.checked(
        arrow_schema(stream),
        table,
        on=column_names(on),
        how="left",
        memory=memory,
        slots=usual_slots(stream.sparkSession) if slots is None else slots,
        to_extend=True,
    )
    return run(SurrogateKeysPlan.of(plan, surrogate=surrogate, first=first), [stream])
