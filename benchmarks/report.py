"""Outcomes as tables for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Outcome, Summary, Verdict
from benchmarks.profile import Line


def show(console: Console, outcome: Outcome) -> None:
    """The table of one benchmark."""
    benchmark = outcome.benchmark
    table = Table(title=f"{benchmark.name}: {benchmark.about}", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("contestant")
    for name in ("micro-batches", "seconds, median", "min–max", "rows/s, median", "quartiles", "CPU seconds"):
        table.add_column(name, justify="right")
    for name, measured in outcome.measured.items():
        seconds, rate = measured.seconds, measured.rate
        table.add_row(
            name,
            str(seconds.count),
            f"{seconds.median:.2f}",
            f"{seconds.low:.2f}–{seconds.high:.2f}",
            rows_per_second(rate.median),
            f"{rows_per_second(rate.first_quartile)}–{rows_per_second(rate.third_quartile)}",
            f"{measured.busy.median:.2f}" if measured.busy else "",
        )
    for name, reason in outcome.missing.items():
        table.add_row(name, "–", reason, "", "", "", "")
    console.print(table)


def show_verdicts(console: Console, outcomes: Sequence[Outcome]) -> None:
    """The claims of all benchmarks: limits, then ratios."""
    table = Table(title="Claims", box=box.SIMPLE_HEAD, title_justify="left")
    for name, justify in (("benchmark", "left"), ("claim", "left"), ("measured", "right"), ("range", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("goal", justify="right")
    table.add_column("")
    rows = [(outcome.benchmark.name, verdict) for outcome in outcomes for verdict in outcome.verdicts()]
    for name, verdict in sorted(rows, key=lambda row: row[1].unit == "×"):
        met = {None: "", True: "[green]met[/]", False: "[red]not met[/]"}[verdict.met]
        spread = f"{quantity(verdict.low, verdict.unit)}–{quantity(verdict.high, verdict.unit)}"
        table.add_row(name, verdict.text, quantity(verdict.value, verdict.unit), spread, _goal(verdict), met)
    if rows:
        console.print(table)


def show_profile(console: Console, name: str, lines: Sequence[Line]) -> None:
    """Where processor time went, phase by phase."""
    table = Table(title=f"{name}: processor seconds of a micro-batch", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("phase")
    table.add_column("function", overflow="fold")
    for column in ("calls", "own", "with callees"):
        table.add_column(column, justify="right")
    for line in lines:
        style = None if line.function else "bold"
        numbers = (f"{line.calls:,.0f}", f"{line.own:.3f}", f"{line.whole:.3f}")
        table.add_row(line.phase, line.function or "all of it", *numbers, style=style)
    console.print(table)


def save(folder: Path, outcomes: Sequence[Outcome], facts: dict[str, Any], settings: dict[str, Any]) -> Path:
    """Everything as JSON in a new file; gives its path."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = facts["time"].replace(":", "").replace("+0000", "Z")
    names = "+".join(sorted({outcome.benchmark.name.replace("/", ".") for outcome in outcomes}))
    path = folder / f"{stamp}-{names}.json"
    number = 1
    while path.exists():
        number += 1
        path = folder / f"{stamp}-{names}-{number}.json"
    said = {"machine": facts, "settings": settings, "benchmarks": [as_data(outcome) for outcome in outcomes]}
    path.write_text(json.dumps(said, indent=1) + "\n")
    return path


def as_data(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data."""
    return {
        "name": outcome.benchmark.name,
        "about": outcome.benchmark.about,
        "took_seconds": round(outcome.took, 1),
        "contestants": [
            {
                "name": name,
                "seconds": _rounded(measured.seconds),
                "rows_per_second": _rounded(measured.rate),
                "busy_seconds": _rounded(measured.busy) if measured.busy else None,
                "rounds": [[asdict(sample) for sample in turn] for turn in measured.turns],
            }
            for name, measured in outcome.measured.items()
        ],
        "missing": outcome.missing,
        "claims": [asdict(verdict) for verdict in outcome.verdicts()],
    }


def _rounded(summary: Summary) -> dict[str, float]:
    return {name: round(value, 6) for name, value in asdict(summary).items()}


def rows_per_second(rate: float) -> str:
    """A rate with three digits."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if rate >= size:
            return f"{rate / size:.3g}{unit}"
    return f"{rate:.3g}"


def quantity(value: float, unit: str) -> str:
    """A value with its unit."""
    if unit == "rows/s":
        return f"{rows_per_second(value)} rows/s"
    return f"{value:.3g} {unit}"


def _goal(verdict: Verdict) -> str:
    if verdict.goal is None:
        return ""
    return f"{'≤' if verdict.unit == 's' else '≥'} {quantity(verdict.goal, verdict.unit)}"
