"""Which customers are new, which are known already, which are gone, by which key, and what did they pay at the time?

    ./dev run python examples/what_the_table_lacks.py

Five questions about one stream and its tables, each one call: new rows (anti), duplicates (semi), prices as they were
when the order was placed (a table with validity columns), surrogate keys with new ones for new customers, and customers
that today's snapshot has no more.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


def main(folder: Path) -> dict[str, pa.Table]:
    write_tables(folder)
    spark = ps.session()
    orders = spark.readStream.schema("order_id long, customer string, product string, ordered_at timestamp").parquet(
        str(folder / "orders")
    )
    customers = ps.table(folder / "customers", key="customer")
    prices = ps.table(folder / "prices", key="product")

    new = ps.join_table(orders, customers, on="customer", how="anti", memory="32MB")
    known = ps.join_table(orders, customers, on="customer", how="semi", memory="32MB")
    at_the_time = ps.as_of("product", time="ordered_at", since="since", until="until")
    priced = ps.join_table(orders, prices, on=at_the_time, how="left", memory="32MB")

    keyed = ps.surrogate_keys(orders, customers, on="customer", surrogate="customer_key", memory="32MB")

    found = {}
    flows = {"new customers": new, "known customers": known, "priced orders": priced, "orders with keys": keyed}
    for name, flow in flows.items():
        beside = {"assigned": str(folder / "new keys")} if flow is keyed else {}
        running = flow.start(
            results=str(folder / name),
            set_aside=str(folder / f"{name} set aside"),
            checkpoint=str(folder / f"{name} checkpoint"),
            trigger={"availableNow": True},
            **beside,
        )
        running.wait()
        found[name] = pq.read_table(folder / name).sort_by("order_id")
    found["new keys"] = pq.read_table(folder / "new keys").sort_by("customer_key")

    today = spark.read.parquet(str(folder / "orders")).select("customer")
    found["customers without an order"] = ps.deleted_rows(today, customers, on="customer").toArrow()
    for name, rows in found.items():
        print(f"\n{name}:\n{rows.to_pandas().to_string(index=False)}")
    return found


def write_tables(folder: Path) -> None:
    def write(name: str, columns: dict[str, Any]) -> None:
        (folder / name).mkdir()
        pq.write_table(pa.table(columns), folder / name / "a.parquet")

    days = [JANUARY + timedelta(days=n) for n in (3, 14, 15, 40)]
    write(
        "orders",
        {
            "order_id": [1, 2, 3, 4],
            "customer": ["Ada", "Grace", "Ada", "Edith"],
            "product": ["lamp", "lamp", "lamp", "chair"],
            "ordered_at": pa.array(days, TIME),
        },
    )
    write("customers", {"customer": ["Ada", "Barbara"], "customer_key": [1, 2], "city": ["London", "Boston"]})
    # The lamp became dearer on the fifteenth day; NULL means for ever.
    change = JANUARY + timedelta(days=15)
    write(
        "prices",
        {
            "product": ["lamp", "lamp"],
            "price": [40.0, 45.0],
            "since": pa.array([None, change], TIME),
            "until": pa.array([change, None], TIME),
        },
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
