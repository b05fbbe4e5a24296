"""`Subscriptions`: tell exactly those whose answer an update changed, without knowing who they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import BadOption
from penstock.kernels.subscriptions.intake import Columns
from penstock.plan.given import Names, column_names, kind_of
from penstock.plan.select_join_subscriptions import SelectJoinPlan
from penstock.plan.subscriptions import SubscriptionsPlan
from penstock.spark.runtime import run
from penstock.spark.schema import arrow_schema
from penstock.spark.slots import usual_slots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.flow import Flow


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The other table of select-join subscriptions: its updates, and what its columns are.

    `on` is what it is joined on, where that has another name than in the first table; the rest is as in
    `Subscriptions`.
    """

    stream: DataFrame
    x: str
    key: Names
    order: str
    on: Names = ()
    deleted: str | None = None


def Subscriptions(  # noqa: N802
    stream: DataFrame,
    *,
    x: Names,
    y: str | None = None,
    key: Names,
    order: str,
    agg: str | None = None,
    partition_by: Names = (),
    deleted: str | None = None,
    join: Joined | None = None,
    on: Names = (),
    memory: str | int = "256MB",
    slots: int | None = None,
) -> Flow:
    """Turn updates of a table into messages for those who subscribe to `SELECT agg(y) … WHERE x BETWEEN x1 AND x2`.

    Guarantees
        After every update each subscription whose answer changed is concerned by exactly one message, and no other is:
        those with `outer_left < x1 <= inner_left` and `inner_right <= x2 < outer_right` (a NULL bound is none).
        Updates that cannot be used go to the channel `set_aside`, each with the reason.
        Messages are named by `slot` and `seq`, the same after any crash.
    State and cost
        The table, at most `memory` bytes of it in all slots together; O(log N) an update, however many subscribe. With
        two columns as x, O(sqrt N) for each row that bounds or is bared, and on random rows hundreds of messages an
        update, not two: in four dimensions what an update concerns is many small boxes. With `join`, as many messages
        as the updated row has partners.

    Parameters
        x, y: the column of the ranges, and the one to aggregate. With two columns as x, ranges are two-dimensional:
            `WHERE a BETWEEN l1 AND u1 AND b BETWEEN l2 AND u2`, for "min" and "max". A message then has a box: also
            `outer_bottom < l2 <= inner_bottom` and `inner_top <= u2 < outer_top`.
        key: what tells rows of the table apart; an update replaces the row with the same key.
        order: grows with every update of a row, a number or a time; the newest wins.
        agg: "min" (the default) and "max" say the new answer (`value`); "count", "sum", "avg" and "distinct" say which
            values came into the range and which left it (`added`, `removed`).
        partition_by: each value has a table and subscriptions of its own; slots share the partitions.
        deleted: a boolean column, true where an update deletes the row.
        join, on: another table, and the columns to join on. Subscribers then ask for the join of the rows of both, with
            x in two ranges, `WHERE left.x BETWEEN a1 AND a2 AND right.x BETWEEN c1 AND c2`; a message is a pair that
            came, went or moved: its two keys, and where it was (`left_before`, `right_before`) and is (`left_after`,
            `right_after`), NULL where it was or is not. It concerns those in whose ranges it was or is.
        memory: a size as people write it, "256MB".
        slots: how many kernels share the partitions; as many as shuffle partitions by default, 1 without partition_by.

    Example::

        flow = ps.Subscriptions(quotes, x="risk", y="per", key="symbol", order="at", partition_by="market")
        flow.results.writeStream.format("kafka")…

        customers = ps.Joined(stream=people, x="age", key="id", order="at", on="id")
        ps.Subscriptions(orders, x="amount", key="order_id", order="at", join=customers, on="customer")
    """
    parts = column_names(partition_by, option="partition_by")
    keys, joined_on = column_names(key, option="key"), column_names(on)
    if slots is None:
        slots = usual_slots(stream.sparkSession) if parts else 1
    if join is not None:
        if y is not None or agg is not None:
            raise BadOption(
                "A select-join has no aggregate.",
                why="Its subscribers are told which pairs come and go.",
                do="Leave y and agg out, or join out.",
            )
        if not isinstance(join, Joined):
            raise BadOption(
                f"join is {kind_of(join)}.", do="Give the other table as join=ps.Joined(stream=…, x=…, key=…, order=…)."
            )
        columns = Columns(_one(x), keys, order, deleted=deleted, partition_by=parts, on=joined_on)
        theirs = Columns(
            join.x,
            column_names(join.key, option="key"),
            join.order,
            deleted=join.deleted,
            partition_by=parts,
            on=column_names(join.on) or joined_on,
        )
        schemas = (arrow_schema(stream), arrow_schema(join.stream))
        return run(
            SelectJoinPlan.checked(schemas, (columns, theirs), memory=memory, slots=slots), [stream, join.stream]
        )
    if joined_on:
        raise BadOption("on= is for a join.", do="Give the other table as join=ps.Joined(…), or leave on out.")
    first, *second = _places(x)
    columns = Columns(
        x=first,
        x2=second[0] if second else None,
        y=y,
        key=keys,
        order=order,
        deleted=deleted,
        partition_by=parts,
    )
    plan = SubscriptionsPlan.checked(arrow_schema(stream), columns, agg=agg or "min", memory=memory, slots=slots)
    return run(plan, [stream])


def _places(x: Names) -> tuple[str, ...]:
    names = column_names(x, option="x")
    if not 1 <= len(set(names)) == len(names) <= 2:
        raise BadOption(
            f"x={x!r} does not name one column or two.",
            why="Ranges are intervals of one column, or rectangles of two.",
            do='Give x="risk", or x=("risk", "size").',
        )
    return names


def _one(x: Names) -> str:
    names = column_names(x, option="x")
    if len(names) != 1:
        raise BadOption(
            f"x={x!r} does not name one column.",
            do="Give one column of this table as x, and one of the other in Joined.",
        )
    return names[0]
