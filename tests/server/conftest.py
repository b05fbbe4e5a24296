"""A shop with two streams, a table and a table that changes, and an engine over it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.server.engine import Engine
from penstock.server.limits import Limits
from penstock.server.pipelines import checked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
trigger = "100 ms"
cores = 2

[streams.orders]
path = "orders/"
format = "parquet"
columns = { order_id = "long", product_id = "long", quantity = "long", ordered_at = "timestamp" }
time = "ordered_at"
key = "product_id"

[streams.shipments]
path = "shipments/"
format = "parquet"
columns = { shipment_id = "long", product_id = "long", weight = "long", shipped_at = "timestamp" }
time = "shipped_at"

[tables.products]
path = "products/"
key = "product_id"
"""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import penstock as ps

    session = ps.session("penstock-tests", cores=2)
    yield session
    session.stop()


class Shop:
    """Files of one test: streams that grow, and what came of them so far, for the judge."""

    def __init__(self, base: Path, seed: int = 1) -> None:
        self.base = base
        self.rng = np.random.default_rng(seed)
        for name in ("orders", "shipments", "products"):
            (base / name).mkdir()
        ids = np.arange(50)
        self.products = pa.table(
            {"product_id": ids, "name": [f"p{i}" for i in ids], "price": self.rng.integers(1, 100, 50)}
        )
        pq.write_table(self.products, base / "products" / "a.parquet", row_group_size=10)
        self.rows: dict[str, list[pa.Table]] = {"orders": [], "shipments": []}
        (base / "pipeline.toml").write_text(PIPELINE)

    def add(self, stream: str, count: int = 40) -> pa.Table:
        """One more file of a stream, with event times that go on."""
        done = sum(part.num_rows for part in self.rows[stream])
        ids = np.arange(done, done + count)
        times = pa.array(1_700_000_000_000_000 + ids * 1_000_000, pa.timestamp("us", "UTC"))
        one, three, when = (("order_id", "quantity", "ordered_at"), ("shipment_id", "weight", "shipped_at"))[
            stream == "shipments"
        ]
        table = pa.table(
            {
                one: ids,
                "product_id": self.rng.integers(0, 60, count),
                three: self.rng.integers(0, 100, count),
                when: times,
            }
        )
        path = self.base / stream / f"{len(self.rows[stream]):05d}.parquet"
        scratch = path.with_name(f".{path.name}")
        pq.write_table(table, scratch)
        os.utime(scratch, (1_700_000_000 + len(self.rows[stream]),) * 2)
        scratch.rename(path)
        self.rows[stream].append(table)
        return table

    def judge(self, sql: str) -> list[dict[str, Any]]:
        """DuckDB's answer over all that was added."""
        tables = {name: pa.concat_tables(parts) for name, parts in self.rows.items() if parts}
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for name, table in {**tables, "products": self.products}.items():
                connection.register(name, table)
            return bag(connection.sql(sql).to_arrow_table().to_pylist())


def bag(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in an order of their own."""
    return sorted(rows, key=lambda row: repr(list(row.values())))


def eventually(found: Callable[[], Any], seconds: float = 90) -> Any:
    """What `found` gives once it gives something; `seconds` are what it takes, and a busy machine has minutes."""
    until = time.monotonic() + max(seconds, 300)
    while time.monotonic() < until:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError(f"it did not come to be: {found()}")


def all_rows(engine: Engine, name: str) -> list[dict[str, Any]]:
    """Every result of a query so far."""
    found, after = [], None
    while True:
        page = engine.results(name, after=after, limit=37)
        found += page.rows.to_pylist()
        after = page.next
        if not page.more:
            return bag(found)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def engines(spark: SparkSession) -> Iterator[Callable[..., Engine]]:
    """Makes engines, and stops those that a test left."""
    made: list[Engine] = []

    def start(shop: Shop, limits: Limits | None = None) -> Engine:
        pipeline, _ = checked(shop.base / "pipeline.toml")
        made.append(Engine(pipeline, spark, limits=limits))
        return made[-1].start()

    yield start
    for engine in made:
        engine.stop()
