"""Bad input to `join_streams`, found before anything runs: each error says what is wrong, why, and what to do."""

import pickle
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import BadOption, KeyTypeMismatch, MemoryTooSmall, PlanError, UnknownColumn, UnsupportedType
from penstock.kernels.window.custom import Custom
from penstock.kernels.window.windows import LandmarkWindow, RowWindow, TimeWindow
from penstock.models.stream_models import LinearTrend, Noise
from penstock.plan.join_shared import JoinSharedPlan
from penstock.plan.join_streams import JoinStreamsPlan
from penstock.plan.two_streams import read_window
from penstock.spark.agreement import terms_of
from penstock.spark.catch_up_streams import _check_goes_on

LEFT = pa.schema([("id", pa.int64()), ("lt", pa.timestamp("us", "UTC")), ("v", pa.string())])
RIGHT = pa.schema([("id", pa.int64()), ("rt", pa.timestamp("us", "UTC")), ("w", pa.list_(pa.int8()))])


def plan(left=LEFT, right=RIGHT, **options):
    usual = {"on": "id", "within": "1 minute", "time": ("lt", "rt"), "memory": "16MB", "slots": 2}
    return JoinStreamsPlan.checked(left, right, **(usual | options))


def shared(left=LEFT, right=RIGHT, **options):
    usual = {"on": "id", "windows": {"q": "1 minute"}, "time": ("lt", "rt"), "memory": "16MB", "slots": 2}
    return JoinSharedPlan.checked(left, right, **(usual | options))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"within": "0 seconds"}, BadOption, "no length"),
        ({"within": timedelta(seconds=-3)}, BadOption, "cannot be negative"),
        ({"within": 7}, BadOption, "is not a window"),
        ({"within": ("1 s", ps.rows(3))}, BadOption, "different kinds"),
        ({"time": None}, BadOption, "needs the event time"),
        ({"time": ("lt", "v")}, UnknownColumn, "has no column 'v'"),
        ({"time": ("v", "rt")}, BadOption, "not a timestamp"),
        ({"time": ("lt", "rt", "x")}, BadOption, "one column for each side"),
        ({"on": "ids"}, UnknownColumn, "Did you mean 'id'"),
        ({"on": []}, BadOption, "names no column"),
        ({"on": {"v": "id"}}, KeyTypeMismatch, "never be equal"),
        ({"on": {"id": "w"}}, UnsupportedType, "cannot be a join key"),
        ({"how": "outer"}, BadOption, "inner, left, right, full"),
        ({"policy": "lru"}, BadOption, "exact, rand, prob, life, heeb"),
        ({"policy": "prob", "estimator": "8MB"}, MemoryTooSmall, "more than half of a slot"),
        ({"memory": "100KB"}, MemoryTooSmall, 'memory="128 KB"'),
        ({"memory": "lots"}, BadOption, "is not a size"),
        ({"slots": 0}, BadOption, "between 1 and"),
        ({"within": ps.rows(9)}, BadOption, "cannot be divided among 2 slots"),
        ({"policy": "heeb"}, BadOption, "model is of the whole stream"),
        ({"allocation": "half"}, BadOption, "variable"),
        ({"lateness": "soon"}, BadOption, "lateness"),
        ({"half_life": "0 s"}, BadOption, "forgets everything"),
        ({"where": "v = w"}, BadOption, "is not a function"),
        ({"probabilities": lambda keys: keys}, BadOption, "one function for each side"),
    ],
)
def test_bad_options_are_told(options, error, said):
    with pytest.raises(error, match=said):
        plan(**options)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string_view(),
        pa.binary_view(),
        pa.list_view(pa.int8()),
        pa.list_(pa.int8(), 2),
        pa.dictionary(pa.int32(), pa.string()),
        pa.struct([("a", pa.map_(pa.string(), pa.string_view()))]),
    ],
    ids=str,
)
def test_columns_that_no_budget_can_count_are_told(kind):
    odd = LEFT.set(2, pa.field("v", kind))
    with pytest.raises(UnsupportedType, match="The left stream's 'v'"):
        plan(left=odd)
    with pytest.raises(UnsupportedType, match="The left stream's 'v'"):
        shared(left=odd, on=None, where=lambda left, right: None, slots=None)


