"""`penstock prepare` and `penstock table`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from penstock.cli.say import console
from penstock.plan.join_table import least_memory
from penstock.plan.units import format_size, parse_count, parse_size
from penstock.tables import Table, prepare, table
from penstock.tables.keys import PARTITIONS


def prepare_table(source: Path, target: Path, key: list[str], page: str | None) -> None:
    """Write the prepared layout with a progress bar, and say what was written and how to use it."""
    began = time.monotonic()
    size = None if page is None else parse_size(page, option="page")
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        tasks = {"read": bars.add_task("reading and sorting", total=1), "write": bars.add_task("writing", total=1)}
        written = prepare(
            source,
            target,
            key=key,
            page_bytes=size,
            progress=lambda what, done, total: bars.update(tasks[what], completed=done, total=total),
        )
    seconds = time.monotonic() - began
    console.print(
        f"[green]✓[/] {escape(str(target))}: {written.rows:,} rows in {len(written.pages):,} pages, "
        f"{format_size(size_of(target))} on disk [dim]({seconds:.1f} s)[/]",
        soft_wrap=True,
    )
    names = repr(key[0]) if len(key) == 1 else repr(key)
    console.print("Join a stream with it:", style="dim")
    opened = f"ps.table({str(target)!r}, key={names})".replace("'", '"')
    least = format_size(least_memory(written, cores(), "key"), round_up=True)
    console.print(
        escape(
            f"  stock = {opened}\n"
            f'  flow  = ps.join_table(stream, stock, on={names}, memory="…")   # {least} or more on {cores()} cores'
        ).replace("'", '"'),
        soft_wrap=True,
    )


def show_table(path: Path, key: list[str], slots: int | None) -> None:
    """Rows, pages, columns and the smallest memory of a table."""
    count = slots_of(slots)
    opened = table(path, key=key)
    prepared = opened.by_key(0, 1) is not None
    facts = Grid.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    for name, value in (
        ("table", escape(opened.path)),
        ("layout", "prepared: ordered by key hash, rows together" if prepared else "Parquet: a page is a row group"),
        ("rows", f"{opened.rows:,}"),
        ("size", format_size(size_of(path))),
        ("pages", _pages(opened)),
        ("memory", _smallest(opened, count, prepared)),
    ):
        facts.add_row(name, value)
    console.print(facts)
    columns = Grid("column", "type", "key", box=None, header_style="dim", padding=(0, 2, 0, 0))
    for field in opened.schema:
        place = opened.key.index(field.name) + 1 if field.name in opened.key else 0
        columns.add_row(escape(field.name), escape(str(field.type)), f"[green]{place}[/]" if place else "")
    console.print()
    console.print(columns)


def _pages(opened: Table) -> str:
    counts = [page.rows for page in opened.pages]
    if not counts:
        return "none: the table is empty"
    return (
        f"{len(counts):,} of {min(counts):,} to {max(counts):,} rows" if len(counts) > 1 else f"1 of {counts[0]:,} rows"
    )


def _smallest(opened: Table, slots: int, prepared: bool) -> str:
    by_pages = format_size(least_memory(opened, slots, "pages"), round_up=True)
    if not prepared:
        return f'at least memory="{by_pages}" with {slots} slots'
    return f'at least memory="{format_size(least_memory(opened, slots, "key"), round_up=True)}" with {slots} slots'


def slots_of(asked: int | None) -> int:
    """How many slots somebody asked for; as many as there are cores otherwise."""
    return cores() if asked is None else parse_count(asked, option="slots", most=PARTITIONS)


def cores() -> int:
    """As many slots as `penstock.session()` has."""
    return min(os.cpu_count() or 1, PARTITIONS)


def size_of(path: Path) -> int:
    """Bytes on disk of a file, or of all files below a directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
