"""A checkpoint that was damaged, or is taken up again by another plan: refused by name, or gone on with exactly."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from penstock.errors import CheckpointDamaged, CheckpointInUse, CheckpointMismatch, PenstockError, StateDamaged
from penstock.spark.checkpoint import Checkpoint
from tests.faults.workshop import Workshop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """A query stopped while rows wait in its state."""
    shop = Workshop(tmp_path_factory.mktemp("stopped") / "shop", files=6)
    shop.leave_waiting(spark, 4)
    return shop


@pytest.fixture
def shop(stopped: Workshop, tmp_path: Path) -> Iterator[Workshop]:
    # Elsewhere, so that no state of it is still open in the session.
    return stopped.copy(tmp_path / "shop")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 4
    path.write_bytes(body)


def remove(path: Path) -> None:
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_taken_up_again_in_another_place_it_goes_on(spark: SparkSession, shop: Workshop) -> None:
    shop.begin(spark).wait()
    shop.check("ledger")


def test_killed_while_its_first_entry_was_written_it_begins_again(spark: SparkSession, tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "shop", files=1)
    Checkpoint(str(shop.base / "ck"), shop.flow(spark)._plan).close()
    offsets = shop.base / "ck" / "offsets"
    offsets.mkdir()
    for half in (".0.2b3ccc2f.tmp", "..0.2b3ccc2f.tmp.crc"):
        (offsets / half).write_bytes(b"v1")
    shop.begin(spark).wait()
    shop.check("ledger")


@pytest.mark.parametrize("damage", [cut, empty, flip, remove])
def test_damaged_state_is_refused_by_name(spark: SparkSession, shop: Workshop, damage: Callable[[Path], None]) -> None:
    newest = max((shop.base / "ck/state/0/0").glob("*.changelog"), key=lambda path: int(path.stem))
    damage(newest)
    with pytest.raises((CheckpointDamaged, StateDamaged), match=newest.name):
        shop.begin(spark).wait()
    shop.check_so_far()


def test_missing_state_is_refused(spark: SparkSession, shop: Workshop) -> None:
    shutil.rmtree(shop.base / "ck/state/0/1")
    with pytest.raises(PenstockError, match="state"):
        shop.begin(spark).wait()


@pytest.mark.parametrize("log", ["offsets", "commits", "sources/0"])
@pytest.mark.parametrize("damage", [cut, empty, flip])
def test_damaged_log_is_refused_by_name(
    spark: SparkSession, shop: Workshop, log: str, damage: Callable[[Path], None]
) -> None:
    newest = max((shop.base / "ck" / log).glob("[0-9]*"), key=lambda path: int(path.stem))
    damage(newest)
    with pytest.raises(CheckpointDamaged, match=f"{log}/{newest.name}"):
        shop.begin(spark)


def test_commit_missing_is_replayed_without_change(spark: SparkSession, shop: Workshop) -> None:
    newest = max((shop.base / "ck/commits").glob("[0-9]*"), key=lambda path: int(path.stem))
    planned = shop.base / "ck/offsets" / str(int(newest.name) + 1)
    # Nothing was planned after it: the state between the sink's commit and Spark's.
    remove(newest)
    if planned.exists():
        remove(planned)
    shop.begin(spark).wait()
    shop.check("ledger")


def test_metadata_missing_is_refused(spark: SparkSession, shop: Workshop) -> None:
    remove(shop.base / "ck/metadata")
    with pytest.raises(CheckpointDamaged, match="metadata is missing"):
        shop.begin(spark)


def test_second_query_is_refused_while_the_first_runs(spark: SparkSession, shop: Workshop) -> None:
    running = shop.begin(spark)
    with pytest.raises(CheckpointInUse, match="in use"):
        shop.begin(spark)
    running.wait()
    shop.check("ledger")


def test_other_slots_or_key_are_refused_with_what_differs(spark: SparkSession, shop: Workshop) -> None:
    with pytest.raises(CheckpointMismatch, match="slots was '2' and is now '3'"):
        shop.begin(spark, slots=3)
    with pytest.raises(CheckpointMismatch, match="on was 'product_id = product_id' and is now 'order_id = product_id'"):
        shop.begin(spark, on="order_id")


def test_other_budget_and_other_shuffle_partitions_go_on(spark: SparkSession, shop: Workshop) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        running = shop.begin(spark, memory="16MB")
        running.wait()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    shop.check("ledger")
    assert any("keeps the 2" in note for note in running.progress()["notes"])


def test_other_version_of_the_table_is_refused_while_rows_wait(spark: SparkSession, shop: Workshop) -> None:
    path = shop.inputs / "products" / "a.parquet"
    whole = path.read_bytes()
    pq.write_table(pq.read_table(path).slice(1), path, row_group_size=200)
    try:
        with pytest.raises(PenstockError, match="another version"):
            shop.begin(spark).wait()
    finally:
        path.write_bytes(whole)
    shop.begin(spark).wait()
    shop.check("ledger")
