"""The plan of range subscriptions: what it refuses, with what advice, and what it says of itself."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.errors import BadOption, PlanError, UnknownColumn, UnsupportedType
from penstock.kernels.subscriptions.range_kernel import Columns
from penstock.plan.select_join_subscriptions import SelectJoinPlan
from penstock.plan.subscriptions import SubscriptionsPlan

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("market", pa.string()),
        ("risk", pa.float64()),
        ("per", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("gone", pa.bool_()),
        ("slot", pa.int64()),
        ("before", pa.string()),
    ]
)
COLUMNS = Columns(x="risk", y="per", key=("id",), order="at", deleted="gone", partition_by=("market",))


def plan(
    columns: Columns = COLUMNS, agg: str = "min", memory: str = "64MB", slots: int | None = 2
) -> SubscriptionsPlan:
    return SubscriptionsPlan.checked(SCHEMA, columns, agg=agg, memory=memory, slots=slots)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"agg": "median"}, BadOption, "min, max, count"),
        ({"memory": "1MB"}, BadOption, "at least 8 MB"),
        ({"slots": 0}, BadOption, "between 1 and"),
        ({"columns": replace(COLUMNS, partition_by=())}, BadOption, "needs partition_by"),
        ({"columns": replace(COLUMNS, key=())}, BadOption, "need a key"),
        ({"columns": replace(COLUMNS, order="")}, BadOption, "order="),
        ({"columns": replace(COLUMNS, y=None)}, BadOption, "needs a y"),
        ({"agg": "avg", "columns": replace(COLUMNS, y="at", order="per")}, UnsupportedType, "has no avg"),
        ({"columns": replace(COLUMNS, x="rsk")}, UnknownColumn, "risk"),
        ({"columns": replace(COLUMNS, x="market")}, UnsupportedType, "no order"),
        ({"columns": replace(COLUMNS, key=("idd",))}, UnknownColumn, "id"),
        ({"columns": replace(COLUMNS, deleted="gon")}, UnknownColumn, "gone"),
        ({"columns": replace(COLUMNS, deleted="risk")}, UnsupportedType, "boolean"),
        ({"columns": replace(COLUMNS, x2="pr")}, UnknownColumn, "per"),
        ({"columns": replace(COLUMNS, x2="market")}, UnsupportedType, "no order"),
        ({"columns": replace(COLUMNS, x2="per"), "agg": "sum"}, BadOption, "two columns"),
        ({"columns": replace(COLUMNS, order="slot")}, BadOption, "two columns 'slot'"),
    ],
)
def test_what_cannot_be_is_refused_with_advice(change, error, says):
    with pytest.raises(error, match=says):
        plan(**change)
    assert issubclass(error, PlanError)


def test_a_plan_travels_and_makes_the_kernel_of_its_slot():
    again = pickle.loads(pickle.dumps(plan()))
    assert again == plan()
    assert again.make(1).channels == again.channels
    assert again.sides[0].key == ("market",)


def test_memory_may_change_at_a_restart_and_nothing_else():
    assert plan(memory="128MB").identity() == plan().identity()
    assert plan(agg="max").identity() != plan().identity()
    assert "2 slots, divided by market" in plan().explain()


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ({"on": ()}, {}, "columns to join on"),
        ({"on": ("risk",)}, {}, "is a float and"),
        ({"x": "rsk"}, {}, "risk"),
        ({}, {"order": "risk"}, "order is of type"),
        ({}, {"key": ()}, "need a key"),
        ({"order": "slot"}, {"order": "slot"}, "two columns 'slot'"),
        ({"key": ("before",)}, {}, "two columns 'left_before'"),
    ],
)
def test_a_join_that_cannot_be_is_refused_with_advice(first, second, says):
    joined = replace(COLUMNS, y=None, on=("id",))
    with pytest.raises(PlanError, match=says):
        SelectJoinPlan.checked(
            (SCHEMA, SCHEMA), (replace(joined, **first), replace(joined, **second)), memory="64MB", slots=2
        )


def test_a_join_travels_and_makes_the_kernel_of_its_slot():
    joined = replace(COLUMNS, y=None, on=("id",))
    plan = SelectJoinPlan.checked((SCHEMA, SCHEMA), (joined, joined), memory="64MB", slots=2)
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert again.make(1).channels == again.channels
    assert again.identity()["aggregate"] == "pairs of a join on id = id, selected by risk and risk"


def test_ranges_of_two_columns_have_boxes():
    two = plan(replace(COLUMNS, x2="per"))
    assert two.identity()["aggregate"] == "min(per) for ranges of risk and per"
    assert {"inner_bottom", "inner_top", "outer_bottom", "outer_top"} <= set(two.channels["results"].names)
    assert two.make(0).channels == two.channels
