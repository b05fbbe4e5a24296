"""`./dev bench`: measure, show, keep."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import (
    harness,
    join_shared,
    join_streams,
    join_table,
    join_table_cold,
    join_table_curves,
    join_table_hot,
    machine,
    profile,
    report,
    runtime,
    standing,
    streams,
    subscriptions,
    views,
)

ALL = (
    runtime,
    join_streams,
    join_shared,
    join_table,
    join_table_cold,
    join_table_curves,
    join_table_hot,
    standing,
    subscriptions,
    views,
)
RESULTS = Path(__file__).resolve().parent / "results"
app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which ones: a name of the list, or what it begins with.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="A small version that shows that it works, not how fast it is.")] = False,
    reps: Annotated[
        int | None, typer.Option(min=1, help="Rounds in which every contestant has its turn: 3, or 1 with --quick.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only contestants with this word in their name.")] = None,
    profile_: Annotated[
        bool, typer.Option("--profile", help="One more turn for Penstock's own, with a profiler in the workers.")
    ] = False,
    results: Annotated[Path, typer.Option(help="Where the JSON is kept.")] = RESULTS,
    list_: Annotated[bool, typer.Option("--list", help="List the benchmarks and stop.")] = False,
) -> None:
    """Measure Penstock and its peers side by side."""
    console = Console(stderr=False, width=None if sys.stdout.isatty() else 160, highlight=False)
    known = [benchmark for module in ALL for benchmark in module.benchmarks(quick)]
    if list_:
        for benchmark in known:
            console.print(f"{benchmark.name:20} {benchmark.about}")
        return
    selected = [one for one in known if not names or any(_is(one.name, name) for name in names)]
    unknown = [name for name in names or () if not any(_is(one.name, name) for one in known)]
    if unknown:
        raise typer.BadParameter(f"no benchmark {unknown[0]!r}; there are: {', '.join(one.name for one in known)}")
    rounds = reps or (1 if quick else 3)
    facts = machine.facts()
    console.print(machine.in_short(facts))
    outcomes = []
    for benchmark in selected:
        outcomes.append(_measure(console, benchmark, rounds, only or [], profile_))
        report.show(console, outcomes[-1])
    settings = {"quick": quick, "reps": rounds, "only": only or []}
    path = report.save(results, outcomes, facts, settings)
    console.print(f"kept in {path}")
    if quick:
        console.print("--quick shows that it works. It is too small to say how fast anything is: no claims.")
    else:
        report.show_verdicts(console, outcomes)


def _is(name: str, asked: str) -> bool:
    return name == asked or name.startswith(asked + "/")


def _measure(
    console: Console, benchmark: harness.Benchmark, rounds: int, only: list[str], profiling: bool
) -> harness.Outcome:
    def profiled(contestant: harness.Contestant) -> AbstractContextManager[None] | None:
        return _profile(console, contestant) if profiling and contestant.name.startswith("Penstock") else None

    with console.status(benchmark.name) if console.is_terminal else nullcontext() as status:
        say = status.update if status else _print
        return harness.run(benchmark, rounds=rounds, say=say, only=only, last=profiled)


@contextmanager
def _profile(console: Console, contestant: harness.Contestant) -> Iterator[None]:
    with streams.scratch() as place:
        with profile.recording(place):
            yield
        report.show_profile(console, contestant.name, profile.lines(place))


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    app()
