"""Join a stream of orders with a products table, exactly once, under a hard memory budget.

    ./dev run python examples/join_orders.py

Makes a little data in a temporary directory, joins what has arrived, lets more arrive, and goes on from the checkpoint.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

PRODUCTS = 50_000


def main(folder: Path) -> int:
    rng = np.random.default_rng(1)
    write_products(folder / "products", rng)
    write_orders(folder / "orders", 0, rng)

    # Once: ordered by the hash of the key, rows kept together. The Parquet files would do as well, only slower.
    ps.prepare(folder / "products", folder / "products-prepared", key="product_id")

    spark = ps.session()
    stock = ps.table(folder / "products-prepared", key="product_id")
    # A new start is a new stream with the same checkpoint: it goes on where the last one ended.
    for number in range(2):
        orders = spark.readStream.schema("order_id long, product_id long, quantity int").parquet(str(folder / "orders"))
        flow = ps.join_table(orders, stock, on="product_id", memory="16MB")
        if number == 0:
            print(flow.explain())
        running = flow.start(
            results=str(folder / "enriched"),
            set_aside=str(folder / "set-aside"),
            checkpoint=str(folder / "checkpoint"),
            trigger={"availableNow": True},
        )
        running.wait()
        found = pq.read_table(folder / "enriched")
        print(f"{found.num_rows:,} results after start {number + 1}")
        write_orders(folder / "orders", 1, rng)

    print(found.sort_by("order_id").slice(0, 5).to_pandas().to_string(index=False))
    return found.num_rows


def write_products(place: Path, rng: np.random.Generator) -> None:
    place.mkdir()
    ids = rng.permutation(PRODUCTS)
    price = np.round(rng.gamma(2.0, 40.0, PRODUCTS), 2)
    pq.write_table(pa.table({"product_id": ids, "price": price}), place / "a.parquet", row_group_size=10_000)


def write_orders(place: Path, number: int, rng: np.random.Generator) -> None:
    place.mkdir(exist_ok=True)
    orders = pa.table(
        {
            "order_id": np.arange(number * 1000, (number + 1) * 1000),
            "product_id": rng.integers(0, PRODUCTS, 1000),
            "quantity": rng.integers(1, 9, 1000, dtype=np.int32),
        }
    )
    # A file must appear whole: write it under a hidden name, then rename it.
    pq.write_table(orders, place / f".{number}.parquet")
    (place / f".{number}.parquet").rename(place / f"{number}.parquet")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
