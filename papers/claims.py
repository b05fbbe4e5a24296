"""What a paper says, what was measured here, and whether it holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper against one measurement.

    `holds` is None where the paper makes no claim, and the number is there for comparison alone.
    """

    figure: str
    text: str
    paper: str
    ours: str
    holds: bool | None


def show(console: Console, claims: Iterable[Claim]) -> None:
    """The claims as a table."""
    table = Table(box=box.SIMPLE_HEAD, title="Claims", title_justify="left")
    for name in ("figure", "claim", "paper", "here", ""):
        table.add_column(name, no_wrap=name == "figure")
    marks = {None: "", True: "[green]holds[/]", False: "[red]does not hold[/]"}
    for claim in claims:
        table.add_row(claim.figure, claim.text, claim.paper, claim.ours, marks[claim.holds])
    console.print(table)


def save(path: Path, claims: Sequence[Claim], **facts: object) -> None:
    """The claims as JSON, with whatever facts belong to them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # NumPy's truths are not those of JSON.
    plain = [asdict(claim) | {"holds": None if claim.holds is None else bool(claim.holds)} for claim in claims]
    path.write_text(json.dumps({**facts, "claims": plain}, indent=1) + "\n")


def load(path: Path) -> list[Claim]:
    """The claims that `save` wrote."""
    return load_all(path)[0]


def load_all(path: Path) -> tuple[list[Claim], dict[str, Any]]:
    """The claims that `save` wrote, and the facts beside them."""
    facts = json.loads(path.read_text())
    return [Claim(**claim) for claim in facts.pop("claims")], facts
