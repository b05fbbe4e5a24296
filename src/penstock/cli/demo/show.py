"""The demonstration from beginning to end, saying at every moment what it does."""

from __future__ import annotations

import shutil
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE, SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table as Grid

import penstock as ps
from penstock.cli.demo.data import ORDERS, Arrivals, write_products
from penstock.cli.demo.display import Display, cycle_seconds
from penstock.cli.demo.meter import Meter
from penstock.cli.demo.plot import draw
from penstock.cli.demo.verify import Judge, Verdict
from penstock.cli.say import console, step
from penstock.cli.tables import size_of
from penstock.plan.units import format_size, parse_size
from penstock.spark.gateway import log_file, shut_down

if TYPE_CHECKING:
    from penstock.cli.demo import Options

#: Files that one micro-batch takes at the most: one that finds many waiting must not take them all.
_FILES_A_BATCH = 4


def show(options: Options, scratch: Path, began: float) -> bool:
    """Run it all; whether every result row was right."""
    place = _place(options.keep, scratch)
    budget = parse_size(options.memory)
    with step(f"writing a products table of {options.rows:,} rows") as this:
        for _ in write_products(place / "products", options.rows, options.seed):
            pass
        size = size_of(place / "products")
        this.done = (
            f"products table: {options.rows:,} rows, 12 columns, {format_size(size)} of Parquet, "
            f"{size / budget:.1f} times the budget"
        )
    where = place / "products"
    if options.prepared:
        with step("preparing it: ordered by key hash, the rows kept together") as this:
            where = place / "products-prepared"
            made = ps.prepare(place / "products", where, key="product_id")
            this.done = f"prepared layout: {len(made.pages):,} pages, {format_size(size_of(where))}"

    files = min(max(options.orders // 10_000, 8), 40)
    arrivals = Arrivals(place / "orders", options.orders, options.rows, options.seed, files)
    with _spark(scratch) as spark:
        flow = _flow(spark, arrivals, where, options.memory)
        console.print(escape(flow.explain()), style="dim", soft_wrap=True)
        meter = _live(flow, arrivals, place, budget, size, where)
    verdict = _verify(place, scratch)
    _summarise(meter, arrivals, verdict, budget, size, where)
    picture = (options.keep or Path()) / "penstock-demo.png"
    with step("drawing the plot") as this:
        draw(picture, meter, arrivals, budget, size, "prepared layout" if options.prepared else "plain Parquet")
        this.done = f"plot of rate and memory: [bold]{escape(str(picture))}[/]"
    if options.keep is not None:
        console.print(f"  data and results are kept in {escape(str(options.keep))}")
    if verdict.good:
        console.print(f"[bold green]verified[/]: every row is there, once. [dim]({time.monotonic() - began:.0f} s)[/]")
    return verdict.good


def _place(keep: Path | None, scratch: Path) -> Path:
    if keep is None:
        return scratch / "data"
    keep.mkdir(parents=True, exist_ok=True)
    # What an earlier run left; nothing else in the directory is touched.
    for name in ("products", "products-prepared", "orders", "results", "set-aside", "checkpoint"):
        shutil.rmtree(keep / name, ignore_errors=True)
    return keep


@contextmanager
def _spark(scratch: Path) -> Iterator[Any]:
    temporary = scratch / "spark"
    temporary.mkdir()
    try:
        with step("starting Spark on this machine") as this:
            spark = ps.session(
                "penstock demo",
                spark_local_dir=str(temporary),
                spark_driver_extraJavaOptions=f"-Djava.io.tmpdir={temporary}",
                spark_sql_warehouse_dir=str(temporary / "warehouse"),
            )
            this.done = f"Spark {spark.version} on {spark.sparkContext.defaultParallelism} cores"
        yield spark
    except Exception:
        if log_file() is not None:
            console.print(f"[dim]Spark's own log is {log_file()}[/]")
        raise
    finally:
        with console.status("stopping Spark …"):
            shut_down()


def _flow(spark: Any, arrivals: Arrivals, where: Path, memory: str) -> ps.Flow:
    orders = spark.readStream.schema(ORDERS).option("maxFilesPerTrigger", _FILES_A_BATCH).parquet(str(arrivals.place))
    stock = ps.table(where, key="product_id")
    return ps.join_table(orders, stock, on="product_id", memory=memory)


def _live(flow: ps.Flow, arrivals: Arrivals, place: Path, budget: int, size: int, where: Path) -> Meter:
    meter = Meter(flow)
    pages = len(ps.table(where, key="product_id").pages)
    running = None
    try:
        with _interruptible() as breathe:
            with step("first micro-batch: Spark plans the query and starts its Python workers") as this:
                arrivals.first()
                running = flow.start(
                    results=str(place / "results"),
                    set_aside=str(place / "set-aside"),
                    checkpoint=str(place / "checkpoint"),
                )
                while not flow.history():
                    running.wait(0.1)
                    meter.look()
                    breathe()
                this.done = "the query runs"
            arrivals.start()
            with Display(meter, arrivals, budget, size, pages) as display:
                while not _finished(meter, arrivals):
                    running.wait(0.25)
                    meter.look()
                    display.update()
                    breathe()
                display.update()
    finally:
        arrivals.stop()
        if running is not None and running.active:
            with step("stopping the query") as this:
                running.stop(patience=20)
                taken = sum(batch.rows_in for batch in meter.batches())
                this.done = f"query stopped: {taken:,} orders joined in {len(meter.batches())} micro-batches"
    return meter


@contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """Ctrl-C takes effect between two looks and not inside a call to the JVM, which would leave it confused."""
    asked = 0

    def note(_number: int, _frame: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise KeyboardInterrupt

    def breathe() -> None:
        if asked:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield breathe
    finally:
        signal.signal(signal.SIGINT, before)


def _finished(meter: Meter, arrivals: Arrivals) -> bool:
    batches = meter.batches()
    taken = sum(batch.rows_in for batch in batches)
    return arrivals.complete and taken == arrivals.rows and batches[-1].waiting == 0


def _verify(place: Path, scratch: Path) -> Verdict:
    judge = Judge(place / "orders", place / "products", place / "results", scratch / "duckdb")
    try:
        with step("computing the same join with DuckDB and comparing every row") as this:
            verdict = judge.compare()
            this.done = f"DuckDB: {verdict.expected:,} rows expected, {verdict.found:,} found"
        names, rows = judge.sample(5)
    finally:
        judge.close()
    if not verdict.good:
        console.print(
            f"[bold red]NOT the same[/]: {verdict.missing:,} rows are missing, {verdict.unexpected:,} are too many"
        )
    grid = Grid(title="the first results", title_justify="left", header_style="dim", box=SIMPLE_HEAD, pad_edge=False)
    for name, value in zip(names, rows[0] if rows else names, strict=True):
        grid.add_column(name, justify="left" if isinstance(value, str) else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*(f"{value:,.2f}" if isinstance(value, float) else escape(str(value)) for value in row))
    console.print(grid)
    return verdict


def _summarise(meter: Meter, arrivals: Arrivals, verdict: Verdict, budget: int, size: int, where: Path) -> None:
    batches = meter.batches()
    busy = [batch for batch in batches[1:] if batch.rows_in]
    seconds = sum(batch.seconds for batch in busy)
    rate = sum(batch.rows_in for batch in busy) / seconds if seconds else 0.0
    cycle = cycle_seconds(batches, len(ps.table(where, key="product_id").pages))
    peak = max(batch.memory for batch in batches)
    each = statistics.median(batch.seconds for batch in busy) if busy else 0.0
    grid = Grid(title="what happened", title_justify="left", show_header=False, box=SIMPLE)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    grid.add_row("orders", f"{arrivals.rows:,} in {len(batches)} micro-batches, {each:.2f} s each (median)")
    grid.add_row("rate", f"{rate:,.0f} orders a second while joining, after the first micro-batch")
    if cycle is not None:
        grid.add_row("scan", f"{cycle:.2f} s for a cycle over the table")
    grid.add_row("memory", f"at most {format_size(peak)} of {format_size(budget)}; the table has {format_size(size)}")
    grid.add_row("workers", f"at most {format_size(meter.growth)} above their start, all together")
    grid.add_row(
        "results",
        f"{verdict.found:,} rows; compared with DuckDB: {verdict.missing:,} missing, {verdict.unexpected:,} too many",
    )
    console.print(grid)
