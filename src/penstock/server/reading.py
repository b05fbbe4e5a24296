"""A query's own results: the group's committed batches, seen through its filter and select list.

An offset is a batch and a row of the query's own rows in it. What lies behind one never changes, so an offset that a
client remembers leads to the same rows after any crash of either side.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
import re
import threading
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from penstock.errors import BadOption, ResultsGone
from penstock.kernels.row_text import plain_values
from penstock.server.books import Entry
from penstock.server.committed import Committed
from penstock.sql.answers import Answer, answer_of
from penstock.sql.parse import Query
from penstock.sql.shapes import RangeAggregate

#: Places in the messages of an aggregate from which can be gone on.
_KNOWN = 64


class Offset(NamedTuple):
    """The place before a row."""

    batch: int
    row: int

    def __str__(self) -> str:
        return f"{self.batch}-{self.row}"

    def told(self, owner: str) -> str:
        """As a client keeps it: with the registration that it belongs to, because a name may be another's later."""
        return f"{owner}.{self}"

    @classmethod
    def of(cls, text: str, owner: str) -> Offset:
        """As it was told of this registration.

        >>> Offset.of("f3b1-3.12-5", "f3b1-3")
        Offset(batch=12, row=5)
        """
        found = re.fullmatch(r"(?:([\w-]+)\.)?(\d{1,15})-(\d{1,15})", text)
        if found is None:
            raise BadOption(f"{text[:40]!r} is not an offset.", do="Give one that the server gave, as it was.")
        if found[1] is not None and found[1] != owner:
            raise ResultsGone(
                f"{text} is an offset of another query, which had this name before.",
                why="That one was removed, or was in another folder, and its results with it.",
                do="Begin anew, without an offset.",
            )
        return cls(int(found[2]), int(found[3]))


class Reader(Protocol):
    """What a query makes of a batch of its group's results."""

    @property
    def schema(self) -> pa.Schema:
        """The query's columns."""

    def rows(self, batch: int, results: pa.Table) -> pa.Table:
        """Its rows of a batch, in an order that does not change."""


@dataclass(frozen=True)
class Everything:
    """All rows and columns of the group: the query is alone in it."""

    schema: pa.Schema

    def rows(self, batch: int, results: pa.Table) -> pa.Table:
        """As they are."""
        return results


@dataclass(frozen=True)
class AnswerReader:
    """The filter and select list of a query as text."""

    answer: Answer

    @property
    def schema(self) -> pa.Schema:
        """The select list."""
        return self.answer.schema

    def rows(self, batch: int, results: pa.Table) -> pa.Table:
        """Its rows."""
        parts = [self.answer(part) for part in results.to_batches()]
        return pa.Table.from_batches(parts, schema=self.schema)


class RangeReader:
    """The answers of an aggregate over a range, which follow from all messages since the group began.

    A query that came later begins with the answer of that moment: one row, in the batch `since`.

    State and cost
        What was known before some batches, so that each of those who read, at places of their own, goes on from there;
        who begins anew costs all messages once.
    """

    def __init__(self, query: Query, entry: Entry, committed: Committed) -> None:
        self._query = query
        self._entry = entry
        self._committed = committed
        self.schema = query.schema
        self._answer = answer_of(query)
        #: What was known after a batch; those last used are last.
        self._known: dict[int, bytes] = {-1: self._answer.state()}
        self._begin: pa.Table | None = None
        assert isinstance(query.shape, RangeAggregate)
        self._remembers = query.shape.function not in ("min", "max")
        self._lock = threading.Lock()

    def rows(self, batch: int, results: pa.Table) -> pa.Table:
        """The changes of a batch; of the first of a query that came later, the last of them."""
        with self._lock:
            if not (batch == self._entry.since and self._entry.begins_with_answer):
                self._go_to(batch)
                found = self._of(results)
                self._note(batch)
                return found
            if self._begin is None:
                self._begin = self._last_answer(batch, results)
            return self._begin

    def _go_to(self, batch: int) -> None:
        """Know what is to be known before a batch; of MIN and MAX, messages say it all."""
        if not self._remembers:
            return
        done = max(number for number in self._known if number < batch)
        self._answer.restore(self._known[done])
        while (before := self._committed.following(done + 1)) is not None and before < batch:
            self._of(self._committed.read(before))
            done = before
        self._note(batch - 1)

    def _last_answer(self, batch: int, results: pa.Table) -> pa.Table:
        """The last change up to a batch, which may be in any before it."""
        last = self.schema.empty_table()
        self._answer.restore(self._known[-1])
        before = self._committed.following(0)
        while before is not None and before < batch:
            made = self._of(self._committed.read(before))
            last = made if made.num_rows else last
            before = self._committed.following(before + 1)
        made = self._of(results)
        last = made if made.num_rows else last
        self._note(batch)
        return last.slice(max(0, last.num_rows - 1))

    def _of(self, messages: pa.Table) -> pa.Table:
        return pa.Table.from_batches([self._answer(part) for part in messages.to_batches()], schema=self.schema)

    def _note(self, batch: int) -> None:
        self._known.pop(batch, None)
        self._known[batch] = self._answer.state()
        while len(self._known) > _KNOWN:
            self._known.pop(next(number for number in self._known if number >= 0))


@dataclass(frozen=True)
class Page:
    """Some rows, the offset behind them, and whether more are there already."""

    rows: pa.Table
    next: Offset
    more: bool


def read_page(
    committed: Committed, reader: Reader, after: Offset | None, limit: int, since: int, until: int | None
) -> Page:
    """At most `limit` rows from an offset on, of batches from `since` and up to `until`."""
    while True:
        first = Offset(max(since, committed.first), 0)
        if after is not None and since <= after.batch < committed.first:
            raise ResultsGone(
                f"Results before batch {committed.first} are no longer kept; batch {after.batch} was asked for.",
                do=f"Go on from {first}; what lies between is lost to this reader.",
            )
        begin = max(after or first, first)
        try:
            page = _page(committed, reader, begin, limit, until)
        except FileNotFoundError:
            if committed.first <= begin.batch:
                raise
            continue
        if committed.first <= begin.batch:
            return page
        # Some of it was deleted meanwhile, and rows may be missing.


def _page(committed: Committed, reader: Reader, at: Offset, limit: int, until: int | None) -> Page:
    end = committed.last if until is None else min(until, committed.last)
    parts: list[pa.Table] = []
    left = limit
    while left > 0:
        batch = committed.following(at.batch)
        if batch is None or batch > end:
            at = max(at, Offset(end + 1, 0)) if at.batch <= end else at
            break
        at = at if batch == at.batch else Offset(batch, 0)
        mine = reader.rows(batch, committed.read(batch))
        taken = mine.slice(at.row, left)
        left -= taken.num_rows
        parts.append(taken)
        row = at.row + taken.num_rows
        at = Offset(batch + 1, 0) if row >= mine.num_rows else Offset(batch, row)
    following = committed.following(at.batch)
    more = following is not None and following <= end
    return Page(pa.concat_tables([reader.schema.empty_table(), *parts]), at, more)


def as_json(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON has them: times as ISO 8601, decimals and numbers that are none as text, bytes as base64."""
    names = rows.column_names
    columns = [_plain(column) for column in rows.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)] if names else []


def _plain(column: pa.ChunkedArray) -> list[Any]:
    kind, values = column.type, plain_values(column)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return values
    return [_value(value) for value in values]


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | dt.timedelta):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {key: _value(item) for key, item in value.items()}
    return value
