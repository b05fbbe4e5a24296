"""The engine: queries as text are grouped, answered as DuckDB would, paused, removed, and fail alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.server.engine import Engine
from tests.server.conftest import Shop, all_rows, eventually

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
        eventually(lambda name=name, expected=expected: all_rows(engine, name) == expected)


def test_queries_are_grouped_and_answered_as_the_judge_would(shop: Shop, engines: Callable[..., Engine]) -> None:
    engine = engines(shop)
    for name in ("cheap", "near", "alert0"):
        engine.register(name, QUERIES[name][0])
    shop.add("orders"), shop.add("shipments")
    answered(engine, shop, ["cheap", "near", "alert0"])
    # Those that come later share what runs; from here on they are as good as the first.
    before = {name: engine.status(name)["group"] for name in ("cheap", "near", "alert0")}
    for name in ("dear", "nearer", "alert1", "alert2", "some"):
        engine.register(name, QUERIES[name][0])
    groups = {query["name"]: query["group"] for query in engine.queries()}
    assert groups["dear"] == before["cheap"]
    assert groups["nearer"] == before["near"]
    assert groups["alert1"] == groups["alert2"] == before["alert0"]
    assert len(set(groups.values())) == 4
    eventually(lambda: engine.status("some")["state"] == "running")
    explained = engine.explain(QUERIES["dear"][0])
    assert explained["shares_with"] == ["cheap", "dear"]
    assert "one scan of the table" in explained["explanation"]
    progress = engine.progress()
    assert {group["state"] for group in progress["groups"]} == {"running"}
    assert progress["queries"]["running"] == len(groups)
