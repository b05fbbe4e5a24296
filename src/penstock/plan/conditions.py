"""Join conditions beyond equality, as users write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyarrow as pa

from penstock.errors import BadOption
from penstock.kernels.mesh.as_of import AsOf
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.ordered import MOST_CANDIDATES, Band, Distance, Range, Where
from penstock.kernels.mesh.similar import Similar
from penstock.plan.given import column_names


def as_of(on: str | Sequence[str], *, time: str, since: str, until: str) -> AsOf:
    """The row of a key that was valid at the stream row's own time: `since <= time < until`, NULL meaning for ever.

    `on` are the stream's columns that equal the table's key, `time` the stream's column with the moment, `since` and
    `until` the table's columns with the validity of each of its rows.

    >>> as_of("customer", time="ordered_at", since="valid_from", until="valid_to").describe(("customer",))
    'customer = customer and valid_from <= ordered_at < valid_to'
    """
    return AsOf(Equal(_some_columns(on)), _column(time), _column(since), _column(until))


def band(column: str, *, below: Distance, above: Distance) -> Band:
    """The table's key lies close to the stream's value: `column - below <= key <= column + above`.

    Distances are numbers for numbers, days for dates, timedeltas for times.

    >>> band("price", below=0.5, above=0.5).describe(("limit",))
    'limit between price - 0.5 and price + 0.5'
    """
    return Band(_column(column), below, above)


def range(column: str) -> Range:  # noqa: A001
    """The stream's value lies in a range of the table, whose key is its two ends: `low <= column <= high`.

    >>> range("ip").describe(("first", "last"))
    'ip between first and last'
    """
    return Range(_column(column))


def similar(column: str, *, at_least: float, candidates: int | None = None) -> Similar:
    """The stream's text is like the table's key: of their three-letter pieces, at least this part is in both.

    Upper and lower case are alike. `candidates` is required: how many rows of a page of the table a row may share a
    piece with; one that has more is set aside.

    >>> similar("name", at_least=0.6, candidates=1000).describe(("name",))
    'name alike name, at least 0.6'
    """
    numbers = {
        "at_least": (at_least, int | float, "a number"),
        "candidates": (candidates, int | None, "a whole number"),
    }
    for name, (given, kind, what) in numbers.items():
        if isinstance(given, bool) or not isinstance(given, kind):
            raise BadOption(f"{name}={given!r} is not {what}.", do="Write at_least=0.6, candidates=1000.")
    return Similar(_column(column), at_least, candidates)


def where(
    predicate: Callable[[pa.RecordBatch, pa.RecordBatch], Any],
    *,
    on: str | Sequence[str],
    candidates: int = MOST_CANDIDATES,
    on_error: Literal["stop", "set_aside"] = "stop",
) -> Where:
    """Whatever a function says.

    It is given two record batches of equal length, one pair a row: columns `on` of the stream, and the table's key. It
    returns a truth value for each pair (Arrow or NumPy). Every row of the stream is compared with every row of the
    table, `candidates` pairs at a time, so this is for conditions that nothing else can express. If it raises, the
    query stops, or with `on_error="set_aside"` the stream's row goes to channel `set_aside` with the error.

    A checkpoint belongs to one function: a restart with another is refused. The function is known by its qualified
    name, its compiled code, and plain values that it has from around it (numbers, texts, and lists or dictionaries of
    them). Changes in functions that it calls, in other objects and in files it reads are not noticed, and with another
    minor version of Python its code is another.

    >>> where(lambda ours, theirs: ours["a"] == theirs["b"], on="a").on
    ('a',)
    """
    return Where(predicate, _some_columns(on), candidates, on_error)


def _column(name: str) -> str:
    if not isinstance(name, str):
        raise BadOption(
            f"{name!r} is not a column.", do="Name one column by a text, as the stream or the table has it."
        )
    return name


def _some_columns(on: str | Sequence[str]) -> tuple[str, ...]:
    names = column_names(on)
    if not names:
        raise BadOption(f"on={on!r} does not name columns.", do="Name one column of the stream, or a list of them.")
    return names
