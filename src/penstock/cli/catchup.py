"""`penstock catchup`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from penstock.cli.say import console
from penstock.operators.catch_up import catch_up
from penstock.plan.catch_up import check_how
from penstock.spark.archive import Archive
from penstock.spark.catch_up import CaughtUp
from penstock.spark.session import session
from penstock.tables import table


@dataclass(frozen=True)
class Asked:
    """The options of the command."""

    archive: Path
    table: Path
    key: list[str]
    on: list[str]
    into: Path
    how: str


def run(asked: Asked) -> None:
    """Join what is new in the archive with a bar for Spark's tasks, and say what was done and what is left."""
    # Before Spark is started: what is wrong is told at once.
    check_how(asked.how)
    Archive.open(asked.archive)
    opened = table(asked.table, key=asked.key)
    began = time.monotonic()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} tasks"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        bar = bars.add_task("starting Spark", total=1)
        spark = session("penstock-catchup")
        bars.update(bar, description="joining")
        try:
            done = catch_up(
                spark,
                asked.archive,
                opened,
                on=asked.on,
                into=asked.into,
                how=asked.how,  # type: ignore[arg-type]  # checked there
                progress=lambda ready, known: bars.update(bar, completed=ready, total=max(known, 1)),
            )
        finally:
            spark.stop()
    _show(done, asked, time.monotonic() - began)


def _show(done: CaughtUp, asked: Asked, seconds: float) -> None:
    if done.rows:
        console.print(
            f"[green]✓[/] {escape(str(asked.into))}: {done.results:,} results of {done.rows:,} archived rows "
            f"in {done.files:,} files [dim]({seconds:.1f} s)[/]",
            soft_wrap=True,
        )
        reasons = Grid("shed because", "rows", box=None, header_style="dim", padding=(0, 2, 0, 2))
        reasons.columns[1].justify = "right"
        for reason, rows in done.reasons.items():
            reasons.add_row(escape(reason), f"{rows:,}")
        console.print(reasons)
    else:
        console.print(f"[green]✓[/] nothing new in {escape(str(asked.archive))}", soft_wrap=True)
    if done.left_rows:
        console.print(f"{done.left_rows:,} rows came meanwhile; run it again to join them.", soft_wrap=True)
    else:
        console.print("Nothing is left: live results and these together are the exact join so far.", style="dim")
