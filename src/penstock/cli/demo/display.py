"""The live display of the demonstration: a panel on a terminal, a line for each micro-batch elsewhere."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from rich.live import Live
from rich.panel import Panel
from rich.table import Table as Grid
from rich.text import Text

from penstock.cli.demo.data import Arrivals
from penstock.cli.demo.meter import Meter, MicroBatch
from penstock.cli.say import console
from penstock.plan.units import format_size

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 24


@dataclass
class Display:
    """Shows what a `Meter` measured, for people."""

    meter: Meter
    arrivals: Arrivals
    budget: int
    table_size: int
    table_pages: int

    def __post_init__(self) -> None:
        self._began = time.time()
        self._said = 0
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self) -> None:
        """Show the newest numbers."""
        batches = self.meter.batches()
        if self._live is not None:
            self._live.update(self._panel(batches))
            return
        for batch in batches[self._said :]:
            console.print(self._line(batch), soft_wrap=True)
        self._said = len(batches)

    def _line(self, batch: MicroBatch) -> str:
        done = sum(b.rows_in for b in self.meter.batches()[: batch.number + 1]) - batch.waiting
        return (
            f"  batch {batch.number:3d}  {batch.rows_in:9,} rows in {batch.seconds:5.2f} s  "
            f"{batch.rate:9,.0f} rows/s  {done:11,} of {self.arrivals.rows:,} done  "
            f"{batch.waiting:7,} waiting  memory {format_size(batch.memory)} of {format_size(self.budget)}  "
            f"results {batch.rows_out:,}"
        )

    def _panel(self, batches: list[MicroBatch]) -> Panel:
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(style="dim", min_width=7, no_wrap=True)
        grid.add_column(min_width=_WIDTH, no_wrap=True)
        grid.add_column(no_wrap=True)
        taken = sum(batch.rows_in for batch in batches)
        waiting = batches[-1].waiting if batches else 0
        held = batches[-1].memory if batches else 0
        rates = [batch.rate for batch in batches[1:] if batch.rows_in]
        grid.add_row("rate", sparkline(rates, _WIDTH), f"[bold]{rates[-1] if rates else 0:,.0f}[/] rows/s")
        grid.add_row(
            "orders",
            bar(taken - waiting, self.arrivals.rows, "green"),
            f"[bold]{taken - waiting:,}[/] of {self.arrivals.rows:,} done",
        )
        grid.add_row("", "", f"{waiting:,} wait for the scan, {self.arrivals.arrived - taken:,} not read yet")
        grid.add_row("results", "", f"[bold]{sum(batch.rows_out for batch in batches):,}[/] rows")
        grid.add_row("scan", "", self._scan(batches))
        grid.add_row(
            "memory",
            bar(held, self.budget, "cyan"),
            f"[bold]{format_size(held)}[/] of {format_size(self.budget)} (table: {format_size(self.table_size)})",
        )
        if self.meter.samples:
            last = self.meter.samples[-1]
            grid.add_row(
                "workers",
                "",
                f"{format_size(last.resident)} resident in {last.workers} Python workers, "
                f"{format_size(self.meter.growth)} above start",
            )
        number = f"micro-batch {batches[-1].number}, {batches[-1].seconds:.2f} s" if batches else "no micro-batch yet"
        return Panel(
            grid,
            title="orders ⋈ products",
            title_align="left",
            subtitle=f"{number} · {time.time() - self._began:.0f} s",
            subtitle_align="right",
            border_style="blue",
            expand=False,
        )

    def _scan(self, batches: list[MicroBatch]) -> str:
        seconds = cycle_seconds(batches, self.table_pages)
        if seconds is None:
            return f"{self.table_pages:,} pages a cycle"
        return f"{seconds:.2f} s for a cycle over {self.table_pages:,} pages"


def cycle_seconds(batches: list[MicroBatch], pages: int) -> float | None:
    """What one pass over the whole table takes in the kernels: the median of the micro-batches that scanned."""
    cycles = [batch.step_seconds * pages / batch.pages for batch in batches if batch.pages]
    return statistics.median(cycles[1:] or cycles) if cycles else None


def sparkline(values: list[float], width: int) -> Text:
    """The last values as bars of eight heights."""
    shown = values[-width:]
    top = max(shown, default=0.0) or 1.0
    bars = "".join(_BARS[min(int(value / top * len(_BARS)), len(_BARS) - 1)] for value in shown)
    return Text(bars.ljust(width), style="green")


def bar(value: float, whole: float, color: str) -> Text:
    """How much of the whole."""
    filled = round(_WIDTH * min(max(value / whole, 0.0), 1.0)) if whole else 0
    return Text.assemble(("━" * filled, color), ("━" * (_WIDTH - filled), "grey23"))
