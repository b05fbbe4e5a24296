"""Source and table files that vanish or change while a query runs: it stops, names them, and goes on once they are
back.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import PlanError, SourceLost, TableChanged
from tests.faults.workshop import Workshop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def wait_for_batches(shop: Workshop, count: int) -> None:
    until = time.monotonic() + 300
    while shop.batches() < count:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_unread_source_deleted_is_named_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "shop", files=5)
    victim, safe = shop.base / "orders" / "004.json", tmp_path / "004.json"
    running = shop.begin(spark)
    wait_for_batches(shop, 1)
    victim.rename(safe)
    with pytest.raises(SourceLost, match=r"004\.json"):
        running.wait()
    shop.check_so_far()
    # Planned, still gone: a restart must not take it for empty either.
    with pytest.raises(SourceLost, match=r"004\.json"):
        shop.begin(spark).wait()
    shop.check_so_far()
    safe.rename(victim)
    running = shop.begin(spark)
    running.wait()
    shop.check("ledger")

    assert running.progress()["notes"] == []
    read = shop.base / "orders" / "001.json"
    read.write_text('{"order_id": 1, "product_id": 3}\n')
    notes = running.progress()["notes"]
    assert len(notes) == 1
    assert str(read) in notes[0]


def test_files_that_spark_would_read_twice_stop_it(spark: SparkSession, tmp_path: Path) -> None:
    """A path with brackets is a pattern to it as well, and every row of the micro-batch came several times."""
    (tmp_path / "in").mkdir()
    for name in ("export[1]", "export[2]", "other"):
        pq.write_table(pa.table({"name": [name]}), tmp_path / "in" / f"{name}.parquet")
    pq.write_table(pa.table({"k": ["other"], "found": [True]}), tmp_path / "table.parquet")
    table = ps.table(tmp_path / "table.parquet", key="k")

    def begin(**options: str) -> Any:
        rows = spark.readStream.schema("name string").options(**options).parquet(str(tmp_path / "in"))
        flow = ps.join_table(rows, table, on="name", how="left", memory="16MB")
        places = {name: str(tmp_path / name) for name in ("results", "set_aside")}
        return flow.start(**places, checkpoint=str(tmp_path / "ck"), trigger={"availableNow": True})

    with pytest.raises(PlanError, match=r"several times.*export"):
        begin().wait()
    running = begin(recursiveFileLookup="true")
    running.wait()
    assert running.progress()["totals"]["rows_in"] == 3
    found = pq.read_table(tmp_path / "results").to_pylist()
    assert sorted((row["name"], row["found"]) for row in found) == [
        ("export[1]", None),
        ("export[2]", None),
        ("other", True),
    ]


def delete(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def rewrite(path: Path) -> None:
    with path.open("r+b") as file:  # the same inode, other bytes
        file.write(other(path))
        file.truncate()


def replace(path: Path) -> None:
    new = path.with_name(".new")
    new.write_bytes(other(path))
    new.rename(path)


def other(path: Path) -> bytes:
    """The table with other prices."""
    table = pq.read_table(path)
    changed = table.set_column(1, "price", pa.array([1] * table.num_rows, pa.int64()))
    sink = pa.BufferOutputStream()
    pq.write_table(changed, sink, row_group_size=200)
    return sink.getvalue().to_pybytes()


@pytest.mark.slow
def test_table_changed_during_a_run_is_named_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "shop", files=12)
    path, safe = shop.base / "products" / "a.parquet", tmp_path / "safe.parquet"
    shutil.copy2(path, safe)
    damages: list[Callable[[Path], None]] = [delete, truncate, rewrite, replace]
    for damage in damages:
        running = shop.begin(spark)
        wait_for_batches(shop, shop.batches() + 2)
        damage(path)
        with pytest.raises(TableChanged, match=r"a\.parquet"):
            running.wait()
        path.unlink(missing_ok=True)
        shutil.copyfile(safe, path)
        shop.check_so_far()
    shop.begin(spark).wait()
    shop.check("ledger")
