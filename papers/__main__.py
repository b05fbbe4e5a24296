"""`./dev reproduce`: run a family's figures, say which claims hold, draw the plots."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from papers import claims as judged
from papers.figure import Figure

HOME = Path(__file__).resolve().parent
RESULTS = HOME / "results"


def main(
    family: Annotated[str | None, typer.Argument(help="Which family; without it, the list.")] = None,
    names: Annotated[list[str] | None, typer.Argument(help="Which figures; without names, all.")] = None,
    quick: Annotated[bool, typer.Option(help="A reduced size: less than a minute.")] = False,
    out: Annotated[Path, typer.Option(help="Where plots and claims are written.")] = RESULTS,
) -> None:
    """Run the figures of a paper again and check what it says about them."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    families = sorted(found.parent.name for found in HOME.glob("*/__init__.py"))
    if family is None:
        for one in families:
            for figure in figures(one):
                console.print(f"{one:10} {figure.name:10} {figure.about}")
        return
    if family not in families:
        raise typer.BadParameter(f"no family {family!r}; there are: {', '.join(families)}")
    known = {figure.name: figure for figure in figures(family)}
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"no figure {name!r} in {family}; there are: {', '.join(known)}")
    found = [claim for name in names or known for claim in reproduce(console, known[name], out / family, quick)]
    judged.show(console, found)
    if any(claim.holds is False for claim in found):
        raise typer.Exit(1)


def figures(family: str) -> tuple[Figure, ...]:
    """The figures of a family."""
    return tuple(importlib.import_module(f"papers.{family}").FIGURES)


def reproduce(console: Console, figure: Figure, folder: Path, quick: bool) -> list[judged.Claim]:
    """Run one figure; write its plot and its claims."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    if console.is_terminal:
        with console.status(figure.name) as status:
            data = figure.run(quick, lambda text: status.update(f"{figure.name} · {text}"))
    else:
        data = figure.run(quick, lambda text: print(f"{figure.name} · {text}", file=sys.stderr, flush=True))
    found = list(figure.claims(data))
    figure.plot(data, folder / f"{figure.name}.png")
    seconds = round(time.monotonic() - began, 1)
    judged.save(folder / f"{figure.name}.json", found, figure=figure.name, quick=quick, seconds=seconds)
    console.print(f"{figure.name}: {figure.about} ({seconds} s), in {folder / figure.name}.png and .json")
    return found


if __name__ == "__main__":
    typer.run(main)
