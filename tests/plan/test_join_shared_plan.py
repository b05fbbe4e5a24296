"""The plan of a shared join: what a checkpoint knows it by, and which names queries may have."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from penstock.errors import BadOption, PlanError
from penstock.plan.answering import AnsweringPlan
from penstock.plan.join_shared import JoinSharedPlan, check_name, query
from penstock.plan.join_streams import JoinStreamsPlan
from penstock.spark.agreement import terms_of

LEFT = pa.schema([("id", pa.int64()), ("lt", pa.timestamp("us"))])
RIGHT = pa.schema([("id", pa.int64()), ("rt", pa.timestamp("us"))])
USUAL = {"on": "id", "time": ("lt", "rt"), "memory": "64MB", "slots": 1}


@pytest.mark.parametrize(
    ("one", "other"),
    [("90 minutes", "5410 seconds"), ("1.234567 s", "1.234568 s"), ("30 days", "43201 minutes"), ("1 us", "2 us")],
)
def test_windows_that_differ_by_little_are_not_the_same_plan(one, other):
    """A checkpoint would go on with the old one, and only where it has state."""
    shared = [JoinSharedPlan.checked(LEFT, RIGHT, windows={"q": window}, **USUAL) for window in (one, other)]
    alone = [JoinStreamsPlan.checked(LEFT, RIGHT, within=window, **USUAL) for window in (one, other)]
    for plans in (shared, alone):
        assert plans[0].identity() != plans[1].identity()


def test_the_same_window_said_otherwise_is_the_same_plan():
    said = [JoinSharedPlan.checked(LEFT, RIGHT, windows={"q": one}, **USUAL) for one in ("1 hour", "60 minutes")]
    assert said[0].identity() == said[1].identity()
    assert said[0].identity()["windows"] == "q 1 h"


def test_another_condition_or_selection_is_another_plan():
    def above(limit):
        return lambda *rows: rows[0].column(0).to_numpy() > limit

    zoned = [pa.schema([side.field(0), (side.names[1], pa.timestamp("us", "UTC"))]) for side in (LEFT, RIGHT)]

    def shared(where, select):
        windows = {"q": query("1 hour", select=select)}
        return JoinSharedPlan.checked(*zoned, windows=windows, where=where, **USUAL).identity()

    def alone(where):
        return JoinStreamsPlan.checked(LEFT, RIGHT, within="1 hour", where=where, **USUAL).identity()

    assert alone(above(1)) == alone(above(1)) != alone(above(2))
    assert shared(above(1), above(1)) == shared(above(1), above(1))
    assert len({str(shared(above(one), above(other))) for one in (1, 2) for other in (1, 2)}) == 4
    days = [[("lt", ">", dt.datetime(2026, 1, day, tzinfo=dt.UTC))] for day in (1, 2)]
    assert shared(None, days[0]) != shared(None, days[1])


@pytest.mark.parametrize("name", ["self", "checkpoint", "late_left", "added", "two words", "", None])
def test_a_name_that_cannot_be_given_a_place_is_refused(name):
    with pytest.raises(BadOption, match="cannot be the name of a query"):
        check_name(name)


def test_what_may_change_within_a_batch_may_change_below_answers_too():
    plans = [JoinSharedPlan.checked(LEFT, RIGHT, windows={"q": "1 hour"}, changes=one, **USUAL) for one in ("a", "b")]
    assert terms_of(plans[0]) == terms_of(plans[1])
    answering = [AnsweringPlan(plan, {}, texts="q") for plan in plans]
    assert terms_of(answering[0]) == terms_of(answering[1])
    assert terms_of(answering[0])["plan.scheduler"] == "greedy"


@pytest.mark.parametrize("name", ["query", "Query"])
def test_a_column_that_results_of_added_queries_have_is_refused(name):
    """The channel of added queries had two of one name, which nothing could read."""
    left = LEFT.append(pa.field(name, pa.string()))
    assert JoinSharedPlan.checked(left, RIGHT, windows={"q": "1 hour"}, **USUAL)
    with pytest.raises(PlanError, match="A stream has a column"):
        JoinSharedPlan.checked(left, RIGHT, windows={"q": "1 hour"}, changes="changes/", **USUAL)
