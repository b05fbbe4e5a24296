"""From the text of a query to what is to run: `parse(text, catalogue)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from sqlglot import exp

from penstock.errors import BadSQL
from penstock.plan.views.expressions import Call, Expression, Value
from penstock.sql.catalogue import Catalogue
from penstock.sql.classify import classify
from penstock.sql.dialect import Statement, take_apart
from penstock.sql.reading import Reading
from penstock.sql.rows import type_of
from penstock.sql.shapes import RangeAggregate, Shape, View

#: What a view promises if the text does not say.
ANSWER_WITHIN = 60_000_000


@dataclass(frozen=True)
class Query:
    """A query that can run.

    `columns` is the select list, `filter` what is left of the conditions once the shape has taken its own: both over
    columns numbered by the shape's sources. `schemas` are those sources'. `memory` is in bytes, None if not said.
    """

    text: str
    shape: Shape
    columns: tuple[tuple[str, Expression], ...]
    filter: Expression | None
    schemas: tuple[pa.Schema, ...] = field(repr=False)
    catalogue: Catalogue = field(repr=False)
    memory: int | None = None
    explain: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of its results. A view's are known when it is opened."""
        if isinstance(self.shape, RangeAggregate):
            stream = self.catalogue.stream(self.shape.stream)
            order = stream.schema.field(stream.order or "")
            kind = stream.schema.field(self.shape.y or order.name).type
            return pa.schema(
                [pa.field(order.name, order.type), pa.field(self.columns[0][0], _total_type(self.shape.function, kind))]
            )
        return pa.schema([pa.field(name, type_of(item, self.schemas, self.catalogue)) for name, item in self.columns])


def parse(text: str, catalogue: Catalogue, values: Mapping[str, Value] | None = None) -> Query:
    """The query in a text. `values` are constants that the text knows by name: `low <= risk AND risk <= high`.

    Raises `BadSQL`, which says line and column and shows the place. A name of a column wins over one of `values`.

    >>> streams = {"stock": pa.schema([("symbol", pa.string()), ("per", pa.float64())])}
    >>> parse("SELECT symbol FROM stock WHERE per > 2.5", Catalogue.of(streams)).shape
    Selection(stream='stock')
    """
    statement = take_apart(text, catalogue.functions)
    reading = Reading(statement, catalogue, values or {})
    if _is_view(statement, catalogue):
        return _view(statement, reading, catalogue)
    if "answer" in statement.clauses:
        raise statement.at(
            "answer", "ANSWER WITHIN is for views.", do="Write CREATE VIEW name AS SELECT …, or leave it."
        )
    found = classify(reading.read(), statement, catalogue)
    memory = statement.clauses.get("memory")
    query = Query(
        text,
        found.shape,
        found.columns,
        _all(found.rest),
        tuple(catalogue.source(name).schema for name in found.shape.sources),
        catalogue,
        memory.value if memory else None,
        statement.explain,
    )
    _check_types(query, statement)
    return query


def _total_type(function: str, kind: pa.DataType) -> pa.DataType:
    """The type of an aggregate: a sum has more room than what is added."""
    if function == "count":
        return pa.int64()
    if function == "avg" or (function == "sum" and pa.types.is_floating(kind)):
        return pa.float64()
    if function == "sum":
        return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else pa.int64()
    return kind


def _is_view(statement: Statement, catalogue: Catalogue) -> bool:
    """CREATE VIEW says it is; a SELECT over tables alone can be nothing else."""
    if statement.view is not None:
        return True
    named = [table.name.lower() for table in statement.select.find_all(exp.Table)]
    streams = {name.lower() for name in catalogue.streams}
    tables = {name.lower() for name in catalogue.relations}
    return bool(named) and not streams & set(named) and set(named) <= tables


def _view(statement: Statement, reading: Reading, catalogue: Catalogue) -> Query:
    for clause in ("window", "memory", "shed", "archive"):
        if clause in statement.clauses:
            raise statement.at(clause, f"{clause.upper()} is not for views.", do="A view has ANSWER WITHIN 12 SECONDS.")
    select, tables = reading.read_view()
    answer = statement.clauses.get("answer")
    shape = View(statement.view or "view", select, tables, answer.value if answer else ANSWER_WITHIN)
    schemas = tuple(catalogue.source(name).schema for name in tables)
    return Query(statement.text, shape, (), None, schemas, catalogue, None, statement.explain)


def _all(conditions: tuple[Expression, ...]) -> Expression | None:
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else Call("and", conditions)


def _check_types(query: Query, statement: Statement) -> None:
    """Every column has a type, and so has the filter: told now, not when the first row comes."""
    try:
        names = query.schema.names
        if query.filter is not None:
            type_of(query.filter, query.schemas, query.catalogue)
    except (pa.ArrowException, TypeError) as fault:
        raise BadSQL(
            "Some of it cannot be calculated.",
            why=(str(fault).splitlines() or [""])[0],
            do="Cast one side to the type of the other.",
            text=statement.text,
        ) from None
    assert len(set(names)) == len(names)
