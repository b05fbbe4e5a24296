"""`penstock tune`: measure a table on this machine, and say what a join with it will do."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.markup import escape
from rich.table import Table as Grid

from penstock.cli.say import console, step
from penstock.cli.tables import slots_of
from penstock.errors import BadOption, MemoryTooSmall
from penstock.kernels.mesh.tune_cache import coefficients, machine
from penstock.models.mesh_cost import Coefficients
from penstock.models.mesh_tuner import Choice, breakdown, default_buffer, fastest, least_memory, smallest, with_buffer
from penstock.plan.join_table import quick_at_once
from penstock.plan.units import format_duration, format_size, parse_size
from penstock.tables import Table, table

_BAR = 34
#: What a gain must be to be worth writing the table anew.
_WORTH = 0.05


@dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    path: Path
    key: list[str]
    memory: str | None
    rate: float | None
    row: str
    slots: int | None
    fresh: bool


@dataclass(frozen=True)
class Setting:
    """One slot's part of the join, and how the slots add up."""

    c: Coefficients
    slots: int
    #: As the cost model has it: by "rows" every slot scans all of the table, as it does where rows are joined at once.
    division: Literal["key", "rows", "pages"]
    #: The table's own page, in the model's pages.
    own: int

    @property
    def combined(self) -> int:
        """By how much a slot's rate is multiplied: by pages each serves all rows, otherwise its own."""
        return 1 if self.division == "pages" else self.slots

    def size(self, b: int) -> str:
        """A buffer of b pages as people say it."""
        return format_size(round(b * self.c.v_P))


def tune_table(asked: Asked) -> None:
    """Measure, choose, and show why."""
    if asked.memory is not None and asked.rate is not None:
        raise BadOption("--memory and --rate exclude each other.", do="Give the one that is fixed; the other is found.")
    # Before anything is measured, which takes its time.
    slots, row = slots_of(asked.slots), parse_size(asked.row, option="row")
    memory = parse_size(asked.memory or "64MB") / slots
    if asked.rate is not None and not asked.rate > 0:
        raise BadOption(f"rate={asked.rate:g} is not a rate.", do="Give rows a second, more than 0.")
    found = table(asked.path, key=asked.key)
    if not found.rows:
        raise BadOption(f"{found.path} is empty.", why="Nothing can be measured.", do="Tune it once it has rows.")
    with step("measuring") as this:
        c, cached = coefficients(found, row, fresh=asked.fresh)
        this.done = f"{'measured before' if cached else 'measured'} on {machine()}"
    division = _division(found, row, round(memory * slots) if asked.rate is None else None, slots)
    part = c.divided(slots, division)
    own = max(round(found.rows * c.v_R / len(found.pages) / c.v_P), 1)
    setting = Setting(part, slots, division, min(own, part.N_R))
    if asked.rate is not None:
        chosen, best = _for_rate(setting, asked.rate)
    else:
        _check_enough(setting, memory)
        chosen, best = fastest(part, memory, among=setting.own), fastest(part, memory)
    _show_costs(c)
    _show_choice(setting, chosen)
    _show_curve(setting, chosen.memory.total if asked.rate is not None else memory)
    _show_advice(setting, found, chosen, best)


def _division(found: Table, row: int, memory: int | None, slots: int) -> Literal["key", "rows", "pages"]:
    """The one that `join_table` takes for an inner join by equality."""
    if found.by_key(0, 1) is None:
        return "pages"
    return "rows" if memory is not None and quick_at_once(found, row, memory, slots) else "key"


def _check_enough(setting: Setting, memory: float) -> None:
    c, own = setting.c, setting.own
    if c.most_rows(memory, own) < 1:
        least = float(c.buffer(own) + c.fixed + c.row_bytes(own)) * setting.slots
        raise MemoryTooSmall(
            f"{format_size(round(memory * setting.slots))} cannot hold one page and one packet in each slot.",
            why=f"{setting.slots} slots need {format_size(round(least))}, most of it for one page of the table each.",
            do=f"Give at least --memory {format_size(round(least), round_up=True).replace(' ', '')}, or fewer --slots.",
        )


def _for_rate(setting: Setting, rate: float) -> tuple[Choice, Choice]:
    part = rate / setting.combined
    return smallest(setting.c, part, among=setting.own), smallest(setting.c, part)


def _grid(title: str) -> Grid:
    grid = Grid(
        title=title, title_justify="left", title_style="bold", box=None, show_header=False, padding=(0, 2, 0, 2)
    )
    grid.add_column(style="dim")
    grid.add_column(justify="right")
    grid.add_column(style="dim")
    return grid


