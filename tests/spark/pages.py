"""What the code on pages speaks of: folders of files by the names that the pages use, and a place to run it in."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.kernels.mesh.shedding import REASON
from penstock.spark.sink import Ledger, StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
#: Generated from results, or includes of files that are pages themselves.
_WITHOUT_CODE = {"results", "project"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted(
        page for page in (ROOT / "docs").rglob("*.md") if page.relative_to(ROOT / "docs").parts[0] not in _WITHOUT_CODE
    ),
]
BEGIN = datetime(2024, 5, 1, 12, tzinfo=UTC)
ROWS = 300


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language on a page; those without one are of language ""."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


@contextlib.contextmanager
def standing_in(folder: Path, spark: SparkSession) -> Iterator[None]:
    """Relative paths are below the folder, for Python and for the JVM."""
    jvm: Any = spark._jvm
    conf = spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf)
    plain = jvm.org.apache.hadoop.fs.FileSystem.get(files.getUri(), conf)
    was, was_there = os.getcwd(), plain.getWorkingDirectory()

    def move(here: str, there: Any) -> None:
        os.chdir(here)
        for one in (files, plain):
            one.setWorkingDirectory(there)
        jvm.java.lang.System.setProperty("user.dir", here)

    move(str(folder), jvm.org.apache.hadoop.fs.Path(str(folder)))
    try:
        yield
    finally:
        move(was, was_there)


def end_queries(spark: SparkSession) -> None:
    """Let every query that the code left running do what there is to do, then stop it. Raises what went wrong."""
    for query in spark.streams.active:
        try:
            query.processAllAvailable()
        finally:
            query.stop()


def furnish(folder: Path, page: Path) -> None:
    """Write what pages read. A folder has all columns that any page wants of it."""
    rng = np.random.default_rng(1)
    ids = np.arange(ROWS)
    seconds = [BEGIN + timedelta(seconds=10 * int(n)) for n in ids]
    codes = [f"P{n:03d}" for n in range(2000)]
    product = rng.integers(0, 2000, ROWS)
    orders = pa.table(
        {
            "order_id": ids,
            "product_id": product,
            "quantity": pa.array(np.ones(ROWS, np.int32)),
            "ordered_at": pa.array(seconds, pa.timestamp("us", "UTC")),
            "amount": rng.random(ROWS),
            "code": [codes[n] if n % 7 else f"new {n}" for n in product],
            "customer_id": rng.integers(0, 50, ROWS),
            "status": ["cancelled" if n % 9 == 0 else "paid" for n in ids],
        }
    )
    keys = rng.permutation(2000)
    products = pa.table(
        {"product_id": keys, "price": rng.random(2000) * 200, "code": [codes[n] for n in keys], "product_key": keys + 1}
    )
    products = products.append_column("name", pa.array([f"product {n}" for n in keys]))
    customers = pa.table({"customer_id": np.arange(60), "region": [("north", "south")[n % 2] for n in range(60)]})
    day = [BEGIN.replace(hour=0)] * 2000
    texts = ["Anna Lindqvist", "Bert Ohlsson", "Carla Moreno"]
    write(folder / "orders", orders)
    write(folder / "products", products, row_group_size=500)
    write(folder / "customers", customers)
    write(folder / "today", customers.slice(0, 55))
    _changes(folder, orders, customers)
    times = pa.array(seconds, pa.timestamp("us", "UTC"))
    write(folder / "shipments", pa.table({"order_id": ids, "shipped_at": times, "carrier": ["A"] * ROWS}))
    write(folder / "trades", pa.table({"trade_id": ids, "traded_at": times}))
    until = pa.array([one + timedelta(days=9) for one in day], pa.timestamp("us", "UTC"))
    since = pa.array(day, pa.timestamp("us", "UTC"))
    prices = pa.table({"product_id": keys, "since": since, "until": until, "list_price": products["price"]})
    write(folder / "prices", prices)
    quotes = {"symbol": [f"S{n % 20}" for n in ids], "risk": rng.integers(0, 100, ROWS).astype(float)}
    quotes |= {"per": rng.integers(1, 60, ROWS).astype(float), "at": times, "quoted_at": times}
    write(folder / "quotes", pa.table(quotes))
    write(folder / "impressions", pa.table({"ad": ids % 30, "shown_at": times, "page": ["front"] * ROWS}))
    write(folder / "clicks", pa.table({"ad": ids % 40, "clicked_at": times, "person": ["somebody"] * ROWS}))
    write(folder / "zones", pa.table({"first": [0, 100], "last": [99, 199], "zone": ["a", "b"]}))
    write(folder / "visits", pa.table({"visit_id": ids, "ip": ids % 250}))
    write(folder / "people", pa.table({"person_id": [1, 2, 3], "name": texts}))
    write(folder / "aliases", pa.table({"alias": ["anna lindqvist", "Bert Olsson"], "account": [7, 8]}))
    measures = {name: rng.random(9) for name in ("price", "megapixels", "weight")}
    write(folder / "cameras", pa.table({"id": ids[:9], **measures, "at": times[:9]}))
    write(folder / "bought", pa.table({"order_id": ids, "customer": ids % 9, "amount": orders["amount"], "at": times}))
    write(folder / "known", pa.table({"id": ids[:9], "age": rng.random(9), "at": times[:9]}))
    _standing(folder, rng)
    if page.name == "catch_up.md":
        _archive(folder / "archive", orders.select(["order_id", "product_id", "quantity"]))


def write(place: Path, rows: pa.Table, **options: Any) -> None:
    place.mkdir(parents=True)
    pq.write_table(rows, place / "a.parquet", **options)


def _changes(folder: Path, orders: pa.Table, customers: pa.Table) -> None:
    added = orders.slice(0, 5).set_column(0, "order_id", pa.array(range(900, 905)))
    write(folder / "orders-changes", added.append_column("_change_type", pa.array(["insert"] * 5)))
    moved = customers.slice(3, 1).set_column(1, "region", pa.array(["west"]))
    write(folder / "customers-changes", moved.append_column("_change_type", pa.array(["update"])))


def _standing(folder: Path, rng: np.random.Generator) -> None:
    product, amount = rng.integers(0, 20, ROWS), rng.random(ROWS) * 100
    write(folder / "supply", pa.table({"product": product, "offered": amount, "supplier": ["s"] * ROWS}))
    write(folder / "demand", pa.table({"product": product, "wanted": amount, "customer": ["c"] * ROWS}))
    low = rng.random(50) * 80
    names = ("left_offered_from", "left_offered_to", "right_wanted_from", "right_wanted_to")
    ranges = dict(zip(names, (low, low + 20, low, low + 20), strict=True))
    write(folder / "alerts", pa.table({"query": np.arange(50), **ranges}))


def _archive(place: Path, rows: pa.Table) -> None:
    """What a flow that had to shed has left."""
    ledger = Ledger(place, "a-checkpoint")
    ledger.claim()
    whole = rows.append_column(REASON, pa.array(["overload"] * rows.num_rows))
    staged = StagedFile(place, 0, whole.schema)
    for batch in whole.to_batches():
        staged.add(batch)
    said = staged.close("shed").to_pylist()[0]
    ledger.commit(0, [{"name": said["file"], "rows": said["rows"], "bytes": said["bytes"]}])
