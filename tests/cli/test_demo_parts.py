"""The parts of the demonstration that need no Spark: its data, its judge, its display and its plot."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from penstock.cli.demo import data, display, meter, plot, verify
from penstock.errors import PenstockError


@pytest.fixture
def place(tmp_path: Path) -> Path:
    assert list(data.write_products(tmp_path / "products", 3000, seed=1)) == [3000]
    return tmp_path


def arrivals(place: Path, **options: float) -> data.Arrivals:
    return data.Arrivals(place / "orders", 1000, 3000, seed=1, **({"files": 4, "pause": 0.01} | options))


def deliver(made: data.Arrivals) -> None:
    made.first()
    made.start()
    made._thread.join(10)
    assert made.complete


def expected(place: Path) -> pa.Table:
    products = pq.read_table(place / "products")
    return pq.read_table(place / "orders").join(products, "product_id", join_type="inner")


def judge(place: Path, rows: pa.Table) -> verify.Verdict:
    (place / "results").mkdir()
    pq.write_table(rows, place / "results" / "a.parquet")
    judge = verify.Judge(place / "orders", place / "products", place / "results", place / "scratch")
    try:
        return judge.compare()
    finally:
        judge.close()


def test_orders_arrive_whole_and_in_number(place):
    made = arrivals(place)
    deliver(made)
    files = sorted((place / "orders").iterdir())
    assert [file.name[0] for file in files] == ["o"] * 4
    orders = pq.read_table(place / "orders")
    assert sorted(orders["order_id"].to_pylist()) == list(range(1000))
    assert orders["product_id"].null_count > 0
    assert made.log[-1][1] == 1000


def test_products_have_every_id_once(place):
    assert sorted(pq.read_table(place / "products")["product_id"].to_pylist()) == list(range(3000))


def test_a_delivery_that_fails_is_told(place, monkeypatch):
    made = arrivals(place)
    monkeypatch.setattr(made, "_one", lambda: 1 / 0)
    made.start()
    made._thread.join(10)
    with pytest.raises(ZeroDivisionError):
        _ = made.complete


def test_judge_accepts_the_join_in_any_order(place):
    deliver(arrivals(place))
    rows = expected(place).sort_by([("customer_id", "descending")])
    verdict = judge(place, rows)
    assert verdict.good
    assert verdict.expected == rows.num_rows > 800


def test_judge_sees_a_missing_row(place):
    deliver(arrivals(place))
    verdict = judge(place, expected(place).slice(1))
    assert (verdict.good, verdict.missing, verdict.unexpected) == (False, 1, 0)


def test_judge_sees_a_row_that_is_there_twice(place):
    deliver(arrivals(place))
    rows = expected(place)
    verdict = judge(place, pa.concat_tables([rows, rows.slice(5, 1)]))
    assert (verdict.good, verdict.missing, verdict.unexpected) == (False, 0, 1)


def test_judge_sees_one_row_twice_in_place_of_another(place):
    deliver(arrivals(place))
    rows = expected(place)
    verdict = judge(place, pa.concat_tables([rows.slice(1), rows.slice(5, 1)]))
    assert (verdict.good, verdict.missing, verdict.unexpected) == (False, 1, 1)
    assert verdict.found == verdict.expected


def test_missing_duckdb_is_said_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(PenstockError, match="duckdb") as fault:
        verify.load()
    assert "penstock[demo]" in fault.value.do


class PlayedFlow:
    """A flow that has had some micro-batches."""

    def history(self):
        return [
            {
                "batch": n,
                "time": f"2024-05-01T12:00:{n:02d}.000Z",
                "seconds": 0.9,
                "rows_in": 250 if n else 10,
                "rows_out": 240,
                "rows_waiting": 3 - n,
                "pages_read": 8,
                "memory": (n + 1) << 20,
                "step_seconds": 0.5,
            }
            for n in range(4)
        ]


def measured() -> meter.Meter:
    found = meter.Meter(PlayedFlow())
    start = found.batches()[0].ended
    found.samples = [meter.Sample(start + n, 4, (100 + n) << 20) for n in range(3)]
    return found


def test_meter_reads_the_history():
    batches = measured().batches()
    assert [batch.rate for batch in batches[1:]] == [pytest.approx(250 / 0.9)] * 3
    assert measured().growth == 2 << 20
    assert display.cycle_seconds(batches, 16) == 1.0


@pytest.mark.parametrize("terminal", [True, False])
def test_display_shows_rate_rows_memory_and_workers(place, monkeypatch, terminal):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=110, highlight=False)
    monkeypatch.setattr(display, "console", console)
    shown = display.Display(measured(), arrivals(place), 64 << 20, 200 << 20, 16)
    with shown:
        shown.update()
        shown.update()
    said = out.getvalue()
    words = ["rows/s", "of 1,000", "4 MB", "64 MB", "waiting" if not terminal else "wait for the scan"]
    words += ["200 MB", "Python workers", "cycle over 16 pages"] if terminal else ["batch   3"]
    for word in words:
        assert word in said
    if not terminal:
        assert said.count("batch   3") == 1


def test_sparkline_and_bar():
    assert display.sparkline([1.0, 4.0, 8.0], 4).plain == "▂▅█ "
    assert len(display.bar(1, 0, "red").plain) == len(display.bar(5, 10, "red").plain)


def test_plot_is_a_picture(place):
    made = arrivals(place)
    deliver(made)
    plot.draw(place / "plot.png", measured(), made, 64 << 20, 200 << 20, "test")
    assert (place / "plot.png").read_bytes().startswith(b"\x89PNG")
