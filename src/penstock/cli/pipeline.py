"""`penstock init`, `penstock check` and `penstock run`."""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path

import pyarrow as pa
from rich.markup import escape
from rich.table import Table as Grid

from penstock.cli.say import asking, console, show_error, step, without_interrupts
from penstock.errors import BadOption, PenstockError
from penstock.kernels.contract import SET_ASIDE
from penstock.kernels.row_text import plain_rows
from penstock.plan.pipeline.columns import fits, name_of
from penstock.plan.pipeline.starting import starting
from penstock.server.made import Made
from penstock.server.pipelines import Run, checked, open_session
from penstock.server.sinks import SHOWN
from penstock.spark.gateway import shut_down
from penstock.sql.shapes import View


def init(streams: list[str], tables: list[str], target: Path) -> None:
    """Write a pipeline for files that are there."""
    if target.exists():
        raise BadOption(f"{target} is there already.", do="Choose another name: --to other.toml.")
    text = starting(streams, tables, target.parent)
    target.write_text(text, encoding="utf-8")  # as it is read, whatever the locale says
    console.print(f"[green]✓[/] {escape(str(target))}", soft_wrap=True)
    console.print(escape(text), style="dim", soft_wrap=True)
    console.print(f"Run it: penstock run {escape(str(target))}", soft_wrap=True)


def check(path: Path) -> None:
    """Say what is in a pipeline, or every fault of it with its line."""
    pipeline, made = checked(path)
    console.print(f"[green]✓[/] {escape(str(path))}", soft_wrap=True)
    grid = Grid("", "name", "what", box=None, header_style="dim", padding=(0, 2, 0, 0))
    for stream in pipeline.streams.values():
        grid.add_row("stream", escape(stream.name), escape(f"{stream.format}: {_columns(stream.columns)}"))
    for table in pipeline.tables.values():
        key = f"key {', '.join(table.key)}; " if table.key else ""
        grid.add_row("table", escape(table.name), escape(f"{key}{_columns(table.columns)}"))
    for name, query in made.items():
        columns = "" if query.is_view else f": {_columns(query.schema)}"
        grid.add_row("query", escape(name), escape(f"{query.kind}, {query.operator}{columns}"))
    console.print(grid)
    shared = _shared(made)
    if shared:
        console.print(f"{len(made)} queries run as {shared} flow{'s' * (shared > 1)}.", style="dim")


def _shared(made: dict[str, Made]) -> int:
    keys = {str(query.said["key"]) for query in made.values()}
    return len(keys) if len(keys) < len(made) else 0


def _columns(schema: pa.Schema) -> str:
    """Columns as the file writes them: the names of Arrow's types are not known there."""
    names = [name if re.fullmatch(r"[\w-]+", name) else json.dumps(name, ensure_ascii=False) for name in schema.names]
    kinds = [name_of(field.type) if fits(field) else str(field.type) for field in schema]
    return ", ".join(map(" ".join, zip(names, kinds, strict=True)))


def run(path: Path) -> int:
    """Run a pipeline until it ends by itself or is asked to; 0 if nothing failed."""
    pipeline, made = checked(path)
    if not made:
        raise BadOption(f"{path} has no query.", do="Add one: [queries.some_name] with sql = … or operator = ….")
    if all(query.is_view for query in made.values()):
        raise BadOption(f"{path} has views alone, which somebody has to read.", do="Serve it: penstock serve.")
    asked = threading.Event()
    without_interrupts()
    logging.getLogger("penstock.server").addHandler(logging.NullHandler())  # what fails is told here, once
    with asking(asked.set) as listen:
        with step("starting Spark"):
            spark = open_session(pipeline)
        listen()  # a new session takes Ctrl-C for itself
        try:
            if asked.is_set():
                return 0
            running = Run(pipeline, spark, show).start()
            console.print(f"running: {', '.join(pipeline.queries)}; Ctrl-C stops", style="dim", soft_wrap=True)
            try:
                told: set[tuple[str, str]] = set()
                while not asked.is_set() and not running.wait(0.2):
                    tell_news(running, told)
            finally:
                running.stop()
            return tell(running, told)
        finally:
            shut_down()


def tell(running: Run, told: set[tuple[str, str]]) -> int:
    """What each query gave, what is beside the results and where, and what failed; 0 if nothing did.

    Of a failure that was told before, it says no more than that it was the last word.
    """
    for query in running.engine.queries():
        rows = "" if query["rows_since_start"] is None else f"{query['rows_since_start']:,} results"
        rows = "a view, which `penstock serve` answers" if query["kind"] == View.kind else rows
        said = running.engine.pipeline.queries.get(query["name"])
        place = f" in {said.sink.path}" if said is not None and said.sink.path is not None else ""
        console.print(f"  {escape(query['name'])}: {rows}{escape(place)}", soft_wrap=True)
    for group in running.engine.progress()["groups"]:
        if aside := group["rows_set_aside"]:
            where = running.engine.folder / "groups" / group["id"] / SET_ASIDE
            console.print(
                f"  [yellow]set aside of {escape(', '.join(group['queries']))}: {aside:,.0f} rows[/], each with the "
                f"reason, in {escape(str(where))}",
                soft_wrap=True,
            )
    faults = running.faults()
    if known := [name for name, fault in faults.items() if (name, _about(fault)) in told]:
        console.print(f"[red]{escape(', '.join(known))} failed[/], as told above", soft_wrap=True)
    tell_news(running, told)
    return 1 if faults else 0


def tell_news(running: Run, told: set[tuple[str, str]]) -> None:
    """Tell what failed, at once: the others go on, and nobody would know. `told` is what was told already.

    Queries of one group fail together, and a group that is started again may fail in the same way.
    """
    news: dict[str, list[str]] = {}
    faults = running.faults()
    for name, fault in faults.items():
        if (name, _about(fault)) not in told:
            news.setdefault(_about(fault), []).append(name)
    for about, names in news.items():
        _tell_fault(", ".join(names), faults[names[0]])
        told |= {(name, about) for name in names}


def _about(fault: BaseException) -> str:
    """What tells a failure from others: Spark's errors have the numbers of runs, tasks and attempts in them."""
    notes: list[str] = getattr(fault, "__notes__", [])
    if isinstance(fault, PenstockError) or notes:
        return notes[0] if notes else str(fault)
    return f"{type(fault).__name__} {re.sub(r'[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+', '', str(fault).partition(chr(10))[0])}"


def _tell_fault(names: str, fault: BaseException) -> None:
    console.print(f"[red]{escape(names)} failed[/]", soft_wrap=True)
    if isinstance(fault, PenstockError):
        show_error(fault)
        return
    # The first line of an error of Spark's says that it is one; the notes say what it is about.
    notes: list[str] = getattr(fault, "__notes__", [])
    said = [*notes, str(fault).partition("\n")[0] or type(fault).__name__]
    show_error(PenstockError(said[0], why="\n  ".join(said[1:])))


def show(name: str, batch: int, rows: pa.Table) -> None:
    """The first rows of a batch, as a grid."""
    console.print(f"[bold]{escape(name)}[/] [dim]batch {batch}: {rows.num_rows:,} rows[/]", soft_wrap=True)
    grid = Grid(*(escape(column) for column in rows.column_names), box=None, header_style="dim", padding=(0, 2, 0, 0))
    for row in plain_rows(rows.slice(0, SHOWN)):
        grid.add_row(*(escape(_shown(value)) for value in row.values()))
    console.print(grid)
    if rows.num_rows > SHOWN:
        console.print(f"… and {rows.num_rows - SHOWN:,} more", style="dim")


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.12g}" if isinstance(value, float) else str(value)