def test_shared_joins_tell_the_same_of_conditions_and_times():
    with pytest.raises(BadOption, match="is not a function"):
        shared(where="v = w")
    fine = LEFT.set(1, pa.field("lt", pa.timestamp("ns", "UTC")))
    for made in (plan, shared):
        with pytest.raises(BadOption, match="of microseconds"):
            made(left=fine)
    plain = [schema.set(1, pa.field(schema.names[1], pa.timestamp("us"))) for schema in (LEFT, RIGHT)]
    for made in (plan, shared):
        made(*plain)
        with pytest.raises(BadOption, match="'lt' is a timestamp without time zone, the other is not"):
            made(left=plain[0])
        with pytest.raises(BadOption, match=r"cast\('timestamp'\)"):
            made(right=plain[1])


def test_all_faults_are_told_at_once():
    with pytest.raises(PlanError, match="3 faults") as caught:
        plan(within="0 s", memory="x", policy="y")
    for word in ("no length", "not a size", "not a policy"):
        assert word in str(caught.value)


def test_names_that_would_clash_are_told():
    clash = RIGHT.append(pa.field("V", pa.int8()))
    with pytest.raises(PlanError, match="Both streams have 'v'") as caught:
        plan(right=clash)
    assert "withColumnRenamed('v', 'right_v')" in str(caught.value)
    assert "In a pipeline's file, give the query as sql, which names its columns (… AS right_v)" in str(caught.value)
    narrow = RIGHT.set(0, pa.field("id", pa.int32()))
    assert plan(right=narrow).shape.how == "inner"
    with pytest.raises(PlanError, match="in one column"):
        plan(right=narrow, how="full")
    for name in ("_left", "_Time", "_batch", "_row"):
        odd = LEFT.append(pa.field(name, pa.int8()))
        assert plan(left=odd).shape.left == odd
        with pytest.raises(PlanError, match="of its own"):
            plan(left=odd, archive=True)


def test_windows_as_people_write_them():
    assert read_window(("10 s", timedelta(seconds=5))) == TimeWindow(10_000_000, 5_000_000)
    assert read_window(ps.landmark("1 h")) == LandmarkWindow(3_600_000_000)
    assert plan(within=(ps.rows(4), ps.rows(2)), slots=None, time=None).window == RowWindow(4, 2)


def test_a_plan_travels_and_explains_itself():
    one = plan(policy="life", archive=True, how="full", allocation="fixed")
    assert pickle.loads(pickle.dumps(one)).identity() == one.identity()
    text = one.explain()
    for words in ("id = id (full)", "LIFE, half for each side", "catch-up finds"):
        assert words in text
    assert set(one.channels) == set(one.make(1).channels)
    assert plan(policy=lambda keys, ages, partner: ages).policy.name == Custom.name
    assert plan(slots=None, cores=4).slots == 4
    assert plan(within=ps.rows(3), slots=None, cores=4).slots == 1


def test_the_terms_of_a_micro_batch_tell_policies_and_probabilities_apart():
    """One that is in the output already must let go of the same rows when it is run again."""

    def custom(weight):
        return lambda keys, ages, partner: weight * ages

    trend = LinearTrend(1.0, 0.0, Noise.uniform(3))
    given = [
        {"policy": "prob"},
        {"policy": "life"},
        {"policy": custom(1)},
        {"policy": custom(-1)},
        {"policy": ps.heeb(), "slots": 1},
        {"policy": ps.heeb(alpha=3.0), "slots": 1},
        {"policy": ps.heeb(trend), "slots": 1},
        {"policy": ps.heeb(replace(trend, slope=2.0)), "slots": 1},
        {"policy": "prob", "probabilities": (None, lambda keys: keys)},
    ]
    texts = [str(terms_of(plan(**options))) for options in given]
    assert len(set(texts)) == len(given)
    assert texts == [str(terms_of(plan(**options))) for options in given]


def test_a_catch_up_that_leaves_out_the_condition_of_earlier_runs_is_refused():
    before = dict(plan(where=lambda left, right: left["v"], archive=True).identity())
    with pytest.raises(PlanError, match=r"where: was .*, is None"):
        _check_goes_on(plan(archive=True), before)
