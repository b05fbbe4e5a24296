"""`penstock demo`: a live join with a table larger than its budget, every result row checked, and a plot."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.demo.verify import load
from penstock.cli.say import console, step
from penstock.plan.units import parse_size


@dataclass(frozen=True)
class Options:
    """What the command line said."""

    rows: int
    orders: int
    memory: str
    prepared: bool
    keep: Path | None
    seed: int


def run(options: Options) -> int:
    """The exit code: 0 if every result row was there, once, and no other; 130 if it was interrupted."""
    # What would only be missed at the end is asked for at the beginning.
    load()
    parse_size(options.memory)
    began = time.monotonic()
    console.rule("[bold]Penstock[/]: a join that never outgrows its memory")
    console.print(
        f"{options.orders:,} orders arrive while the query runs. Each is joined with a table that is larger than the "
        f"{options.memory} the join may use. Then DuckDB computes the same join, and every row is compared.\n"
    )
    with step("loading; the first time on a machine, inner loops are compiled") as this:
        from penstock.cli.demo.show import show

        this.done = "loaded"
    scratch = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        return 0 if show(options, scratch, began) else 1
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/]; the query is stopped.")
        return 130
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
