"""Bad input that only shows beside Spark: each found before anything runs, each saying what to do.

What needs no stream is in tests/plan/test_join_table_plan.py.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import (
    BadOption,
    CheckpointDamaged,
    CheckpointInUse,
    CheckpointMismatch,
    KeyTypeMismatch,
    MemoryTooSmall,
    PlanError,
    UnknownColumn,
    UnreadableTable,
)
from penstock.spark.files import read_whole, write_whole
from tests.spark.conftest import FINITE, Desk

pytestmark = pytest.mark.spark

ROWS = pa.table({"product_id": np.arange(500), "price": np.arange(500) / 4})
NONE = pa.schema([("order_id", pa.int64()), ("product_id", pa.int64()), ("note", pa.string())]).empty_table()


@pytest.fixture
def products(desk: Desk):
    return desk.table(ROWS, "product_id")


def start(desk: Desk, flow, checkpoint: str = "ck", out: str = "out"):
    places = {"results": str(desk.folder / out), "set_aside": str(desk.folder / f"{out}-aside")}
    return flow.start(**places, checkpoint=str(desk.folder / checkpoint), trigger=FINITE)


@pytest.mark.parametrize(
    ("options", "error", "texts"),
    [
        ({"on": "produkt"}, UnknownColumn, ["The stream has no column 'produkt'", "Did you mean 'product_id'?"]),
        ({"on": "note"}, KeyTypeMismatch, ["'note' is a string", "cast('BIGINT')"]),
        ({"on": ["product_id", "note"]}, BadOption, ["`on` names 2 columns", "one stream column for each of"]),
        ({"memory": "64"}, BadOption, ["memory='64' is not a size", "The unit is missing", 'memory="64MB"']),
        ({"memory": "1KB"}, MemoryTooSmall, ["1 KB cannot hold", "Give at least memory="]),
        ({"slots": 0}, BadOption, ["slots=0 is not between 1 and 64"]),
        ({"division": "key"}, BadOption, ["cannot be divided by key", "penstock prepare"]),
        ({"on": "note", "memory": "?", "slots": 99}, PlanError, ["3 faults", "'note'", "memory='?'", "slots=99"]),
    ],
)
def test_a_join_that_cannot_be(desk: Desk, products, options, error, texts):
    with pytest.raises(error) as caught:
        ps.join_table(desk.stream(NONE), products, **({"on": "product_id", "memory": "16MB"} | options))
    assert type(caught.value) is error
    for text in texts:
        assert text in str(caught.value)


def test_columns_that_both_have(desk: Desk, products):
    frame = desk.stream(NONE).withColumnRenamed("note", "Price")
    with pytest.raises(PlanError, match="both have 'price'") as caught:
        ps.join_table(frame, products, on="product_id", memory="16MB")
    assert "withColumnRenamed('Price', 'stream_Price')" in str(caught.value)


def test_two_columns_of_one_name(desk: Desk, products):
    frame = desk.stream(NONE).toDF("note", "product_id", "note")
    with pytest.raises(PlanError, match="several columns 'note'") as caught:
        ps.join_table(frame, products, on="product_id", memory="16MB")
    assert "Rename or drop all but one" in str(caught.value)


def test_a_table_that_is_not_there(desk: Desk):
    with pytest.raises(UnreadableTable, match="does not exist"):
        ps.table(desk.folder / "productz", key="product_id")


class TestCheckpoint:
    """A checkpoint belongs to one plan and one version; a finished empty run is enough to make one."""

    def flow(self, desk: Desk, products, **options):
        return ps.join_table(
            desk.stream(NONE), products, **({"on": "product_id", "memory": "16MB", "slots": 2} | options)
        )

    def test_of_a_different_plan_is_refused_with_what_differs(self, desk: Desk, products):
        start(desk, self.flow(desk, products)).wait()
        with pytest.raises(CheckpointMismatch, match="made by a different plan") as caught:
            start(desk, self.flow(desk, products, slots=3, on="order_id"))
        text = str(caught.value)
        assert "slots was '2' and is now '3'" in text
        assert "on was 'product_id = product_id' and is now 'order_id = product_id'" in text
        assert "new checkpoint directory" in text

    def test_of_a_different_version_is_refused(self, desk: Desk, products):
        start(desk, self.flow(desk, products)).wait()
        path = desk.folder / "ck" / "penstock.json"
        write_whole(path, read_whole(path) | {"format": 999})
        with pytest.raises(CheckpointMismatch, match="state format 999; this version of Penstock reads") as caught:
            start(desk, self.flow(desk, products))
        assert "Finish it with the version that wrote it" in str(caught.value)

    def test_is_taken_up_with_another_budget(self, desk: Desk, products):
        start(desk, self.flow(desk, products)).wait()
        start(desk, self.flow(desk, products, memory="24MB")).wait()

    def test_that_is_cut_is_refused_by_name(self, desk: Desk, products):
        start(desk, self.flow(desk, products)).wait()
        path = desk.folder / "ck" / "penstock.json"
        path.write_text(path.read_text()[:-9])
        with pytest.raises(CheckpointDamaged, match=r"penstock\.json is cut or changed"):
            start(desk, self.flow(desk, products))

    def test_in_use_is_refused(self, desk: Desk, products):
        from penstock.spark.checkpoint import Checkpoint

        held = Checkpoint(str(desk.folder / "ck"), self.flow(desk, products)._plan)
        try:
            with pytest.raises(CheckpointInUse, match="is in use by") as caught:
                start(desk, self.flow(desk, products))
        finally:
            held.close()
        assert "Stop that process first" in str(caught.value)

    def test_with_another_output_is_refused(self, desk: Desk, products):
        one = pa.Table.from_pylist([dict.fromkeys(NONE.column_names)], NONE.schema)
        orders = desk.stream(one, files=1)  # an output without any batch may go over to another query
        start(desk, ps.join_table(orders, products, on="product_id", memory="16MB", slots=2)).wait()
        with pytest.raises(BadOption, match="holds the output of another query"):
            start(desk, self.flow(desk, products), checkpoint="other")


@pytest.mark.slow
def test_a_checkpoint_of_another_plan_is_also_refused_behind_sparks_own_sink(desk: Desk, products):
    """Nobody asks us before such a query starts; the state itself says whose it is, and nothing is written."""
    from penstock.spark.failures import cause

    stream = pa.table({"order_id": [1, 2], "product_id": [3, 4], "note": ["a", "b"]}, schema=NONE.schema)
    first = ps.join_table(desk.stream(stream, 2), products, on="product_id", memory="16MB")
    assert desk.run(first, "parquet").num_rows == 2
    more = pa.table({"order_id": [5], "product_id": [6], "note": ["c"]}, schema=NONE.schema)
    pq.write_table(more, desk.folder / "stream" / "more.parquet")
    other = ps.join_table(desk.stream(NONE), products, on="order_id", memory="16MB")
    with pytest.raises(Exception, match="CheckpointMismatch") as caught:
        desk.run(other, "parquet")
    found = cause(caught.value)
    assert isinstance(found, CheckpointMismatch)
    assert "on was 'product_id = product_id' and is now 'order_id = product_id'" in str(found)
    # As Spark reads what its sink has committed: an attempt that failed may leave an empty file.
    assert desk.spark.read.parquet(str(desk.folder / "out")).count() == 2
