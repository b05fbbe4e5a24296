"""A pipeline's file that says something else than when its queries began."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import CheckpointMismatch
from penstock.plan.pipeline.spec import Query, Sink
from tests.server.conftest import eventually
from tests.server.dry import PIPELINE, commit, dry_engine, orders

WIDER = PIPELINE.replace('note = "string"', 'price = "double", note = "string"').replace("cores = 1", "cores = 2")


def test_columns_that_are_added_to_a_stream_concern_nobody_who_was_there(tmp_path: Path) -> None:
    engine = dry_engine(tmp_path)
    few = engine.register("few", "SELECT order_id FROM orders WHERE quantity > 5")
    engine.register("all", "SELECT * FROM orders")
    eventually(lambda: engine.status("all")["state"] == "running")
    commit(engine, "few", orders(0, 10))
    before = engine._groups[few["group"]].plan.identity()
    engine.stop()
    engine = dry_engine(tmp_path, text=WIDER)
    try:
        eventually(lambda: {query["state"] for query in engine.queries()} == {"running"})
        assert engine._groups[few["group"]].plan.identity() == before
        assert engine.results("all").rows.to_pylist() == orders(0, 10)
        groups = {
            name: engine.register(name, text)["group"]
            for name, text in {
                "old_columns": "SELECT quantity FROM orders",
                "new_column": "SELECT order_id FROM orders WHERE price > 2",
                "every_column": "SELECT * FROM orders",
            }.items()
        }
        assert groups["old_columns"] == few["group"] != groups["new_column"] == groups["every_column"]
        assert [column["name"] for column in engine.status("every_column")["columns"]][2] == "price"
        eventually(lambda: engine.status("old_columns")["state"] == "running")
        commit(engine, "few", orders(10, 2))
        assert engine.results("old_columns").rows.to_pylist() == [{"quantity": 0}, {"quantity": 1}]
    finally:
        engine.stop()


def test_who_cannot_go_on_is_told_how_to_begin_anew_and_can(tmp_path: Path) -> None:
    text = "SELECT order_id FROM orders WHERE quantity > 5"
    for changed in ('quantity = "int"', 'amount = "long"'):
        engine = dry_engine(tmp_path)
        first = engine.register("q", text if "quantity" in changed else "SELECT note FROM orders")
        engine.stop()
        engine = dry_engine(tmp_path, text=PIPELINE.replace('quantity = "long"', changed))
        try:
            said = engine.status("q")
            assert said["state"] == "failed"
            assert said["error"]["what"] == "Stream 'orders' has no column quantity (long) any more."
            assert "remove the query and register it again" in said["error"]["do"]
            # At once, also where the keeper has not yet seen that the old one is gone.
            mate = engine.register("mate", "SELECT note FROM orders")
            engine.remove("q")
            again = engine.register("q", text if "quantity" in changed else "SELECT note FROM orders")
            assert first["group"] != again["group"] == mate["group"]
            eventually(lambda engine=engine: engine.status("q")["state"] == "running")
            engine.remove("q")
            engine.remove("mate")
        finally:
            engine.stop()


def test_nobody_comes_to_a_group_that_refused_its_checkpoint(tmp_path: Path) -> None:
    engine = dry_engine(tmp_path)
    try:
        first = engine.register("q", "SELECT order_id FROM orders")["group"]
        group = eventually(lambda: engine._groups.get(first))
        group.error = CheckpointMismatch("It cannot go on from where it was.")
        assert engine.register("other", "SELECT order_id FROM orders")["group"] != first
    finally:
        engine.stop()


def test_options_mean_the_same_in_whatever_order_they_come_back(tmp_path: Path) -> None:
    on = {name: name for name in ("quantity", "order_id", "note")}  # not in the order of the alphabet
    options = {"left": "orders", "right": "orders", "on": on, "within": {"rows": 10}, "memory": "1MB"}
    said = {"both": Query("both", Sink("console"), operator="join_streams", options=options)}
    identities = []
    for _ in range(2):
        engine = dry_engine(tmp_path)
        engine.agree(said)
        group = eventually(lambda engine=engine: engine._groups.get(engine.status("both")["group"]))
        identities.append(group.plan.identity())
        text = engine.register(f"text{len(identities)}", "SELECT note FROM orders")
        assert text["group"] != engine.status("both")["group"]
        engine.stop()
    assert identities[0] == identities[1]


def test_a_table_in_csv_files_that_change_is_the_same_table(tmp_path: Path) -> None:
    text = PIPELINE + '[tables.products]\npath = "products.csv"\nkey = "order_id"\n'
    tables = []
    for rows in ("order_id,name\n1,pear\n", "2,plum\n"):
        with (tmp_path / "products.csv").open("a") as file:
            file.write(rows)
        engine = dry_engine(tmp_path, text=text)
        if not tables:
            engine.register(
                "q", "SELECT name, quantity FROM orders, products WHERE orders.order_id = products.order_id"
            )
        group = eventually(lambda engine=engine: engine._groups.get(engine.status("q")["group"]))
        tables.append((group.plan.identity(), group.plan.table.version, group.plan.table.rows))
        engine.stop()
    (first, was, _), (second, now, count) = tables
    assert first == second
    assert was != now
    assert count == 2
    assert len(list((tmp_path / "pipeline-run" / "tables").glob("products-*"))) == 1
