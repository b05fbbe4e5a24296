"""Delta and Iceberg tables: the rows of a version, as the format's own reader has them."""

from __future__ import annotations

import datetime as dt
import decimal
import warnings

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import UnreadableTable
from penstock.tables import table
from penstock.tables.versions import Versions
from penstock.testing import assert_same_rows

DAY = dt.date(2026, 2, 1)


def rows_of(planned):
    reader = planned.open()
    parts = [batch for page in planned.pages for batch in reader.batches(page)]
    taken = [reader.take(page, np.arange(page.rows)) for page in planned.pages]
    found = pa.Table.from_batches(parts, schema=planned.schema)
    assert_same_rows(pa.Table.from_batches(taken, schema=planned.schema), found)
    return found


def sample(first, count=5):
    numbers = range(first, first + count)
    days = [DAY + dt.timedelta(n % 2) for n in numbers]
    return pa.table({"k": list(numbers), "name": [f"n{n}" for n in numbers], "day": days})


def test_delta_has_the_rows_of_its_newest_version_and_of_older_ones(tmp_path):
    where = tmp_path / "t"
    versions = Versions(str(where), ("k",))
    deltalake.write_deltalake(str(where), sample(0), partition_by=["day"])
    first = versions.newest()
    deltalake.write_deltalake(str(where), sample(5), mode="append")
    deltalake.DeltaTable(str(where)).delete("k = 7")
    assert versions.kept
    assert versions.newest() != first
    now = table(where, key="k")
    assert now.snapshot == "Delta version 2"
    want = deltalake.DeltaTable(str(where)).to_pyarrow_table()
    assert_same_rows(rows_of(now), want.select(now.schema.names).cast(now.schema))
    assert_same_rows(rows_of(versions.load(first)), sample(0).select(now.schema.names).cast(now.schema))
    assert versions.load(first).version != now.version


def test_delta_columns_that_came_later_are_null_before(tmp_path):
    where = str(tmp_path / "t")
    deltalake.write_deltalake(where, sample(0).drop_columns(["name"]))
    deltalake.write_deltalake(where, sample(5), mode="append", schema_mode="merge")
    found = rows_of(table(where, key="k")).sort_by("k")
    assert found["name"].to_pylist() == [None] * 5 + [f"n{n}" for n in range(5, 10)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], pa.int32()),
        (["a b/c", "ü"], pa.string()),
        ([decimal.Decimal("1.50"), None], pa.decimal128(9, 2)),
        ([True, False], pa.bool_()),
        ([dt.datetime(2026, 1, 1, 12, 30, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    ],
)
def test_delta_partitions_of_any_type(tmp_path, values, kind):
    where = str(tmp_path / "t")
    deltalake.write_deltalake(where, pa.table({"k": [1, 2], "part": pa.array(values, kind)}), partition_by=["part"])
    found = rows_of(table(where, key="k")).sort_by("k")
    assert found["part"].to_pylist() == values
    with pytest.raises(UnreadableTable, match="key column 'part'"):
        table(where, key="part")


@pytest.fixture
def iceberg(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyiceberg.catalog.memory import InMemoryCatalog

        catalog = InMemoryCatalog("tests", warehouse=f"file://{tmp_path}")
        catalog.create_namespace("n")
        yield catalog.create_table("n.t", schema=sample(0).schema)


def test_iceberg_has_the_rows_of_its_snapshots(iceberg, tmp_path):
    where = tmp_path / "n" / "t"
    versions = Versions(str(where), ("k",))
    iceberg.append(sample(0))
    first = versions.newest()
    iceberg.append(sample(5))
    iceberg.delete("k = 7")
    with iceberg.update_schema() as update:
        from pyiceberg.types import LongType

        update.add_column("later", LongType())
    now = table(where, key="k")
    assert now.snapshot.startswith("Iceberg snapshot")
    assert_same_rows(rows_of(now), iceberg.refresh().scan().to_arrow().cast(now.schema))
    old = rows_of(versions.load(first))
    assert_same_rows(old.drop_columns(["later"]), sample(0))
    assert old["later"].null_count == 5


def test_iceberg_columns_that_were_dropped_are_not_read(iceberg, tmp_path):
    iceberg.append(sample(0))
    with iceberg.update_schema() as update:
        update.delete_column("day")
    now = table(tmp_path / "n" / "t", key="k")
    assert now.schema.names == ["k", "name"]
    assert_same_rows(rows_of(now), sample(0).drop_columns(["day"]))


def test_iceberg_columns_that_were_renamed_are_refused(iceberg, tmp_path):
    iceberg.append(sample(0))
    with iceberg.update_schema() as update:
        update.rename_column("name", "label")
    with pytest.raises(UnreadableTable, match=r"'label'.* is named 'name'"):
        table(tmp_path / "n" / "t", key="k")


def test_plain_files_have_a_newest_version_but_keep_none(tmp_path):
    pq.write_table(sample(0), tmp_path / "a.parquet")
    versions = Versions(str(tmp_path), ("k",))
    first = versions.newest()
    assert first == versions.newest()
    pq.write_table(sample(5), tmp_path / "b.parquet")
    assert versions.newest() != first
    assert not versions.kept
    assert versions.load(first).rows == 10
