"""Entries of a change log are taken in the order in which they got their names, however a listing falls out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import SourceLost, UnsupportedType, ViewDamaged
from penstock.plan.view import Changing
from penstock.spark.views.logs import Log, check_goes_on
from penstock.spark.views.lookup import held_counts, held_rows
from penstock.spark.views.parquet import schema_of
from penstock.spark.views.store import File, TableVersion

#: Gives files their names, in order, some at a time.
WRITER = """
import os, sys, time
for number in range(int(sys.argv[2])):
    os.rename(f"{sys.argv[1]}/.{number:06d}.parquet", f"{sys.argv[1]}/{number:06d}.parquet")
    if number % 5 == 4:
        time.sleep(0.002)
"""


def log(place: Path) -> Log:
    return Log("t", place, Changing(place, place), pa.schema([("k", pa.int64())]))


def test_an_entry_that_a_listing_missed_is_not_overtaken(tmp_path: Path, monkeypatch: Any) -> None:
    listings = iter([["b", "d"], ["e", "d", "c", "b", ".f"]])
    monkeypatch.setattr(Path, "iterdir", lambda self: iter([self / name for name in next(listings)]))
    # `c` was there before `d`; whether something came before `e` is not known yet.
    assert log(tmp_path).names() == ["b", "c", "d"]


def test_listings_have_no_gaps_while_files_come(tmp_path: Path) -> None:
    count = 2_000
    for number in range(count):
        (tmp_path / f".{number:06d}.parquet").touch()
    with subprocess.Popen([sys.executable, "-c", WRITER, os.fspath(tmp_path), str(count)]) as writer:
        while writer.poll() is None:
            names = log(tmp_path).names()
            assert names == [f"{number:06d}.parquet" for number in range(len(names))]
    assert writer.returncode == 0
    assert len(log(tmp_path).names()) == count


def test_a_directory_is_an_entry_once_it_is_whole(tmp_path: Path) -> None:
    """Spark makes it first, writes within it, and moves its files at the end: taken before, they would be lost."""
    changes, entry = log(tmp_path), tmp_path / "000001"
    (entry / "_temporary" / "0").mkdir(parents=True)
    assert changes.waiting(()) == []
    pq.write_table(pa.table({"k": [1, 2]}), entry / "part-0.parquet")
    assert changes.waiting(()) == []
    (entry / "_temporary" / "0").rmdir()
    (entry / "_temporary").rmdir()
    (entry / "_SUCCESS").touch()
    assert [waiting.changes for waiting in changes.waiting(())] == [2]


def test_a_directory_that_goes_is_not_one_without_changes(tmp_path: Path) -> None:
    """Readers would be told that nothing is missing, where nobody can see."""
    changes = log(tmp_path / "changes")
    assert changes.names() == [], "it may be made later"
    (tmp_path / "changes").mkdir()
    assert changes.names() == []
    (tmp_path / "changes").rename(tmp_path / "elsewhere")
    with pytest.raises(SourceLost, match=r"changes is gone(?s:.*)changes of t wait"):
        changes.names()
    (tmp_path / "elsewhere").rename(tmp_path / "changes")
    assert changes.names() == []


def test_what_an_entry_has_is_never_left_out(tmp_path: Path) -> None:
    """Whatever its files are called; and folders within it, whose names may be columns, are told of."""
    (tmp_path / "000001").mkdir()
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "000001" / "000000_0")
    assert [waiting.changes for waiting in log(tmp_path).waiting(())] == [2]
    (tmp_path / "000001" / "day=2").mkdir()
    with pytest.raises(SourceLost, match="it has the directory 'day=2'"):
        log(tmp_path).waiting(())


def test_what_was_taken_of_a_stream_goes_but_for_the_last(tmp_path: Path) -> None:
    for name in ("0", "1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.parquet").touch()
    log(tmp_path).forget(("0", "1"))
    assert log(tmp_path).names() == ["0", "1", "2"], "somebody else's files"
    ours = Log("t", tmp_path, Changing(tmp_path), pa.schema([]), ours=True)
    ours.forget(("0",))
    assert ours.names() == ["1", "2"]
    ours.forget(("0", "1", "2"))
    assert ours.names() == ["2"], "a micro-batch that is repeated must find it"


def test_a_stream_that_begins_again_is_refused(tmp_path: Path) -> None:
    """Its checkpoint is lost or an old copy: entries of micro-batches that were taken are gone, but for the last."""
    place, offsets = tmp_path / "log", tmp_path / "checkpoint" / "offsets"
    check_goes_on(place, offsets.parent)
    (place / f"{7:020d}").mkdir(parents=True)
    (place / f".{8:020d}").mkdir()
    for number in range(9):
        if number < 8:
            with pytest.raises(ViewDamaged, match=re.escape(str(offsets.parent))):
                check_goes_on(place, offsets.parent)
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(number)).touch()
    check_goes_on(place, offsets.parent)
    commits = offsets.with_name("commits")
    commits.mkdir()
    (commits / "7").touch()
    check_goes_on(place, offsets.parent)
    (commits / "8").touch()
    with pytest.raises(ViewDamaged, match=re.escape(f"{place} is lost")):
        check_goes_on(place, offsets.parent)
    (commits / "8").unlink()
    (offsets / "9").touch()
    with pytest.raises(ViewDamaged, match=re.escape(f"{place} is lost")):
        check_goes_on(place, offsets.parent)


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (pa.array(["1"]).dictionary_encode(), pa.int64()),
        (pa.array([5], pa.uint64()), pa.string()),
        (pa.array([5], pa.duration("us")), pa.int64()),
        (pa.array([0.125]), pa.decimal128(9, 2)),
        (pa.array([1e300]), pa.float32()),
    ],
    ids=("text in a dictionary", "number", "duration", "digits", "infinity"),
)
def test_values_are_never_turned_into_others(tmp_path: Path, have: pa.Array, want: pa.DataType) -> None:
    changes = Log("t", tmp_path, Changing(tmp_path, operation="op"), pa.schema([("x", want)]))
    pq.write_table(pa.table({"x": have, "op": ["insert"]}), tmp_path / "a.parquet")
    with pytest.raises(UnsupportedType, match=r"a.parquet does not fit t: x is "):
        changes.read(changes.waiting(()))


def test_moments_as_spark_writes_them(tmp_path: Path) -> None:
    """In 96 bits, unless it is told otherwise. Counted in nanoseconds, these years would be others."""
    moments = [datetime(year, 2, 3, tzinfo=UTC) for year in (1, 1600, 2024, 9999)]
    given = pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC")), "op": ["insert"] * 4})
    pq.write_table(given, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert schema_of(tmp_path / "a.parquet").field("at").type == given["at"].type
    changes = Log("t", tmp_path, Changing(tmp_path, operation="op"), given.select(["at"]).schema)
    assert changes.read(changes.waiting(())).equals(given)
    rows = given.select(["at"])
    version = TableVersion((File.of(tmp_path / "a.parquet"),))
    assert held_counts(version, rows).tolist() == [1] * 4
    assert held_rows(version, rows, rows.schema).equals(rows)


def test_other_forms_of_the_same_value_are_read(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("d", pa.decimal128(9, 2)), ("s", pa.string()), ("none", pa.int32())])
    changes = Log("t", tmp_path, Changing(tmp_path, operation="op"), schema)
    texts = pa.array(["a"]).dictionary_encode()
    given = {"n": pa.array([5], pa.uint64()), "d": [19.99], "s": texts, "none": pa.nulls(1), "op": texts}
    pq.write_table(pa.table(given), tmp_path / "a.parquet")
    [row] = changes.read(changes.waiting(())).to_pylist()
    assert row == {"n": 5, "d": Decimal("19.99"), "s": "a", "none": None, "op": "a"}


def test_files_of_one_entry_are_put_in_order_whatever_integers_they_have(tmp_path: Path) -> None:
    changes = Log("t", tmp_path, Changing(tmp_path, operation="op", order="at"), pa.schema([("x", pa.int64())]))
    entry = tmp_path / "000001"
    entry.mkdir()
    for name, at, width in (("At", [3, 1], pa.int32()), ("at", [2, None], pa.int64())):
        rows = pa.table({"x": pa.array(at, width), name: pa.array(at, width), "op": ["insert", "delete"]})
        pq.write_table(rows, entry / f"{width}.parquet")
    found = changes.read(changes.waiting(())).to_pylist()
    assert [(row["x"], row["op"]) for row in found] == [(1, "delete"), (2, "insert"), (3, "insert"), (None, "delete")]
    texts = pa.table({"x": [4], "at": ["late"], "op": ["insert"]})
    pq.write_table(texts, entry / "text.parquet")
    with pytest.raises(UnsupportedType, match="000001 has no order by at"):
        changes.read(Log("t", tmp_path, Changing(tmp_path), pa.schema([])).waiting(()))
