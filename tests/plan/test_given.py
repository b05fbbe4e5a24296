"""What is given in the wrong form is told as such, whichever operator it is given to."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import BadOption
from penstock.kernels.shared.selection import Selection
from penstock.plan.given import check_table, column_names, kind_of, shown
from penstock.plan.join_shared import JoinSharedPlan
from penstock.plan.join_streams import JoinStreamsPlan

LEFT = pa.schema([("id", pa.int64()), ("asked", pa.timestamp("us", "UTC"))])
RIGHT = pa.schema([("id", pa.int64()), ("answered", pa.timestamp("us", "UTC"))])


def streams(**options):
    options = {"on": "id", "within": "1 minute", "time": ("asked", "answered"), "memory": "16MB"} | options
    return JoinStreamsPlan.checked(LEFT, RIGHT, **options)


def shared(**options):
    options = {"on": "id", "windows": {"a": "1 minute"}, "time": ("asked", "answered"), "memory": "16MB"} | options
    return JoinSharedPlan.checked(LEFT, RIGHT, **options)


@pytest.mark.parametrize("given", [None, 5, {"id"}, ["id", 3], b"id"])
def test_what_names_no_columns_is_told_with_the_option(given):
    with pytest.raises(BadOption, match=r"key=.* does not name columns"):
        column_names(given, option="key")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: streams(on=None), "on=None does not name columns"),
        (lambda: streams(on={"id": 5}), r"on=\[5\] does not name columns"),
        (lambda: streams(time=5), "time=5 does not name columns"),
        (lambda: streams(slots="two"), "slots='two' is not a whole number"),
        (lambda: streams(archive="archive/"), "neither True nor False"),
        (lambda: streams(within=ps.rows("5")), "rows='5' is not a whole number"),
        (lambda: streams(policy=ps.heeb(left=5)), "left=5 is not a model"),
        (lambda: ps.heeb(alpha="x"), "alpha='x' is not a number above 0"),
        (lambda: shared(windows=None), "windows=None does not give"),
        (lambda: shared(windows="1 hour"), "windows='1 hour' does not give"),
        (lambda: shared(windows=["1 hour"]), "does not give each query a name"),
        (lambda: shared(slots="two"), "slots='two' is not a whole number"),
        (lambda: Selection.of("x", LEFT), "is not a list of conditions"),
        (lambda: Selection.of([("id", "=")], LEFT), "is not a list of conditions"),
        (lambda: Selection.of(len, LEFT), "is not a list of conditions"),
        (lambda: ps.select_join(5, left="a", right="b"), "on=5 does not name columns"),
        (lambda: check_table("products/"), r"A text \('products/'\) is not a table"),
    ],
)
def test_wrong_forms_are_refused_without_a_trace_of_python(make, match):
    with pytest.raises(BadOption, match=match):
        make()


def test_long_values_are_told_by_what_they_are():
    assert shown(pa.table({"a": range(100)})) == kind_of(pa.table({})) == "a pyarrow Table"


def test_the_room_of_a_small_budget_is_told():
    assert "room for about 0 rows" not in streams(memory="512KB", policy="prob").explain()
