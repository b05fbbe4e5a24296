"""The host of kernels that keep nothing: no JVM, batches as `mapInArrow` gives them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import KernelFault
from penstock.kernels.contract import SET_ASIDE, SET_ASIDE_SCHEMA
from penstock.plan.answering import AnsweringPlan
from penstock.plan.join_table import JoinTablePlan
from penstock.plan.passthrough import PassThroughPlan
from penstock.spark import at_once
from penstock.spark.at_once import answerer, answerer_in_few_rows
from penstock.spark.host import FAMILIES, NUMBERS, plain_of
from penstock.spark.outbox import Attempt, Outbox
from penstock.spark.wire import CORRUPT, SOURCE, rows_alone

STREAM = pa.schema([("id", pa.int64()), ("k", pa.int64())])


class Told(list):
    """What a task tells."""

    def tell(self, query, batch, slot, numbers):
        self.append(numbers)


@pytest.fixture
def plan(tmp_path):
    at_once._live.clear()
    pq.write_table(pa.table({"k": np.arange(1_000), "n": np.arange(1_000) * 3}), tmp_path / "t.parquet")
    ps.prepare(tmp_path / "t.parquet", tmp_path / "t", key="k")
    over = ps.table(tmp_path / "t", key="k")
    return JoinTablePlan.checked(STREAM, over, on=("k",), memory="32MB", slots=2, division="input")


def batch(*keys, corrupt=()):
    rows = pa.record_batch([pa.array(range(len(keys))), pa.array(keys)], schema=STREAM)
    if not corrupt:
        return rows
    texts = [f"bad {key}" if key in corrupt else None for key in keys]
    marks = [pa.array(texts, pa.string()), pa.array(["file"] * len(keys))]
    return pa.RecordBatch.from_arrays([*rows.columns, *marks], names=[*STREAM.names, CORRUPT, SOURCE])


def results(plan, *batches, told=None):
    wanted = {"results": plan.channels["results"]}
    found = list(answerer(plan, rows_alone, wanted, Told() if told is None else told)(iter(batches)))
    return sorted((row["k"], row["n"]) for rows in found for row in rows.to_pylist())


def test_every_row_is_answered_in_its_own_step_and_its_numbers_are_told(plan):
    told = Told()
    assert results(plan, batch(1, 2, 2_000), batch(2), told=told) == [(1, 3), (2, 6), (2, 6)]
    assert results(plan, told=told) == []
    assert [(one["rows_in"], one["rows_out"], one["slots_stepped"]) for one in told] == [(4, 3, 1), (0, 0, 1)]
    assert all(0 < one["memory"] <= one["budget"] == 16 << 20 for one in told[:1])


def test_a_kernel_lives_on_unless_its_step_failed(plan, monkeypatch):
    made = []
    make = JoinTablePlan.make
    monkeypatch.setattr(JoinTablePlan, "make", lambda self, slot: made.append(slot) or make(self, slot))
    results(plan, batch(1))
    results(plan, batch(2))
    assert len(made) == 1

    def broken():
        yield batch(3)
        raise OSError("the JVM is gone")

    wanted = {"results": plan.channels["results"]}
    with pytest.raises(OSError, match="gone"):
        list(answerer(plan, rows_alone, wanted, Told())(broken()))
    assert results(plan, batch(4)) == [(4, 12)]
    assert len(made) == 2


def test_records_that_no_source_could_read_come_after_what_the_kernel_gives(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(Outbox, "here", classmethod(lambda cls, query, slot: cls(tmp_path / "outbox", Attempt())))
    told = Told()
    wanted = {SET_ASIDE: SET_ASIDE_SCHEMA}
    batches = [batch(1, 2, 3, corrupt=(2,)), batch(5), batch(7, 8, corrupt=(7, 8))]
    (rows,) = answerer(plan, rows_alone, wanted, told)(iter(batches))
    assert [(row["source"], row["raw"]) for row in rows.to_pylist()] == [("file", f"bad {n}") for n in (2, 7, 8)]
    assert (told[0]["rows_malformed"], told[0]["rows_in"]) == (3, 3)
    assert not list((tmp_path / "outbox").iterdir())


@pytest.mark.parametrize("batches", [[batch(1, 2_000)], []])
def test_numbers_travel_beside_few_rows(plan, batches):
    made = pa.schema([("count", pa.int64())])

    def count(emissions):
        for emission in emissions:
            yield pa.record_batch([pa.array([emission.rows.num_rows])], schema=made)

    wanted = {"results": plan.channels["results"]}
    rows = pa.Table.from_batches(answerer_in_few_rows(plan, count, wanted, made)(iter(batches))).to_pylist()
    assert [row["count"] for row in rows] == [1] * len(batches) + [None]
    assert [row[FAMILIES] for row in rows] == [None] * len(rows)
    numbers = dict(zip((metric.name for metric in plain_of(plan)), rows[-1][NUMBERS], strict=True))
    assert numbers["rows_out"] == len(batches)
    assert [row[NUMBERS] for row in rows[:-1]] == [None] * len(batches)


def test_a_kernel_that_keeps_something_is_refused(plan):
    keeping = PassThroughPlan.checked(STREAM, key=("k",), slots=1, keep=10)
    with pytest.raises(KernelFault, match="keeps rows where none are to be kept"):
        list(answerer(keeping, rows_alone, {}, Told())(iter([batch(1, 2, 3)])))


def test_answers_that_may_remember_need_state(plan):
    assert AnsweringPlan(plan, {}, "").keeps_nothing
    assert not AnsweringPlan(plan, {}, "", fixed=True).keeps_nothing
    assert not AnsweringPlan(SimpleNamespace(keeps_nothing=False), {}, "").keeps_nothing
