"""Delta and Iceberg tables: the rows of a version, as the format's own reader has them."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import warnings

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, DoubleType, LongType, StringType

from penstock.errors import UnreadableTable
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.tables import table
from penstock.tables.parquet import Listed, ParquetTable
from penstock.tables.versions import Versions
from penstock.testing import Host, assert_same_rows

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
    stream = pa.table({"s": pa.array(values[:1], kind)})
    for key, on in (("part", ["s"]), (["k", "part"], ["k", "s"])):
        ours = stream.append_column("k", pa.array([1]))
        join = MeshJoin(ours.schema, table(where, key=key), on=on, budget=64 << 20, how="semi")
        assert_same_rows(Host(lambda join=join: join).run([ours])["results"], ours)


@pytest.fixture
def catalogue(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyiceberg.catalog.memory import InMemoryCatalog

        made = InMemoryCatalog("tests", warehouse=f"file://{tmp_path}")
        made.create_namespace("n")
        yield made


@pytest.fixture
def iceberg(catalogue):
    return catalogue.create_table("n.t", schema=sample(0).schema)


def test_iceberg_has_the_rows_of_its_snapshots(iceberg, tmp_path):
    where = tmp_path / "n" / "t"
    versions = Versions(str(where), ("k",))
    iceberg.append(sample(0))
    first = versions.newest()
    iceberg.append(sample(5))
    iceberg.delete("k = 7")
    with iceberg.update_schema() as update:
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


def test_iceberg_columns_are_known_by_their_numbers_whatever_files_call_them(iceberg, tmp_path):
    iceberg.append(sample(0))
    with iceberg.update_schema() as update:
        update.rename_column("name", "k.2")  # in files a dot is written otherwise
        update.rename_column("k", "key")
    with iceberg.update_schema() as update:
        update.rename_column("day", "k")
    iceberg.append(sample(5).rename_columns(["key", "k.2", "k"]))
    now = table(tmp_path / "n" / "t", key="key")
    assert_same_rows(rows_of(now), pa.concat_tables([sample(0), sample(5)]).rename_columns(now.schema.names))


def test_iceberg_files_that_were_written_without_numbers_go_by_names(iceberg, tmp_path):
    pq.write_table(sample(0), tmp_path / "plain.parquet")
    iceberg.add_files([str(tmp_path / "plain.parquet")])
    with iceberg.update_schema() as update:
        update.rename_column("name", "label")
    now = table(tmp_path / "n" / "t", key="k")
    assert_same_rows(rows_of(now), sample(0).rename_columns(["k", "label", "day"]))


def test_iceberg_columns_that_were_dropped_and_made_anew_have_nothing_of_before(iceberg, tmp_path):
    iceberg.append(sample(0))
    with iceberg.update_schema() as update:
        update.delete_column("name")
    with iceberg.update_schema() as update:
        update.add_column("name", StringType())
    found = rows_of(table(tmp_path / "n" / "t", key="k"))
    assert_same_rows(found.drop_columns(["name"]), sample(0).drop_columns(["name"]))
    assert found["name"].null_count == 5


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (DAY, pa.date32()),
        ("eu", pa.string()),
        (b"x\0", pa.binary()),
        (dt.datetime(2026, 1, 1, 12, 30, tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
        (decimal.Decimal("1.50"), pa.decimal128(9, 2)),
        (None, pa.int32()),
    ],
)
def test_iceberg_partitions_that_files_lack_have_the_value_of_the_metadata(tmp_path, catalogue, value, kind):
    """Files that were partitioned as Hive does it, and added as they were."""
    rows = pa.table({"k": [1, 2], "part": pa.array([value] * 2, kind)})
    made = catalogue.create_table("n.t", schema=rows.schema)
    with made.update_spec() as update:
        update.add_field("part", IdentityTransform(), "part")
    made.append(rows)
    for file in (tmp_path / "n" / "t").rglob("*.parquet"):
        pq.write_table(pq.ParquetFile(file).read().drop_columns(["part"]), file)
    for key in ("k", "part"):
        assert_same_rows(rows_of(table(tmp_path / "n" / "t", key=key)), rows)


def test_iceberg_columns_that_came_later_begin_with_their_default(iceberg, tmp_path):
    iceberg.append(sample(0))
    with iceberg.update_schema() as update:
        update.add_column("later", LongType())
    where = tmp_path / "n" / "t"
    newest = max((where / "metadata").glob("*.metadata.json"))
    said = json.loads(newest.read_text())
    said["schemas"][-1]["fields"][-1]["initial-default"] = 7  # no Python library writes them yet
    newest.write_text(json.dumps(said))
    assert rows_of(table(where, key="k"))["later"].to_pylist() == [7] * 5


def test_iceberg_columns_within_columns_that_were_dropped_and_made_anew_are_refused(tmp_path, catalogue):
    rows = pa.table({"k": [1], "s": pa.array([{"a": 1, "b": 2}], pa.struct([("a", pa.int64()), ("b", pa.int64())]))})
    made = catalogue.create_table("n.t", schema=rows.schema)
    made.append(rows)
    with made.update_schema() as update:
        update.delete_column(("s", "a"))
    with made.update_schema() as update:
        update.add_column(("s", "a"), LongType())
        update.move_first(("s", "a"))
    with pytest.raises(UnreadableTable, match=r"within column 's'"):
        table(tmp_path / "n" / "t", key="k")


def test_iceberg_columns_that_were_widened_are_read_and_joined(tmp_path, catalogue):
    old, new = (
        pa.table({
            "k": pa.array(keys, whole), "f": pa.array([1.5, None], fraction),
            "d": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(digits, 2)),
        })
        for keys, whole, fraction, digits in (
            ([1, -2], pa.int32(), pa.float32(), 5),
            ([1 << 40, 7], pa.int64(), pa.float64(), 20),
        )
    )  # fmt: skip
    properties = {"write.parquet.bloom-filter-enabled.column.k": "true"}
    made = catalogue.create_table("n.t", schema=old.schema, properties=properties)
    made.append(old)
    with made.update_schema() as update:
        update.update_column("k", LongType())
        update.update_column("f", DoubleType())
        update.update_column("d", DecimalType(20, 2))
    made.append(new)
    for key in ("k", "f", "d"):
        now = table(tmp_path / "n" / "t", key=key)
        want = pa.concat_tables([old.cast(new.schema), new])
        assert_same_rows(rows_of(now), want)
        stream = want.select([key]).rename_columns(["s"])
        join = MeshJoin(stream.schema, now, on=["s"], budget=64 << 20)
        # Four keys, each once; or one value that is there twice, and NULLs.
        assert Host(lambda join=join: join).run([stream])["results"].num_rows == 4


def test_a_file_that_is_narrower_than_its_table_has_no_filter_that_could_be_asked(tmp_path):
    """A filter knows how values lie in the file: 4 bytes are not found as 8."""
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": pa.array([1, 2], pa.int32())}), file, bloom_filter_options={"k": {"ndv": 2}})
    planned = ParquetTable.plan(str(tmp_path), ("k",), listed=[Listed(file)], columns=pa.schema([("k", pa.int64())]))
    assert planned.pages[0].bloom == 0
    assert planned.pages[0].spans == ((1, 2),)
    assert table(tmp_path, key="k").pages[0].bloom > 0


def test_types_that_are_not_wider_are_refused(tmp_path):
    file = tmp_path / "a.parquet"
    for has, wanted in ((pa.int64(), pa.int32()), (pa.float64(), pa.float32()), (pa.string(), pa.int64())):
        pq.write_table(pa.table({"k": [1], "c": pa.array([None], has)}), file)
        columns = pa.schema([("k", pa.int64()), ("c", wanted)])
        with pytest.raises(UnreadableTable, match="column 'c' as"):
            ParquetTable.plan(str(tmp_path), ("k",), listed=[Listed(file)], columns=columns)


def test_plain_files_have_a_newest_version_but_keep_none(tmp_path):
    pq.write_table(sample(0), tmp_path / "a.parquet")
    versions = Versions(str(tmp_path), ("k",))
    first = versions.newest()
    assert first == versions.newest()
    pq.write_table(sample(5), tmp_path / "b.parquet")
    assert versions.newest() != first
    assert not versions.kept
    assert versions.load(first).rows == 10
