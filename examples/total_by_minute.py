"""Go on with the results of a join as with any streaming DataFrame, into one of Spark's own sinks.

./dev run python examples/total_by_minute.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

PRODUCTS, ORDERS = 20_000, 5_000


def main(folder: Path) -> list[Any]:
    write_data(folder)
    spark = ps.session()
    orders = spark.readStream.schema("product_id long, quantity int, at timestamp").parquet(str(folder / "orders"))
    stock = ps.table(folder / "products", key="product_id")
    flow = ps.join_table(orders, stock, on="product_id", memory="16MB")

    amounts = flow.results.selectExpr("date_trunc('minute', at) AS minute", "quantity * price AS amount")
    query = (
        amounts.writeStream.format("parquet")
        .option("path", str(folder / "amounts"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    totals = spark.read.parquet(str(folder / "amounts")).groupBy("minute").sum("amount").orderBy("minute").collect()
    for minute, amount in totals:
        print(f"{minute:%H:%M}  {amount:12,.2f}")
    return totals


def write_data(folder: Path) -> None:
    rng = np.random.default_rng(1)
    for name in ("products", "orders"):
        (folder / name).mkdir()
    price = np.round(rng.gamma(2.0, 40.0, PRODUCTS), 2)
    products = pa.table({"product_id": rng.permutation(PRODUCTS), "price": price})
    pq.write_table(products, folder / "products" / "a.parquet", row_group_size=5_000)
    second = np.datetime64("2024-05-01T12:00:00", "us") + rng.integers(0, 300, ORDERS).astype("timedelta64[s]")
    orders = pa.table(
        {
            "product_id": rng.integers(0, PRODUCTS, ORDERS),
            "quantity": rng.integers(1, 9, ORDERS, dtype=np.int32),
            "at": pa.array(second, pa.timestamp("us", tz="UTC")),
        }
    )
    pq.write_table(orders, folder / "orders" / "a.parquet")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
