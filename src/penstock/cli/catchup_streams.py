"""`penstock catchup-streams`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from penstock.cli.say import console
from penstock.operators.catch_up_streams import catch_up_streams
from penstock.plan.two_streams import read_window
from penstock.plan.units import parse_duration
from penstock.spark.catch_up_streams import open_archive
from penstock.spark.session import session


@dataclass(frozen=True)
class Asked:
    """The options of the command; columns of both sides as `left=right` or one name for both."""

    archive: Path
    on: list[str]
    within: str
    time: list[str]
    lateness: str
    into: Path
    how: str


def run(asked: Asked) -> None:
    """Find what is missing in the micro-batches that are new, and say how much it was."""
    # Before Spark is started: what is wrong is told at once.
    open_archive(asked.archive.expanduser().absolute())
    read_window(asked.within)
    parse_duration(asked.lateness, option="lateness")
    pairs = [(name.partition("=")[0], name.partition("=")[2] or name) for name in asked.on]
    left, right = (asked.time * 2)[:2]
    began = time.monotonic()
    spark = session("penstock-catchup")
    try:
        done = catch_up_streams(
            spark,
            asked.archive,
            on=dict(pairs),
            within=asked.within,
            time=(left, right),
            lateness=asked.lateness,
            how=asked.how,  # type: ignore[arg-type]  # checked there
            into=asked.into,
        )
    finally:
        spark.stop()
    if done.rows:
        console.print(
            f"[green]✓[/] {escape(str(asked.into))}: {done.results:,} results that were missing, of {done.rows:,} new "
            f"rows; {done.left_early:,} rows had to go too soon so far [dim]({time.monotonic() - began:.1f} s)[/]",
            soft_wrap=True,
        )
    else:
        console.print(f"[green]✓[/] nothing new in {escape(str(asked.archive))}", soft_wrap=True)
