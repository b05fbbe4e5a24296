"""The examples run as they stand, and links on pages lead somewhere; the code on pages: `tests/spark/test_pages.py`."""

from __future__ import annotations

import itertools
import re
import runpy
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_on_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} -> {target}"


@pytest.mark.spark
def test_join_orders(tmp_path, capsys):
    assert runpy.run_path(str(ROOT / "examples" / "join_orders.py"))["main"](tmp_path) == 2000
    said = capsys.readouterr().out
    assert "1,000 results after start 1" in said
    assert "2,000 results after start 2" in said


@pytest.mark.spark
def test_total_by_minute(tmp_path):
    totals = runpy.run_path(str(ROOT / "examples" / "total_by_minute.py"))["main"](tmp_path)
    products, orders = (pq.read_table(tmp_path / name) for name in ("products", "orders"))
    joined = orders.join(products, "product_id", join_type="inner")
    expected = sum(q * p for q, p in zip(joined["quantity"].to_pylist(), joined["price"].to_pylist(), strict=True))
    assert len(totals) == 5
    assert sum(amount for _, amount in totals) == pytest.approx(expected)


@pytest.mark.spark
def test_what_the_table_lacks(tmp_path):
    found = runpy.run_path(str(ROOT / "examples" / "what_the_table_lacks.py"))["main"](tmp_path)
    assert found["new customers"]["customer"].to_pylist() == ["Grace", "Edith"]
    assert found["known customers"]["order_id"].to_pylist() == [1, 3]
    assert found["priced orders"]["price"].to_pylist() == [40.0, 40.0, 45.0, None]
    given = dict(zip(*found["new keys"].select(["customer", "customer_key"]).to_pydict().values(), strict=True))
    assert given.keys() == {"Grace", "Edith"}
    assert min(given.values()) > 2
    keys = [{"Ada": 1, **given}[name] for name in ("Ada", "Grace", "Ada", "Edith")]
    assert found["orders with keys"]["customer_key"].to_pylist() == keys
    assert found["customers without an order"]["customer"].to_pylist() == ["Barbara"]


@pytest.mark.spark
def test_keep_a_view(tmp_path, capsys):
    rows = runpy.run_path(str(ROOT / "examples" / "keep_a_view.py"))["main"](tmp_path)
    assert rows == [{"region": "south", "orders": 4, "total": 65}]
    assert "without {'orders': 1, 'customers': 1}" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.filterwarnings("ignore:Rows on channel")
def test_watch_minima(tmp_path):
    example = runpy.run_path(str(ROOT / "examples" / "watch_minima.py"))
    told = example["main"](tmp_path)
    quotes = sorted(pq.read_table(tmp_path / "quotes").to_pylist(), key=lambda quote: quote["at"])
    for name, (low, high) in example["PEOPLE"].items():
        newest, answers = {}, [None]
        for quote in quotes:
            newest[quote["symbol"]] = quote
            answers.append(min((q["per"] for q in newest.values() if low <= q["risk"] <= high), default=None))
        assert told[name] == [now for was, now in itertools.pairwise(answers) if was != now]


@pytest.mark.spark
@pytest.mark.slow
def test_supply_meets_demand(tmp_path, capsys):
    assert runpy.run_path(str(ROOT / "examples" / "supply_meets_demand.py"))["main"](tmp_path) > 1000
    assert "merchants after start 2" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.spark
def test_day_and_night(tmp_path):
    found = runpy.run_path(str(ROOT / "examples" / "day_and_night.py"))["main"](tmp_path)
    asked, answered = (pq.read_table(tmp_path / name) for name in ("asked", "answered"))
    pairs = asked.join(answered, "id", join_type="inner")
    apart = pairs["answered_at"].cast(pa.int64()).to_numpy() - pairs["asked_at"].cast(pa.int64()).to_numpy()
    assert found["day"] + found["night"] == int((abs(apart) <= 7_200_000_000).sum())
    assert min(found.values()) > 0


@pytest.mark.slow
@pytest.mark.spark
def test_many_dashboards(tmp_path):
    found = runpy.run_path(str(ROOT / "examples" / "many_dashboards.py"))["main"](tmp_path)
    shown, clicked = (pq.read_table(tmp_path / name) for name in ("impressions", "clicks"))
    pairs = shown.join(clicked, "ad", join_type="inner")
    at, then = (pairs[name].cast(pa.int64()).to_numpy() for name in ("shown_at", "clicked_at"))
    assert found["at_once"] == int((abs(at - then) <= 10_000_000).sum())
    assert found["ever"] == int((abs(at - then) <= 600_000_000).sum())
    second = 1_700_000_000_000_000 + 1_800_000_000
    assert found["added"] == int(((abs(at - then) <= 300_000_000) & (at >= second) & (then >= second)).sum())
    assert found["soon"] == int(((abs(at - then) <= 60_000_000) & (at < second) & (then < second)).sum())


@pytest.mark.spark
@pytest.mark.slow
def test_queries_as_text(tmp_path, capsys):
    found = runpy.run_path(str(ROOT / "examples" / "queries_as_text.py"))["main"](tmp_path)
    said = capsys.readouterr().out
    assert "shares   one join with all, dry; windows of 30 s, 1 min, 10 min" in said
    assert "shares   one table and its messages with coldest_low" in said
    assert all(found.values())
    degrees, percent = (pq.read_table(tmp_path / name) for name in ("degrees", "percent"))
    with duckdb.connect() as connection:
        for name, rows in (("t", degrees), ("h", percent)):
            connection.register(name, rows)
        dry = "SELECT COUNT(*) FROM t, h WHERE t.place = h.place AND percent < 20 AND "
        near = "abs(epoch_us(t.at) - epoch_us(h.at)) <= 600000000".replace(".at", '."at"')
        assert connection.sql(dry + near).fetchall() == [(found["dry"],)]
