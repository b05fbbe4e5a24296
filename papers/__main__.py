"""`./dev reproduce`: run figures again, say which claims hold, draw the plots, write one report."""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from papers import claims as judged
from papers import report, results
from papers.figure import Figure
from papers.results import RESULTS, families, figures


def main(
    family: Annotated[str | None, typer.Argument(help="Which family; without it, all of them.")] = None,
    names: Annotated[list[str] | None, typer.Argument(help="Which figures; without names, all.")] = None,
    quick: Annotated[bool, typer.Option(help="A reduced size: about a minute a family.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where it all is written. [default: papers/results, with --quick its folder quick]"),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List families and figures, and stop.")] = False,
) -> None:
    """Run the papers' figures again, check what is said about them, and write report.html."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    folder = out or (RESULTS / "quick" if quick else RESULTS)
    if list_:
        _list(console)
    elif family is None:
        raise typer.Exit(0 if everything(console, folder, quick) else 1)
    else:
        raise typer.Exit(0 if some(console, family, names or [], folder, quick) else 1)


def _list(console: Console) -> None:
    for family in families():
        for figure in figures(family):
            console.print(f"{family:14} {figure.name:12} {figure.about}")


def everything(console: Console, folder: Path, quick: bool) -> bool:
    """Run every family in a process of its own, so that none can take the others with it; whether all claims hold."""
    known = families()
    for number, family in enumerate(known, 1):
        console.rule(f"{family} ({number} of {len(known)})", align="left")
        began = time.time()
        command = [sys.executable, "-m", "papers", family, "--out", str(folder), *(["--quick"] if quick else [])]
        code = subprocess.run(command, cwd=results.HOME.parent, check=False).returncode
        _note_unfinished(family, folder, quick, began, code)
        report.write(folder)
    found = results.collect(folder)
    sums = results.tally(found)
    console.rule("all families", align="left")
    doubtful = [one for family in found for outcome in family.outcomes for one in outcome.claims if one.holds is False]
    if doubtful:
        judged.show(console, doubtful)
    console.print(f"{results.in_short(sums)} All of it: {folder / 'report.html'}", soft_wrap=True)
    return sums.good


def _note_unfinished(family: str, folder: Path, quick: bool, began: float, code: int) -> None:
    """A figure that its process did not get to has failed, whatever an earlier run has left of it."""
    try:
        known = figures(family)
    except Exception:
        return  # the report says that it cannot be loaded
    for figure in known:
        path = folder / family / f"{figure.name}.json"
        if not path.exists() or path.stat().st_mtime < began - 1:
            why = f"The process of this family ended with code {code} before it was done."
            judged.save(path, [], figure=figure.name, quick=quick, seconds=round(time.time() - began, 1), failure=why)


def some(console: Console, family: str, names: list[str], folder: Path, quick: bool) -> bool:
    """Run figures of one family in this process; whether all ran and their claims hold."""
    if family not in families():
        raise typer.BadParameter(f"no family {family!r}; there are: {', '.join(families())}")
    known = {figure.name: figure for figure in figures(family)}
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"no figure {name!r} in {family}; there are: {', '.join(known)}")
    found: list[judged.Claim] = []
    whole = True
    for name in names or known:
        try:
            found += reproduce(console, known[name], folder / family, quick)
        except Exception:
            whole = False
            console.print(f"[red]{name} failed:[/] {known[name].about}\n{traceback.format_exc()}", markup=True)
    judged.show(console, found)
    console.print(f"beside all others in {report.write(folder)}", soft_wrap=True)
    return whole and not any(claim.holds is False for claim in found)


def reproduce(console: Console, figure: Figure, folder: Path, quick: bool) -> list[judged.Claim]:
    """Run one figure; write its plot and its claims, or how it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{figure.name}.json"
    began = time.monotonic()

    def facts(**more: str) -> dict[str, object]:
        return {"figure": figure.name, "quick": quick, "seconds": round(time.monotonic() - began, 1), **more}

    try:
        if console.is_terminal:
            with console.status(figure.name) as status:
                data = figure.run(quick, lambda text: status.update(f"{figure.name} · {text}"))
        else:
            data = figure.run(quick, lambda text: print(f"{figure.name} · {text}", file=sys.stderr, flush=True))
        found = list(figure.claims(data))
        figure.plot(data, folder / f"{figure.name}.png")
    except Exception:
        judged.save(path, [], **facts(failure=traceback.format_exc()))
        raise
    done = facts()
    judged.save(path, found, **done)
    console.print(f"{figure.name}: {figure.about} ({done['seconds']} s), in {folder / figure.name}.png and .json")
    return found


if __name__ == "__main__":
    typer.run(main)