def _show_costs(c: Coefficients) -> None:
    grid = _grid("What it costs here")
    page, large = 1.0, c.c_O.x[-1]
    for name, seconds, what in (
        ("c_IO", c.c_IO(page), f"to read the keys of {format_size(round(c.v_P))} of the table"),
        ("c_P", c.c_P(page), "to get at its rows, if one matches"),
        ("c_H", c.c_H(large), "to probe with a row of the table, large window"),
        ("c_S", c.c_S, "to take in a stream row"),
        ("c_A", c.c_A(large), "to index it"),
        ("c_O", c.c_O(large), "to build a result"),
        ("c_E", c.c_E, "to let a stream row go"),
    ):
        grid.add_row(name, _time(float(seconds)), what)
    console.print(grid)


def _show_choice(setting: Setting, chosen: Choice) -> None:
    memory = chosen.memory
    grid = _grid("Chosen")
    share = breakdown(chosen.loop)
    costly = max(share, key=lambda name: share[name])
    names = {
        "read": "reading keys", "probe": "probing", "open": "getting at rows of pages that match", "result": "results",
        "append": "indexing the window", "fetch": "taking rows in", "expire": "letting rows go", "batch": "batches",
    }  # fmt: skip
    for name, value, what in (
        ("rate", f"{chosen.rate * setting.combined:,.0f}/s", f"rows served, by {setting.slots} slots together"),
        ("memory", format_size(round(memory.total * setting.slots)), f"{format_size(round(memory.total))} a slot"),
        ("  window", format_size(round(memory.queue + memory.hash_table)), f"{chosen.window:,} rows share one pass"),
        ("  buffer", format_size(round(memory.disk_buffer)), "one page while it is probed"),
        ("  results", format_size(round(memory.fixed)), "one slice of them"),
        ("w", f"{chosen.w:,}", "rows admitted with every page"),
        ("b", setting.size(chosen.b), f"of the table read at once, {chosen.k:,} times a cycle"),
        ("cycle", _time(chosen.loop.total * chosen.k), f"most of it ({share[costly]:.0%}) for {names[costly]}"),
    ):
        grid.add_row(name, value, what)
    console.print()
    console.print(grid)


def _show_curve(setting: Setting, memory: float) -> None:
    c = setting.c
    grid = Grid(
        title="Rate over the page size, at this memory", title_justify="left", title_style="bold", box=None,
        header_style="dim", padding=(0, 2, 0, 2),
    )  # fmt: skip
    for name, how in (("page", "right"), ("rows/s", "right"), ("", "left")):
        grid.add_column(name, justify="right" if how == "right" else "left")
    default = with_buffer(c, memory, default_buffer(c)).b if memory >= least_memory(c) else 0
    tried = {2**i for i in range(int(math.log2(c.N_R)) + 1)} | {setting.own, default}
    points = [fastest(c, memory, among=b) for b in sorted(tried) if b and c.most_rows(memory, b) > 0]
    top = max(point.rate for point in points)
    for point in points:
        marks = [text for b, text in ((setting.own, "this table"), (default, "default")) if b == point.b]
        bar = "█" * max(round(_BAR * point.rate / top), 1)
        note = f" [green]{', '.join(marks)}[/]" if marks else ""
        grid.add_row(setting.size(point.b), f"{point.rate * setting.combined:,.0f}", f"[cyan]{bar}[/]{note}")
    console.print()
    console.print(grid)


def _show_advice(setting: Setting, found: Table, chosen: Choice, best: Choice) -> None:
    console.print()
    gain = best.rate / chosen.rate - 1
    saved = 1 - best.memory.total / chosen.memory.total
    if max(gain, saved) < _WORTH:
        console.print(f"No other page size would do more than {_WORTH:.0%} better.", style="dim")
        return
    better = f"{gain:.0%} more rows a second" if gain >= saved else f"the same rate with {saved:.0%} less memory"
    size = format_size(max(round(best.b * setting.c.v_P), 4 << 10)).replace(" ", "")
    if setting.division == "pages":
        rows = max(round(best.b * setting.c.v_P / setting.c.v_R), 1)
        console.print(
            f"Row groups of {rows:,} rows would give {better}. Better still, prepare the table:", soft_wrap=True
        )
    else:
        console.print(f"Pages of {setting.size(best.b)} would give {better}:", soft_wrap=True)
    key = shlex.quote(",".join(f'"{name}"' if "," in name else name for name in found.key))
    command = f"penstock prepare {shlex.quote(found.path)} <target> --key {key} --page {size}"
    console.print(escape(f"  {command}"), soft_wrap=True)


def _time(seconds: float) -> str:
    if seconds < 1e-6:
        return f"{seconds * 1e9:.3g} ns"
    return format_duration(round(seconds * 1e6)) if seconds >= 1e-4 else f"{seconds * 1e6:.3g} us"
