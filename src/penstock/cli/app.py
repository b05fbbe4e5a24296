"""The commands and their options; what they do is in the modules beside this one."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.errors import PenstockError


class Commands(TyperGroup):
    """Commands whose errors, and the system's, are shown as text, without a traceback, and end with code 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            from penstock.cli.say import show_error

            show_error(error)
            raise typer.Exit(1) from None
        except BrokenPipeError:
            raise  # who reads has enough
        except OSError as error:
            from penstock.cli.say import show_error

            place = f"{error.filename}: " if error.filename else ""
            show_error(PenstockError(f"{place}{error.strerror or error}."))
            raise typer.Exit(1) from None


app = typer.Typer(
    name="penstock",
    cls=Commands,
    help="Continuous joins, views and subscriptions on Apache Spark that never outgrow their memory.",
    no_args_is_help=True,
    rich_markup_mode=None,  # help at once: loading rich takes longer than all else
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Key = Annotated[
    list[str],
    typer.Option(
        "--key", "-k", help="The table's key: one column, or several with commas; a name with a comma in quotes."
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    rows: Annotated[int, typer.Option(help="Rows of the products table.", min=1000)] = 3_000_000,
    orders: Annotated[int, typer.Option(help="Orders in the stream.", min=100)] = 2_000_000,
    memory: Annotated[str, typer.Option(help="The budget of the join.")] = "32MB",
    prepared: Annotated[
        bool, typer.Option("--prepared/--plain", help="Join the prepared layout, or the Parquet files as they are.")
    ] = True,
    keep: Annotated[
        Path | None, typer.Option(help="Keep data, results and plot in this directory.", file_okay=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed makes other data.")] = 7,
) -> None:
    """Join a live stream with a table beyond its budget. Checks every result row, draws a plot."""
    from penstock.cli.demo import Options, run

    raise typer.Exit(run(Options(rows, orders, memory, prepared, keep, seed)))


@app.command()
def prepare(
    source: Annotated[Path, typer.Argument(help="A Parquet file, or a directory of them.")],
    target: Annotated[Path, typer.Argument(help="The directory to write; a prepared table in it is replaced.")],
    key: Key,
    page: Annotated[
        str | None,
        typer.Option(help="The size of a page: smaller ones need less memory. [default: by the table's size]"),
    ] = None,
) -> None:
    """Write a table in the layout that is joined fastest. Its rows are ordered by the hash of their key."""
    from penstock.cli.tables import prepare_table

    prepare_table(source, target, columns(*key), page)


@app.command()
def table(
    path: Annotated[Path, typer.Argument(help="A Parquet file, a directory of them, or a prepared table.")],
    key: Key,
    slots: Annotated[int | None, typer.Option(help="How many share the work; one for each core by default.")] = None,
) -> None:
    """Show a table as join_table sees it. Rows, pages, columns, and the smallest memory that would do."""
    from penstock.cli.tables import show_table

    show_table(path, columns(*key), slots)


@app.command()
def tune(
    path: Annotated[Path, typer.Argument(help="A Parquet file, a directory of them, or a prepared table.")],
    key: Key,
    memory: Annotated[str | None, typer.Option(help="The budget: what rate does it give? 64MB by default.")] = None,
    rate: Annotated[float | None, typer.Option(help="Rows a second: how much memory does it take?")] = None,
    row: Annotated[str, typer.Option(help="The size of a stream row.")] = "32B",
    slots: Annotated[int | None, typer.Option(help="How many share the work; one for each core by default.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again, even if nothing changed.")] = False,
) -> None:
    """Measure what joining with a table takes. Says what rate a memory gives, or what memory a rate takes."""
    from penstock.cli.tune import Asked, tune_table

    tune_table(Asked(path, columns(*key), memory, rate, row, slots, fresh))


@app.command()
def catchup(
    archive: Annotated[Path, typer.Argument(help="The directory that a flow was started with as shed.")],
    table: Annotated[Path, typer.Option(help="The table that the flow joins with: Parquet or prepared.")],
    key: Key,
    into: Annotated[Path, typer.Option(help="A directory for the results, of this archive alone.", file_okay=False)],
    on: Annotated[
        str | None, typer.Option(help="The stream's columns that equal the key, in its order. [default: as the key]")
    ] = None,
    how: Annotated[str, typer.Option(help="inner, left, semi or anti; as in the flow.")] = "inner",
) -> None:
    """Join the rows that a flow shed into its archive. Exactly, each once; run it again whenever the archive grew."""
    from penstock.cli.catchup import Asked, run

    run(Asked(archive, table, columns(*key), columns(on) if on else columns(*key), into, how))


@app.command()
def catchup_streams(
    archive: Annotated[Path, typer.Argument(help="The directory that a window join was started with as its archive.")],
    on: Annotated[str, typer.Option(help="Columns that are equal; left=right where they have other names.")],
    within: Annotated[str, typer.Option(help='The window in time, as in the flow: "2 hours".')],
    time: Annotated[str, typer.Option(help="The event time of the left and of the right: asked_at,answered_at.")],
    into: Annotated[Path, typer.Option(help="A directory for the results, of this archive alone.", file_okay=False)],
    lateness: Annotated[str, typer.Option(help="As in the flow.")] = "0 seconds",
    how: Annotated[str, typer.Option(help="inner, left, right or full; as in the flow.")] = "inner",
) -> None:
    """Find the results that a window join missed. Exactly, each once; run it again whenever the archive grew."""
    from penstock.cli.catchup_streams import Asked, run

    run(Asked(archive, columns(on), within, columns(time), lateness, into, how))


PipelineFile = Annotated[Path, typer.Argument(help="The pipeline's file, or a folder with a pipeline.toml.")]


@app.command()
def init(
    stream: Annotated[
        list[str],
        typer.Option("--stream", metavar="<path>", help="Files that are read as they come: orders/, or name=orders/."),
    ],
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="<path:key>",
            help="Files to join with, and their key: products/:product_id; several with commas.",
        ),
    ] = None,
    to: Annotated[Path, typer.Option(help="The file to write.", dir_okay=False)] = Path("pipeline.toml"),
) -> None:
    """Write a pipeline for CSV, Parquet or JSON files. It has their columns and a first query."""
    from penstock.cli.pipeline import init

    init(stream, table or [], to)


@app.command()
def check(pipeline: PipelineFile) -> None:
    """Check a pipeline in full, without Spark. Every fault is told at once, each with its line."""
    from penstock.cli.pipeline import check

    check(pipeline)


@app.command()
def run(pipeline: PipelineFile) -> None:
    """Run a pipeline until Ctrl-C. With trigger "available_now", until all input is read; run it again to go on."""
    from penstock.cli.pipeline import run

    raise typer.Exit(run(pipeline))


@app.command()
def serve(
    pipeline: PipelineFile,
    host: Annotated[str, typer.Option(help="The address to listen at; others than 127.0.0.1 can be reached.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port; 0 takes any that is free.", min=0, max=65535)] = 8642,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="<str>", help="A name by which browsers know this server, beside its address."),
    ] = None,
    new_token: Annotated[bool, typer.Option("--new-token", help="Make another token; the old one ends.")] = False,
) -> None:
    """Serve a pipeline over HTTP, with a dashboard. Register queries, follow their results, read views."""
    from penstock.cli.serve import Asked, serve

    serve(Asked(pipeline, host, port, allow_host or [], new_token))


def columns(*texts: str) -> list[str]:
    """The columns that a comma-separated option names, which may be given more than once.

    >>> columns("market,product_id", '"size, cm"')
    ['market', 'product_id', 'size, cm']
    """
    rows = [next(csv.reader([text], skipinitialspace=True), []) for text in texts]
    return [name.strip() for row in rows for name in row if name.strip()]
