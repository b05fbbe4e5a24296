"""The plan of a pass-through: refused where it could not be right."""

import pickle

import pyarrow as pa
import pytest

from penstock.errors import BadOption, UnknownColumn, UnsupportedType
from penstock.kernels.passthrough import PassThrough
from penstock.plan.passthrough import PassThroughPlan

STREAM = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])


def test_travels_and_makes_its_kernel():
    plan = pickle.loads(pickle.dumps(PassThroughPlan.checked(STREAM, key=("id",), slots=3, keep=7)))
    kernel = plan.make(2)
    assert isinstance(kernel, PassThrough)
    assert kernel.keep == 7
    assert kernel.channels == plan.channels
    assert plan.sides[0].key == ("id",)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"key": ("ids",), "slots": 2}, UnknownColumn),
        ({"key": ("tags",), "slots": 2}, UnsupportedType),
        ({"key": (), "slots": 2}, BadOption),
        ({"key": ("id",), "slots": 0}, BadOption),
        ({"key": ("id",), "slots": 2, "keep": -1}, BadOption),
    ],
)
def test_faults_are_found_before_anything_runs(settings, error):
    with pytest.raises(error):
        PassThroughPlan.checked(STREAM, **settings)


def test_keep_may_change_at_a_restart_and_the_key_may_not():
    plans = [PassThroughPlan.checked(STREAM, key=("id",), slots=2, keep=keep) for keep in (0, 5)]
    assert plans[0].identity() == plans[1].identity()
    assert plans[0].identity() != PassThroughPlan.checked(STREAM, key=("id",), slots=3).identity()
