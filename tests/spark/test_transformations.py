"""Surrogate keys and deleted rows, through Spark, against DuckDB."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import penstock as ps
from penstock.errors import BadOption, KeyTypeMismatch, PenstockError, PlanError
from penstock.testing import assert_same_rows
from tests.spark.conftest import FINITE, Desk

pytestmark = pytest.mark.spark


def test_surrogate_keys_are_those_of_the_table_or_new_and_stay(desk: Desk):
    rng = np.random.default_rng(5)
    codes = np.array([f"c{n}" for n in range(3_000)])
    rows = pa.table({"code": codes[:2_000], "number": rng.permutation(2_000) + 1, "label": codes[:2_000]})
    stream = pa.table({"item": np.arange(9_000), "code": pa.array(codes[rng.integers(0, 3_000, 9_000)])})
    table = desk.table(rows, key="code", page=300)
    places = {name: str(desk.folder / name) for name in ("out", "new", "aside", "ck")}
    frame = desk.stream(stream, files=3)

    def run() -> None:
        flow = ps.surrogate_keys(frame, table, on="code", surrogate="number", memory="32MB", slots=3)
        assert "'number' from 2,001 on" in flow.explain()
        flow.start(
            results=places["out"], assigned=places["new"], set_aside=places["aside"], checkpoint=places["ck"],
            trigger=FINITE,
        ).wait()  # fmt: skip

    run()
    # Once more, with rows that came meanwhile: keys are what they were.
    more = stream.set_column(0, "item", pa.array(np.arange(9_000) + 9_000))
    stream = pa.concat_tables([stream, more])
    desk.stream(more, files=2, name="more")
    for number, file in enumerate(sorted((desk.folder / "more").glob("*.parquet"))):
        file.rename(desk.folder / "stream" / f"x{number}.parquet")
    run()
    out, new = (ds.dataset(places[name]).to_table() for name in ("out", "new"))
    assert out.num_rows == stream.num_rows
    with duckdb.connect() as judge:
        judge.sql("CREATE VIEW given AS SELECT code, number FROM rows UNION ALL SELECT code, number FROM new")
        counts = judge.sql("SELECT count(DISTINCT code), count(DISTINCT number), count(*) FROM given").fetchall()
        want = judge.sql("SELECT item, code, number FROM stream JOIN given USING (code)").to_arrow_table()
    keys = len({*rows["code"].to_pylist(), *stream["code"].to_pylist()})
    assert counts == [(keys, keys, keys)]
    assert min(new["number"].to_pylist()) > 2_000
    found = out.select(["item", "code", "number"])
    assert_same_rows(found, want.cast(found.schema))


def test_deleted_rows_are_those_that_a_snapshot_lacks(desk: Desk):
    rng = np.random.default_rng(6)
    keys = pa.array([None if n % 50 == 0 else float("nan") if n % 51 == 0 else n / 2 for n in range(900)], pa.float64())
    rows = pa.table({"k": keys, "label": [f"l{n}" for n in range(900)]})
    theirs = pa.table({"id": pa.array([*rng.integers(0, 450, 800).astype(float), float("nan"), None], pa.float64())})
    snapshot = desk.spark.createDataFrame(theirs.rename_columns(["the.id"]))
    gone = ps.deleted_rows(snapshot, desk.table(rows, key="k", page=100), on="the.id").toArrow()
    with duckdb.connect() as judge:
        want = judge.sql(
            "SELECT * FROM rows WHERE isnan(k) OR NOT EXISTS (SELECT 1 FROM theirs WHERE id = k AND NOT isnan(id))"
        ).to_arrow_table()
    assert 0 < want.num_rows < 900
    assert_same_rows(gone, want.cast(gone.schema))


ALIKE = """
    WITH pieces AS (
        SELECT text, '  ' || lower(text) || ' ' AS padded,
            list_distinct(list_transform(range(1, strlen(text) + 2), lambda i: substr(padded, i, 3))) AS p
        FROM (SELECT name AS text FROM stream UNION SELECT alias FROM rows)
    )
    SELECT stream.*, rows.* FROM stream, rows, pieces a, pieces b
    WHERE a.text = name AND b.text = alias
    AND len(list_intersect(a.p, b.p)) >= 0.5 * len(list_distinct(list_concat(a.p, b.p)))
"""


def test_texts_that_are_alike(desk: Desk):
    rng = np.random.default_rng(7)
    syllables = np.array(["ma", "ri", "jo", "an", "pet", "er", "lou", "is", "hel", "ga"])
    names = ["".join(syllables[rng.integers(0, 10, 4)]) for _ in range(150)]
    rows = pa.table({"alias": [name.upper() for name in names], "person": np.arange(150)})
    typed = [name[:at] + name[at + 1 :] for name, at in zip(names, rng.integers(0, 6, 150), strict=True)]
    stream = pa.table({"id": np.arange(150), "name": typed})
    table = desk.table(rows, key="alias", page=60)
    flow = ps.join_table(
        desk.stream(stream, files=2), table, on=ps.similar("name", at_least=0.5, candidates=150), memory="64MB"
    )
    flow.start(
        results=str(desk.folder / "out"), set_aside=str(desk.folder / "aside"), checkpoint=str(desk.folder / "ck"),
        trigger=FINITE,
    ).wait()  # fmt: skip
    out = ds.dataset(desk.folder / "out").to_table()
    with duckdb.connect() as judge:
        want = judge.sql(ALIKE).to_arrow_table()
    assert 50 < want.num_rows < 2_000
    assert_same_rows(out, want.select(out.schema.names).cast(out.schema))


def test_bad_input_is_said_before_anything_runs(desk: Desk):
    frame = desk.stream(pa.table({"code": ["a"], "n": [1]}))
    table = desk.table(pa.table({"code": ["a"], "number": [1], "label": ["x"]}), key="code")

    def fails(kind: type[PenstockError], match: str, **options: object) -> None:
        with pytest.raises(kind, match=match):
            ps.surrogate_keys(frame, table, **{"on": "code", "surrogate": "number", "memory": "32MB", **options})

    fails(PenstockError, "'number'", surrogate="numbr")
    fails(PlanError, "of type string", surrogate="label")
    fails(PlanError, "its key", surrogate="code")
    with pytest.raises(BadOption, match="one by one"):
        _ = ps.surrogate_keys(frame, table, on="code", surrogate="number", memory="32MB").results
    with pytest.raises(PlanError, match="is a stream"):
        ps.deleted_rows(frame, table, on="code")
    with pytest.raises(KeyTypeMismatch):
        ps.deleted_rows(desk.spark.createDataFrame([(1,)], "code long"), table, on="code")
