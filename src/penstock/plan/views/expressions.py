"""The expressions of a view: a few frozen nodes, the only thing that ever becomes an expression of Spark.

A `Column` belongs to an occurrence of a table in FROM, by number. Outputs are expressions over `Key` (a group's key)
and `Total` (an aggregate), both by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

Value = None | bool | int | float | Decimal | str | date | datetime


@dataclass(frozen=True)
class Column:
    """A column of one occurrence of a table."""

    source: int
    name: str


@dataclass(frozen=True)
class Literal:
    """A constant. `kind` keeps 1, 1.0 and TRUE apart, which Python takes for equal."""

    value: Value
    kind: str


@dataclass(frozen=True)
class Call:
    """A function of the allow-list; `detail` is what is no expression: the type of a cast, a pattern, digits."""

    function: str
    arguments: tuple[Expression, ...]
    detail: str = ""


@dataclass(frozen=True)
class Aggregate:
    """COUNT, SUM, AVG, MIN or MAX of an expression; `count` of nothing counts rows."""

    function: str
    argument: Expression | None


@dataclass(frozen=True)
class Key:
    """The group's key with this number."""

    number: int


@dataclass(frozen=True)
class Total:
    """The aggregate with this number."""

    number: int


Expression = Column | Literal | Call | Aggregate | Key | Total


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all its parts."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from walk(argument)
    elif isinstance(expression, Aggregate) and expression.argument is not None:
        yield from walk(expression.argument)


def columns_of(expression: Expression) -> set[Column]:
    """The columns that an expression looks at."""
    return {part for part in walk(expression) if isinstance(part, Column)}


def sources_of(expression: Expression) -> set[int]:
    """The occurrences of tables that an expression looks at."""
    return {column.source for column in columns_of(expression)}


def has_aggregate(expression: Expression) -> bool:
    """Whether an aggregate is part of it."""
    return any(isinstance(part, Aggregate) for part in walk(expression))
