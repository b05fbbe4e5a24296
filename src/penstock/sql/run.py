"""`sql`: standing queries as text, over streaming DataFrames and tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import BadOption
from penstock.operators.view import View as OperatorView
from penstock.plan.given import kind_of
from penstock.plan.view import Changing
from penstock.plan.views.expressions import Value
from penstock.spark.queries import empty, inserts, watermark_of
from penstock.spark.schema import arrow_schema
from penstock.spark.slots import usual_slots
from penstock.sql.catalogue import Catalogue, Function, Relation, Stream
from penstock.sql.groups import explain, group
from penstock.sql.parse import Query, parse
from penstock.sql.shapes import View
from penstock.sql.standing import Opened, Standing
from penstock.tables.base import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Registered = tuple[Callable[..., Any], pa.DataType]


@dataclass(frozen=True)
class Described:
    """A streaming DataFrame, and what its columns mean; made by `ps.stream`."""

    frame: DataFrame
    time: str | None = None
    lateness: str | timedelta = "0 seconds"
    key: str | Sequence[str] = ()
    order: str | None = None
    deleted: str | None = None

    def named(self, name: str) -> Stream:
        """As the catalogue has it. A watermark on the DataFrame says event time and lateness, if nothing else does."""
        schema = arrow_schema(self.frame)
        time, lateness = self.time, self.lateness
        mark = watermark_of(self.frame)
        if time is None and mark is not None:
            time, lateness = mark[0], timedelta(microseconds=mark[1])
        return Stream.of(
            name,
            schema,
            event_time=time,
            lateness=lateness,
            key=self.key,
            order=self.order,
            deleted=self.deleted,
        )


def stream(
    frame: DataFrame,
    *,
    time: str | None = None,
    lateness: str | timedelta = "0 seconds",
    key: str | Sequence[str] = (),
    order: str | None = None,
    deleted: str | None = None,
) -> Described:
    """A stream for `ps.sql`, with what its columns mean.

    Parameters
        time: the column of event times, a timestamp, for windows in time; `lateness` is how much later than the latest
            a row may come. Without it, a watermark on the DataFrame says both.
        key, order, deleted: for aggregates over ranges, where the stream brings the updates of a table: what tells rows
            apart, what grows with every update of a row (the event time, if not given), and where a row goes.

    Example::

        streams = {"quotes": ps.stream(quotes, time="at", lateness="1 minute", key="symbol")}
        ps.sql("SELECT MIN(price) FROM quotes WHERE size BETWEEN 3 AND 5", streams=streams)
    """
    return Described(frame, time, lateness, key, order, deleted)


def sql(
    text: str | Sequence[str] | Mapping[str, str],
    *,
    streams: Mapping[str, DataFrame | Described] | None = None,
    tables: Mapping[str, Table | Changing | str | os.PathLike[str]] | None = None,
    values: Mapping[str, Value] | None = None,
    functions: Mapping[str, Registered] | None = None,
    at: str | os.PathLike[str] | None = None,
    slots: int | None = None,
) -> Standing | OperatorView | str:
    """Standing queries as SQL text.

    Guarantees
        The text is read here and checked against `streams` and `tables`; no word of it reaches Spark's own parser.
        Each query has the results of its SQL over the streams as they come, exactly once, also after crashes; with
        SHED, as many of them as memory allows. Queries of the same shape share one flow, and none knows of the others.
        An error says line and column, and shows the place.
    State and cost
        Of the operator that runs it (`.explain()`), once for each group of queries, however many there are in it.

    Parameters
        text: one query; or several, in a list or by name.
        streams: streaming DataFrames by the names that texts know them by; `ps.stream(df, time="at", …)` says
            what their columns mean.
        tables: `ps.table(…)` or a path of Parquet files; for views also `ps.Changing(…)`.
        values: constants that texts know by name.
        functions: functions of Arrow arrays that texts may call, each with the type that it returns.
        at: a directory for views.
        slots: how many kernels share the work of a flow; as many as shuffle partitions by default.

    Gives `Standing`, which has `results`, `start` and `explain`; for one CREATE VIEW a `ps.View`; for EXPLAIN a text.

    Example::

        flow = ps.sql(
            "SELECT t.place FROM temperature t, humidity h WHERE t.place = h.place AND t.value > 30 WINDOW 1 MINUTE",
            streams={
                "temperature": ps.stream(temperature, time="at"),
                "humidity": ps.stream(humidity, time="at"),
            },
        )
        flow.start(results="hot/", checkpoint="ck/")
    """
    for option, of_names, example in (
        ("streams", streams, '{"orders": orders}'),
        ("tables", tables, '{"products": ps.table("products/", key="product_id")}'),
        ("values", values, '{"threshold": 0.9}'),
        ("functions", functions, '{"near": (function, pa.bool_())}'),
    ):
        if of_names is not None and not isinstance(of_names, Mapping):
            raise BadOption(f"{option} is {kind_of(of_names)}.", do=f"Give them by name: {option}={example}.")
        _check_names(option, of_names or {}, example)
    given: Mapping[str, Any] = functions or {}
    for name, function in given.items():
        if (
            not isinstance(function, tuple)
            or len(function) != 2
            or not callable(function[0])
            or not isinstance(function[1], pa.DataType)
        ):
            raise BadOption(
                f"The function {name!r} comes without its type.",
                do=f"Give what to call and the type that it returns: {{{name!r}: (function, pa.float64())}}.",
            )
    described = {
        name: given if isinstance(given, Described) else Described(given) for name, given in (streams or {}).items()
    }
    frames = {name: one.frame for name, one in described.items()}
    catalogue = Catalogue.of(
        {name: one.named(name) for name, one in described.items()},
        {name: _relation(name, given) for name, given in (tables or {}).items()},
        {name: Function(name, apply, returns) for name, (apply, returns) in (functions or {}).items()},
    )
    queries = {name: parse(one, catalogue, values) for name, one in _texts(text).items()}
    if any(query.explain for query in queries.values()):
        return _explained(queries, frames, slots)
    views = {
        name: _view(query, name, frames, tables or {}, at)
        for name, query in queries.items()
        if isinstance(query.shape, View)
    }
    if isinstance(text, str) and views:
        return next(iter(views.values()))
    flowing = {name: query for name, query in queries.items() if name not in views}
    return Standing(queries, [Opened(one, frames, slots) for one in group(flowing)], views)


def _check_names(option: str, given: Mapping[str, Any], example: str) -> None:
    """Names are texts, and letter case tells none apart: of two that differ by it one would be lost."""
    known: set[str] = set()
    for name in given:
        said: object = name
        if not isinstance(said, str):
            raise BadOption(f"{option} has {said!r}, which is no name.", do=f"Give them by name: {option}={example}.")
        if said.lower() in known:
            raise BadOption(
                f"{option} has {said!r} twice.", why="Letter case does not tell names apart.", do="Leave one out."
            )
        known.add(said.lower())


def _texts(text: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(text, str):
        return {"query": text}
    if not isinstance(text, Mapping | list | tuple):
        raise BadOption(
            f"The query is {kind_of(text)}.",
            do='Give a text, a list of texts, or texts by name: {"large": "SELECT …"}.',
        )
    named_ = dict(text) if isinstance(text, Mapping) else {f"q{n}": one for n, one in enumerate(text, 1)}
    for name in named_:
        if not name.isidentifier():
            raise BadOption(
                f"{name!r} is not a name for a query.", do="Use letters, digits and _: it names a directory."
            )
        if not isinstance(named_[name], str):
            raise BadOption(f"The query {name!r} is {kind_of(named_[name])}.", do="Give a text: SELECT … FROM ….")
    if not named_:
        raise BadOption("There is no query.", do='Give a text, a list of texts, or {"name": text}.')
    return named_


def _explained(queries: Mapping[str, Query], frames: Mapping[str, DataFrame], slots: int | None) -> str:
    session = next((frame.sparkSession for frame in frames.values()), None)
    count = slots or (usual_slots(session) if session is not None else 1)
    asked = {name: query for name, query in queries.items() if query.explain}
    return "\n\n".join(
        explain(query, {other: its for other, its in queries.items() if other != name}, slots=count)
        for name, query in asked.items()
    )


def _relation(name: str, given: Any) -> Relation:
    if isinstance(given, Changing):
        if hasattr(given.base, "sparkSession"):
            return Relation(name, arrow_schema(given.base), given.keys, changes=given.changes is not None)
        found = Relation.of(name, given.base)
        return Relation(name, found.schema, given.keys, found.path, changes=given.changes is not None)
    return Relation.of(name, given)


def _view(
    query: Query,
    name: str,
    frames: Mapping[str, DataFrame],
    tables: Mapping[str, Any],
    at: str | os.PathLike[str] | None,
) -> OperatorView:
    shape = query.shape
    assert isinstance(shape, View)
    if at is None:
        raise BadOption("A view needs a directory.", why="Its groups are kept in files there.", do='Give at="views/".')
    return OperatorView(
        shape.select,
        tables={table: _table_of(table, frames, tables) for table in shape.tables},
        at=Path(at) / (shape.name if shape.name != "view" else name),
        answer_within=timedelta(microseconds=shape.answer_within),
        spark=next((frame.sparkSession for frame in frames.values()), None),
    )


def _table_of(name: str, frames: Mapping[str, DataFrame], tables: Mapping[str, Any]) -> Any:
    """A table as `View` wants it; a stream is one to which its rows are added."""
    if name in frames:
        frame = frames[name]
        base = empty(frame.sparkSession, arrow_schema(frame))
        return Changing(base, changes=inserts(frame, Changing.operation))
    given = tables[name]
    return given.path if isinstance(given, Table) else given
