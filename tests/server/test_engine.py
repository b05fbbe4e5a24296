"""The engine: queries as text are grouped, answered as DuckDB would, paused, removed, and fail alone."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import BadOption
from penstock.server.engine import Engine
from tests.server.conftest import PIPELINE, Shop, all_rows, bag, eventually

pytestmark = pytest.mark.spark

QUERIES = {
    "cheap": (
        "SELECT order_id, price FROM orders, products WHERE orders.product_id = products.product_id AND price < 50",
        None,
    ),
    "dear": (
        "SELECT order_id, price * quantity AS total FROM orders, products "
        "WHERE orders.product_id = products.product_id AND price >= 50",
        None,
    ),
    "near": (
        "SELECT order_id, shipment_id FROM orders, shipments WHERE orders.product_id = shipments.product_id "
        "WINDOW 30 SECONDS",
        "SELECT order_id, shipment_id FROM orders, shipments WHERE orders.product_id = shipments.product_id "
        "AND abs(epoch(ordered_at) - epoch(shipped_at)) <= 30",
    ),
    "nearer": (
        "SELECT order_id, shipment_id FROM orders, shipments WHERE orders.product_id = shipments.product_id "
        "WINDOW 10 SECONDS",
        "SELECT order_id, shipment_id FROM orders, shipments WHERE orders.product_id = shipments.product_id "
        "AND abs(epoch(ordered_at) - epoch(shipped_at)) <= 10",
    ),
    "some": ("SELECT order_id FROM orders WHERE quantity > 90", None),
    **{
        f"alert{n}": (
            "SELECT order_id, shipment_id FROM orders, shipments WHERE orders.product_id = shipments.product_id "
            f"AND quantity BETWEEN {n * 20} AND {n * 20 + 30} AND weight BETWEEN 10 AND {40 + n} WINDOW 1 MINUTE",
            "SELECT order_id, shipment_id FROM orders, shipments WHERE orders.product_id = shipments.product_id "
            f"AND quantity BETWEEN {n * 20} AND {n * 20 + 30} AND weight BETWEEN 10 AND {40 + n} "
            "AND abs(epoch(ordered_at) - epoch(shipped_at)) <= 60",
        )
        for n in range(3)
    },
}


def answered(engine: Engine, shop: Shop, names: list[str]) -> None:
    for name in names:
        text, sql = QUERIES[name]
        expected = shop.judge(sql or text)
        eventually(lambda name=name, expected=expected: all_rows(engine, name) == expected, 180)


def test_queries_are_grouped_answered_and_fail_alone(shop: Shop, engines: Callable[..., Engine]) -> None:
    engine = engines(shop)
    for name in ("cheap", "near", "alert0"):
        engine.register(name, QUERIES[name][0])
    engine.register("least", "SELECT MIN(quantity) FROM orders WHERE product_id BETWEEN 10 AND 20")
    shop.add("orders")
    shop.add("shipments")
    answered(engine, shop, ["cheap", "near", "alert0"])
    # Those that come later share what runs.
    before = {name: engine.status(name)["group"] for name in ("cheap", "near", "alert0", "least")}
    for name in ("dear", "nearer", "alert1", "alert2"):
        engine.register(name, QUERIES[name][0])
    groups = {query["name"]: query["group"] for query in engine.queries()}
    assert groups["dear"] == before["cheap"]
    assert groups["nearer"] == before["near"]
    assert groups["alert1"] == groups["alert2"] == before["alert0"]
    assert len(set(groups.values())) == 4
    explained = engine.explain(QUERIES["dear"][0])
    assert explained["shares_with"] == ["cheap", "dear"]
    assert "one scan of the table" in explained["explanation"]
    eventually(lambda: {group["state"] for group in engine.progress()["groups"]} == {"running"}, 60)
    # An aggregate that comes later begins with the answer of the moment.
    least = "SELECT MIN(quantity) AS least FROM orders WHERE product_id BETWEEN 10 AND 20"
    eventually(lambda: engine.results("least").rows.num_rows > 0)
    engine.register("later", least)
    [first] = engine.results("later").rows.to_pylist()
    assert first["least"] == newest_minimum(shop)
    assert engine.status("later")["group"] == groups["least"]
    # The table is gone: its join fails, by name, and nothing else does.
    (shop.base / "products" / "a.parquet").unlink()
    shop.add("orders")
    shop.add("shipments")
    eventually(lambda: engine.status("cheap")["state"] == "failed", 120)
    assert engine.status("cheap")["error"]["kind"] in ("TableChanged", "UnreadableTable")
    answered(engine, shop, ["near", "alert0"])
    assert {engine.status(name)["state"] for name in ("near", "alert0", "least")} == {"running"}
    eventually(lambda: engine.results("later").rows.to_pylist()[-1]["least"] == newest_minimum(shop), 60)
    stood = {row["order_id"] for row in all_rows(engine, "nearer")}
    assert stood <= {row["order_id"] for row in shop.judge(QUERIES["nearer"][1] or "")}


def newest_minimum(shop: Shop) -> int | None:
    """The answer over the newest row of each product."""
    newest: dict[int, int] = {}
    for part in shop.rows["orders"]:
        newest |= {row["product_id"]: row["quantity"] for row in part.to_pylist()}
    return min((quantity for product, quantity in newest.items() if 10 <= product <= 20), default=None)


@pytest.mark.slow
def test_a_view_is_read_fresh_and_survives(shop: Shop, engines: Callable[..., Engine]) -> None:
    stock = pa.table({"product_id": [1, 2, 3], "shelf": ["a", "a", "b"], "pieces": [5, 6, 7]})
    pq.write_table(stock, shop.base / "stock.parquet")
    (shop.base / "stock-changes").mkdir()
    said = '\n[tables.stock]\npath = "stock.parquet"\nkey = "product_id"\nchanges = "stock-changes/"\n'
    (shop.base / "pipeline.toml").write_text(PIPELINE + said)
    text = "CREATE VIEW shelves AS SELECT shelf, SUM(pieces) AS pieces FROM stock GROUP BY shelf ANSWER WITHIN 1 MINUTE"
    engine = engines(shop)
    engine.register("shelves", text)
    eventually(lambda: engine.status("shelves")["state"] == "running", 120)
    assert bag(engine.read_view("shelves")["rows"]) == [{"shelf": "a", "pieces": 11}, {"shelf": "b", "pieces": 7}]
    change = pa.table({"product_id": [2], "shelf": ["b"], "pieces": [1], "_change_type": ["update"]})
    pq.write_table(change, shop.base / ".1.parquet")
    (shop.base / ".1.parquet").rename(shop.base / "stock-changes" / "1.parquet")
    answer = engine.read_view("shelves")
    assert answer["fresh"]
    assert bag(answer["rows"]) == [{"shelf": "a", "pieces": 5}, {"shelf": "b", "pieces": 8}]
    assert engine.progress()["views"][0]["reads_in_time"] == 2
    with pytest.raises(BadOption, match="is a view"):
        engine.results("shelves")
    engine.stop()
    engine = engines(shop)
    eventually(lambda: engine.status("shelves")["state"] == "running", 120)
    assert bag(engine.read_view("shelves")["rows"]) == bag(answer["rows"])
    engine.remove("shelves")
    eventually(lambda: not list((engine.folder / "views").iterdir()), 30)
