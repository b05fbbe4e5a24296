"""Source and table files that vanish or change while a query runs: it stops, names them, and goes on once they are
back.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import SourceLost, TableChanged
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
