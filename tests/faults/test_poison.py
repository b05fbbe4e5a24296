"""Records that do not fit: all of them set aside with file and text, all others joined, the counts sum to the input."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "z" * (10 << 20)
SCHEMA = "id long, key long, day date, ratio double, note string, more struct<n:int>"

GOOD = [
    b'{"id": 1, "key": 1}',
    b'{"id": 2, "key": 2, "day": "2024-02-29", "ratio": 0.5, "note": "x", "more": {"n": 1}}',
    b'{"id": 3, "key": 1, "added": [1, {"deep": true}], "also": "new"}',
    b'{"id": 4, "key": null}',
    b'{"id": 9223372036854775807, "key": 2, "note": "nul \\u0000 escaped"}',
    b'  {"id": 6, "key": 1, "note": "caf\xc3\xa9"}  ',
    b'{"id": 7, "key": 2, "ratio": "NaN"}',
    b'{"id": 8, "key": 1, "note": "' + LONG.encode() + b'"}',
]
BAD = [
    b'{"id": "text", "key": 1}',
    b'{"id": 1.5, "key": 1}',
    b'{"id": 9223372036854775808, "key": 1}',
    b'{"id": true, "key": 1}',
    b'{"id": "12", "key": 1}',
    b'{"id": 10, "key": 1, "day": "2023-02-29"}',
    b'{"id": 11, "key": 1, "ratio": "much"}',
    b'{"id": 12, "key": 1, "more": 5}',
    b'{"id": 13, "key": 1, "more": {"n": "deep"}}',
    b'{"id": 14, "key": 1',
    b'{"id": 15, "key": 1} {"id": 16, "key": 1}',
    b'{"id": 17, "key": 1} and more',
    b'{"id": 18, "key": 1}, "x": 1',
    b'[{"id": 19, "key": 1}]',
    b"null",
    b"42",
    b'"text"',
    b"free text",
    b"\x00\x00\x00",
    b'{"id": 20, "key": 1, "note": "nul \x00 raw"}',
    b'{"id": 21, "key": 1, "note": "not utf-8: \xff"}',
    b'{"id": 22, "key": 1, "note": "' + LONG.encode() + b'"',
]
EMPTY = [b"", b"   ", b"\t"]


@pytest.mark.spark
def test_poison_is_set_aside_and_the_rest_is_joined(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "table").mkdir()
    pq.write_table(pa.table({"key": [1, 2, 3], "name": ["one", "two", "three"]}), tmp_path / "table" / "a.parquet")
    # Good and bad side by side in each of two files.
    for number in range(2):
        lines = [line for trio in zip(GOOD, BAD, BAD[len(GOOD) :], strict=False) for line in trio] + BAD[16:] + EMPTY
        (tmp_path / "in" / f"{number}.json").write_bytes(b"\n".join(lines) + b"\n")
    stream = ps.read_json(spark, str(tmp_path / "in"), SCHEMA, maxFilesPerTrigger=1)
    flow = ps.join_table(stream, ps.table(str(tmp_path / "table"), key="key"), on="key", memory="256MB")
    places = {name: str(tmp_path / name) for name in ("results", "set_aside")}
    flow.start(checkpoint=str(tmp_path / "ck"), trigger={"availableNow": True}, **places).wait()

    got = Counter(duckdb.sql(f"SELECT id FROM '{tmp_path}/results/*.parquet'").fetchall())
    assert got == Counter({(n,): 2 for n in (1, 2, 3, 9223372036854775807, 6, 7, 8)})
    aside = duckdb.sql(f"SELECT source, raw, reason FROM '{tmp_path}/set_aside/*.parquet'").fetchall()
    texts = [line.decode(errors="replace") for line in BAD]
    want = Counter((f"file:{tmp_path}/in/{n}.json", text) for n in range(2) for text in texts)
    assert Counter((source, raw) for source, raw, _ in aside) == want
    assert all(reason for *_, reason in aside)
    totals = flow.progress()["totals"]
    assert totals["rows_in"] == 2 * len(GOOD)
    assert totals["rows_malformed"] == 2 * len(BAD)
    assert totals["rows_without_key"] == 2


@pytest.mark.spark
@pytest.mark.parametrize(
    ("schema", "options"),
    [("id long, _corrupt_record string", {}), ("long", {}), ("id long", {"mode": "DROPMALFORMED"})],
)
def test_what_read_json_cannot_keep_is_refused(spark: SparkSession, tmp_path: Path, schema: str, options: dict) -> None:
    with pytest.raises(ps.errors.BadOption):
        ps.read_json(spark, str(tmp_path), schema, **options)
