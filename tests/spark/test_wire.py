"""Rows on their way to slots and from them, without a JVM."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.kernels.contract import SET_ASIDE_SCHEMA
from penstock.plan.base import Side
from penstock.plan.routing import RangeSide
from penstock.spark import sink, wire
from penstock.spark.outbox import Attempt, Outbox, Parcel
from penstock.spark.sink import StagedFile
from penstock.spark.wire import ASIDE, CORRUPT, EVENT_TIME, SOURCE, from_blob, in_larger, opener, packer, rows_alone

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
IDS = (70, 71, 72)
#: Of the fields of a parcel.
KINDS = (pa.string(), pa.binary(), pa.string())


def rows(*keys: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.int64()), pa.array(keys, SCHEMA.field("at").type)], schema=SCHEMA)


def packed(side: Side, *batches: pa.RecordBatch, number: int = 0) -> list[tuple[int, int, pa.Buffer]]:
    out = list(packer(side, number, IDS)(iter(batches)))
    return [(one["slot"][0].as_py(), one["side"][0].as_py(), one["blob"][0].as_buffer()) for one in out]


def keys_by_slot(found: list[tuple[int, int, pa.Buffer]], number: int = 0) -> dict[int, list[int]]:
    held: dict[int, list[int]] = {}
    for slot, side, blob in found:
        if side == number:
            held.setdefault(slot, []).extend(from_blob(blob, SCHEMA)["k"].to_pylist())
    return held


def test_rows_of_a_key_go_to_one_slot_in_their_order():
    keys = np.random.default_rng(1).integers(0, 40, 500).tolist()
    held = keys_by_slot(packed(Side(SCHEMA, key=("k",)), rows(*keys[:300]), rows(*keys[300:])))
    assert set(held) == set(IDS)
    owner = {key: slot for slot, mine in held.items() for key in mine}
    assert held == {slot: [key for key in keys if owner[key] == slot] for slot in IDS}


def test_rows_without_a_key_go_to_every_slot():
    assert keys_by_slot(packed(Side(SCHEMA), rows(1, 2), number=1), 1) == {slot: [1, 2] for slot in IDS}


def test_a_slot_without_rows_is_called_only_where_all_are():
    assert len(packed(Side(SCHEMA, key=("k",)), rows(5, 5))) == 1
    called = packed(Side(SCHEMA, key=("k",), calls_all=True), rows(5, 5))
    assert sorted(slot for slot, _, _ in called) == list(IDS)


@pytest.mark.parametrize("number", [0, 1])
def test_every_slot_is_told_how_far_event_time_has_come_once(number: int):
    found = packed(Side(SCHEMA, key=("k",), event_time="at"), rows(5, -9), rows(-3), number=number)
    told = [(slot, int.from_bytes(blob, "big", signed=True)) for slot, side, blob in found if side < 0]
    assert told == [(slot, 5) for slot in IDS]
    assert {side for _, side, _ in found} == {number, EVENT_TIME - number}
    nothing = rows(1).set_column(1, SCHEMA.field("at"), pa.nulls(1, SCHEMA.field("at").type))
    assert all(side >= 0 for _, side, _ in packed(Side(SCHEMA, event_time="at"), nothing))


def test_records_that_do_not_fit_go_aside_with_their_text_and_file():
    marks = {CORRUPT: ["?!", None, None], SOURCE: ["f", "f", "g"]}
    batch = rows(1, 2, 3)
    for name, values in marks.items():
        batch = batch.append_column(name, pa.array(values, pa.string()))
    found = packed(Side(SCHEMA, key=("k",)), batch)
    assert sorted(key for held in keys_by_slot(found).values() for key in held) == [2, 3]
    [(slot, blob)] = [(slot, blob) for slot, side, blob in found if side == ASIDE]
    [aside] = from_blob(blob, SET_ASIDE_SCHEMA).to_pylist()
    assert (slot, aside["source"], aside["raw"]) == (IDS[0], "f", "?!")


def test_rows_that_go_by_range_go_to_every_slot_that_they_may_meet():
    side = RangeSide(SCHEMA, column="k", split=(10.0, 20.0), reach=(-5.0, 0.0))
    assert keys_by_slot(packed(side, rows(3, 12, 25))) == {70: [3, 12], 71: [12, 25], 72: [25]}


def test_a_channel_is_read_and_the_files_of_others_are_let_go(tmp_path):
    outbox = Outbox(tmp_path, Attempt())
    sent = [*outbox.add("results", rows(1, 2)), *outbox.add("late", rows(3)), *outbox.close()]
    sent.append(Parcel("results", rows(4).serialize().to_pybytes(), None))
    columns = [pa.array(column, kind) for column, kind in zip(zip(*sent, strict=True), KINDS, strict=True)]
    numbers = pa.RecordBatch.from_arrays([pa.array([None], column.type) for column in columns], Parcel._fields)
    message = pa.RecordBatch.from_arrays(columns, Parcel._fields)
    found = list(opener(rows_alone, {"results": SCHEMA})([numbers, message]))
    assert [one["k"].to_pylist() for one in found] == [[1, 2, 4]]
    assert not list(tmp_path.iterdir())


def test_small_batches_are_put_together_in_order(monkeypatch):
    monkeypatch.setattr(wire, "_UNPACKED_ROWS", 5)
    given = [rows(*range(n, n + count)) for n, count in ((0, 2), (2, 2), (4, 2), (6, 7), (13, 5), (18, 1))]
    out = list(in_larger(given))
    assert [one.num_rows for one in out] == [4, 2, 7, 5, 1]
    assert [key for one in out for key in one["k"].to_pylist()] == list(range(19))
    assert list(in_larger([])) == []


def test_a_row_group_is_written_once_it_is_full_by_rows_or_by_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(sink, "_GROUP_ROWS", 10)
    monkeypatch.setattr(sink, "_GROUP_BYTES", 16 * 60)
    staged = StagedFile(tmp_path, 3, SCHEMA)
    for batch in (rows(*range(6)), rows(*range(6)), rows(*range(4)), rows(*range(60))):
        staged.add(batch)
    name = staged.close("results")["file"][0].as_py()
    written = pq.ParquetFile(tmp_path / "_penstock" / "staging" / name).metadata
    assert [written.row_group(n).num_rows for n in range(written.num_row_groups)] == [12, 64]


def test_what_a_row_group_holds_is_not_counted_again_with_every_batch(tmp_path, monkeypatch):
    """Results may come in very many very small batches."""

    class Batch:
        num_rows = 1
        asked = 0

        @property
        def nbytes(self) -> int:
            Batch.asked += 1
            return 8

    staged = StagedFile(tmp_path, 3, SCHEMA)
    for _ in range(100):
        staged.add(Batch())
    assert Batch.asked == 100
