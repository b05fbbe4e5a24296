"""One Spark session for all tests of this folder, and what turns a join into two bags of rows to compare."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.testing import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.flow import Flow

FINITE = {"availableNow": True}


def sampled(cases: Sequence[Any], every: int = 2) -> list[Any]:
    """Cases for `parametrize`, of which one of every so many is quick; the slow tests run the others."""
    return [case if n % every == 0 else pytest.param(case, marks=pytest.mark.slow) for n, case in enumerate(cases)]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = ps.session("penstock-tests", cores=2)
    yield session
    session.stop()


@dataclass(frozen=True)
class Desk:
    """Files of one test below its own folder: streams and tables are written, flows run, results read back."""

    spark: SparkSession
    folder: Path

    def stream(self, rows: pa.Table, files: int = 3, name: str = "stream") -> DataFrame:
        """The rows as a stream of that many files, one a micro-batch; an empty table is a stream without a file."""
        from penstock.spark.schema import spark_schema

        place = self.folder / name
        place.mkdir(exist_ok=True)
        ends = [rows.num_rows * n // files for n in range(files + 1)]
        if rows.num_rows:
            for number in range(files):
                part = rows.slice(ends[number], ends[number + 1] - ends[number])
                path = place / f"{number:03d}.parquet"
                pq.write_table(part, path)
                # Spark reads files by their times, which may be the same.
                os.utime(path, (time.time() - 1_000 + number,) * 2)
        reader = self.spark.readStream.schema(spark_schema(rows.schema)).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(place))

    def table(self, rows: pa.Table, key: str | list[str], page: int = 200, prepared: bool = False) -> ps.tables.Table:
        """The rows as a table in two files of row groups of `page` rows, or prepared from these in small pages."""
        place = self.folder / "table"
        place.mkdir(exist_ok=True)
        half = rows.num_rows // 2
        pq.write_table(rows.slice(0, half), place / "a.parquet", row_group_size=page)
        pq.write_table(rows.slice(half), place / "b.parquet", row_group_size=page)
        if prepared:
            return ps.prepare(place, self.folder / "prepared", key=key, page_bytes=8 << 10)
        return ps.table(place, key=key)

    def run(self, flow: Flow, sink: str = "start", name: str = "out") -> pa.Table:
        """All results of a finite run, through one of the ways a user may take."""
        out, checkpoint = str(self.folder / name), str(self.folder / f"{name}-checkpoint")
        if sink == "start":
            aside = str(self.folder / f"{name}-aside")
            flow.start(results=out, set_aside=aside, checkpoint=checkpoint, trigger=FINITE).wait()
            return self.written(flow, name)
        writer = flow.results.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        if sink == "parquet":
            writer.format("parquet").option("path", out).start().awaitTermination()
            return self.written(flow, name)
        if sink == "memory":
            table = f"{name}_{self.folder.name}".replace("-", "_")
            writer.format("memory").queryName(table).start().awaitTermination()
            return self.spark.table(table).toArrow().cast(self.schema(flow))
        assert sink == "foreachBatch"
        parts: list[pa.Table] = []
        writer.foreachBatch(lambda batch, _: parts.append(batch.toArrow())).start().awaitTermination()
        return pa.concat_tables([self.schema(flow).empty_table(), *(part.cast(self.schema(flow)) for part in parts)])

    def written(self, flow: Flow, name: str = "out", channel: str = "results") -> pa.Table:
        """What lies in an output folder."""
        schema = self.schema(flow, channel)
        files = [str(path) for path in (self.folder / name).glob("*.parquet")]
        if not files:
            return schema.empty_table()
        return ds.dataset(files, format="parquet").to_table().select(schema.names).cast(schema)

    def schema(self, flow: Flow, channel: str = "results") -> pa.Schema:
        """The rows of a channel, as Arrow has them."""
        return flow._channels[channel]


@pytest.fixture
def desk(spark: SparkSession, tmp_path: Path) -> Desk:
    return Desk(spark, tmp_path)


def join(stream: pa.Table, rows: pa.Table, on: list[str], key: list[str]) -> pa.Table:
    """DuckDB's join of the two: the judge."""
    where = " AND ".join(f's."{ours}" = r."{theirs}"' for ours, theirs in zip(on, key, strict=True))
    carried = "".join(f', r."{name}"' for name in rows.column_names if name not in key)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(f"SELECT s.*{carried} FROM stream s JOIN rows r ON {where}").to_arrow_table()
    fields = [*stream.schema, *(field for field in rows.schema if field.name not in key)]
    return found.cast(pa.schema([field.with_nullable(True).remove_metadata() for field in fields]))


def assert_is_join(got: pa.Table, stream: pa.Table, rows: pa.Table, on: list[str], key: list[str]) -> None:
    """Fail unless the results are those of the judge, as a bag."""
    assert_same_rows(got, join(stream, rows, on, key).cast(got.schema), label="results")


def python_workers() -> list[psutil.Process]:
    """The workers that Spark's daemons below this process have forked."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if _is_daemon(process) and _is_daemon(process.parent()):
                found.append(process)
    return found


def _is_daemon(process: psutil.Process | None) -> bool:
    # Python with a module of that name; the JVM has it among its settings, and forks itself to start others.
    words = process.cmdline() if process is not None else []
    return len(words) > 2 and words[1] == "-m" and words[2].endswith(".daemon")


def eventually(found: Callable[[], Any]) -> Any:
    """What `found` gives once it gives something; progress comes by Spark's own events, a little later than rows."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if value := found():
            return value
        time.sleep(0.05)
    return found()
