"""Conditions beyond equality: bands, ranges, and any predicate. The window is kept in the order of its values.

For each row of a page a run of that order holds its partners: found by two binary searches for a band or a range, and
simply all of it for a predicate, which then decides pair by pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from penstock.errors import BadOption, PenstockError, PlanError, PredicateFailed, UnknownColumn, UnsupportedType
from penstock.kernels.function_text import function_text
from penstock.kernels.mesh.condition import FAILED, Condition, Organised, Waiting, type_fault
from penstock.kernels.mesh.index import I32, I64
from penstock.kernels.row_text import plain_rows
from penstock.tables.base import Page, PageReader, Table
from penstock.tables.keys import column_kind
from penstock.tables.numbers import ORDERED, numbers

Numbers = npt.NDArray[Any]
Distance = int | float | timedelta
#: Pairs that a predicate is asked about at once, at the most.
MOST_CANDIDATES = 65_536
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Band(Condition):
    """The table's key lies within `below` and `above` of the stream's value: `value - below <= key <= value + above`.

    Example::

        quotes = ps.table("quotes/", key="quoted_at")
        ps.join_table(trades, quotes, on=ps.band("traded_at", below=timedelta(seconds=5), above=0), memory="64MB")
    """

    column: str
    below: Distance
    above: Distance

    row_bytes = 32

    @property
    def on(self) -> tuple[str, ...]:  # type: ignore[override]
        """The one column."""
        return (self.column,)

    def faults(self, stream: pa.Schema, table: Table) -> list[PenstockError]:
        """Columns that are no numbers or times, distances that do not fit them."""
        if len(table.key) != 1:
            return [PlanError(f"A band compares with one column, and the key of {table.path} has {len(table.key)}.")]
        found = _order_faults(stream, self.column, table, table.key)
        if not found:
            kind = column_kind(stream, self.column, "The stream")
            found = [
                fault for side in ("below", "above") if (fault := _distance_fault(side, getattr(self, side), kind))
            ]
        if not found and _distance(self.below) + _distance(self.above) < 0:
            found.append(BadOption(f"No value is within below={self.below} and above={self.above} of another."))
        return found

    def organise(self, waiting: Waiting) -> Organised:
        """In the order of the column: a key has as partners the values whose band it lies in."""
        return _Ordered(waiting, self.column, _distance(self.below), _distance(self.above))

    def page_bytes(self, page: Page) -> int:
        """The key and the runs."""
        return page.hash_bytes + 40 * page.rows

    def describe(self, key: tuple[str, ...]) -> str:
        """As SQL has it."""
        return f"{key[0]} between {self.column} - {self.below} and {self.column} + {self.above}"


@dataclass(frozen=True)
class Range(Condition):
    """The stream's value lies in the table's range, whose two ends are its key: `low <= value <= high`.

    Example::

        zones = ps.table("zones/", key=["first_ip", "last_ip"])
        ps.join_table(visits, zones, on=ps.range("ip"), memory="64MB")
    """

    column: str

    row_bytes = 32

    @property
    def on(self) -> tuple[str, ...]:  # type: ignore[override]
        """The one column."""
        return (self.column,)

    def faults(self, stream: pa.Schema, table: Table) -> list[PenstockError]:
        """Columns that are no numbers or times, or a key that has not two of them."""
        if len(table.key) != 2:
            return [
                PlanError(
                    f"A range has two ends, and the key of {table.path} has {len(table.key)} columns.",
                    do='Open the table with the columns of both: penstock.table(path, key=["low", "high"]).',
                )
            ]
        return _order_faults(stream, self.column, table, table.key)

    def organise(self, waiting: Waiting) -> Organised:
        """In the order of the column."""
        return _Ordered(waiting, self.column)

    def page_bytes(self, page: Page) -> int:
        """Both ends, and the runs."""
        return page.hash_bytes + 48 * page.rows

    def describe(self, key: tuple[str, ...]) -> str:
        """As SQL has it."""
        return f"{self.column} between {key[0]} and {key[1]}"


@dataclass(frozen=True)
class Where(Condition):
    """A function of two record batches, one pair a row, says which pairs belong together.

    The first has columns `on` of the stream, the second the table's key columns. Every waiting row is compared with
    every row of the table: `candidates` is how many pairs are handed over at once. A function that raises stops the
    query, or, with `on_error="set_aside"`, sends the stream's row with the error to channel `set_aside`; results that
    the row gave before remain. A restart with another function is refused, as far as `function_text` notices.

    Example::

        def near(visits, shops):
            return pc.less(distance(visits["at"], shops["place"]), 100)


        ps.join_table(visits, shops, on=ps.where(near, on=["at"]), memory="64MB")
    """

    #: A function of two record batches that gives a truth value for each pair.
    predicate: Any
    on: tuple[str, ...]
    candidates: int = MOST_CANDIDATES
    on_error: str = "stop"
    #: The function as it was when the join was planned: workers run it, and it may change what it holds.
    told: str = field(init=False)

    row_bytes = 8
    flags = True
    thrift = "ask about fewer pairs at once: where(…, candidates=1024)"

    def __post_init__(self) -> None:
        object.__setattr__(self, "told", function_text(self.predicate))

    def able(self, rows: pa.RecordBatch) -> None:
        """What a predicate makes of NULL is its own affair."""
        return

    def faults(self, stream: pa.Schema, table: Table) -> list[PenstockError]:
        """Columns that are missing, a limit that is none."""
        found: list[PenstockError] = []
        for name in self.on:
            try:
                stream.field(name)
            except KeyError:
                found.append(UnknownColumn.among(name, stream.names, "The stream"))
        if not callable(self.predicate):
            found.append(
                BadOption(f"{self.predicate!r} cannot be called.", do="Give a function of two record batches.")
            )
        if not 1 <= self.candidates <= MOST_CANDIDATES:
            found.append(
                BadOption(f"candidates={self.candidates} is not possible.", do=f"Give from 1 to {MOST_CANDIDATES:,}.")
            )
        if self.on_error not in ("stop", "set_aside"):
            found.append(BadOption(f"on_error={self.on_error!r} is unknown.", do='Give "stop" or "set_aside".'))
        return found

    def organise(self, waiting: Waiting) -> Organised:
        """As they came."""
        return _Tried(waiting, self)

    def page_bytes(self, page: Page) -> int:
        """The key columns and two batches of candidates."""
        each = page.row_bytes // max(page.rows, 1)
        return page.row_bytes + 16 * page.rows + self.candidates * (each + 32)

    def identity(self) -> Mapping[str, str]:
        """Which function it is."""
        return {"predicate": self.told}

    def describe(self, key: tuple[str, ...]) -> str:
        """The function's name."""
        return f"{getattr(self.predicate, '__name__', 'predicate')}({', '.join(self.on)}; {', '.join(key)})"


class _Ordered(Organised):
    """Waiting rows in the order of one column, each reaching from `value - below` to `value + above`.

    A row of the table has one key, or two that are the ends of a range; its partners reach it. Rounding keeps the order
    of numbers, so both ends of all reaches ascend with the values, and a partner is just what the condition says.
    """

    def __init__(self, waiting: Waiting, column: str, below: float = 0, above: float = 0) -> None:
        values = np.concatenate([numbers(piece.column(column))[0] for _, piece in waiting.parts()])
        order = np.argsort(values, kind="stable")
        values = values[order]
        if values.dtype != np.float64 and min(below, above) < 0:
            # A band that begins or ends beyond all numbers holds none.
            first = np.searchsorted(values, min(_LEAST - min(int(above), 0), _MOST), "left")
            last = np.searchsorted(values, max(_MOST + min(int(below), 0), _LEAST), "right")
            order, values = order[first:last], values[first:last]
        self._order: I32 = order.astype(np.int32)
        self._from = _shifted(values, -below) if below else values
        self._to = _shifted(values, above) if above else values

    def may_meet(self, page: Page, reader: PageReader) -> bool:
        low, high = (page.spans[0], page.spans[-1]) if page.spans else (None, None)
        if low is None or high is None:
            return True
        return bool(np.searchsorted(self._to, low[0], "left") < np.searchsorted(self._from, high[1], "right"))

    def pairs(self, reader: PageReader, page: Page, first_live: int, size: int) -> Iterator[tuple[I64, I64]]:
        keys = reader.keys(page)
        (low, some), (high, others) = numbers(keys.column(0)), numbers(keys.column(keys.num_columns - 1))
        begins = np.searchsorted(self._to, low, "left").astype(np.int32)
        ends = np.searchsorted(self._from, high, "right").astype(np.int32)
        ends[~(some & others)] = 0
        yield from _expand(begins, ends, self._order, first_live, size)


class _Tried(Organised):
    """Waiting rows as they came; a predicate is asked of every pair."""

    def __init__(self, waiting: Waiting, condition: Where) -> None:
        self._waiting = waiting
        self._condition = condition
        self._order = np.arange(waiting.size, dtype=np.int32)
        self._failed: dict[int, str] = {}

    def pairs(self, reader: PageReader, page: Page, first_live: int, size: int) -> Iterator[tuple[I64, I64]]:
        keys = reader.keys(page)
        begins = np.zeros(page.rows, np.int32)
        ends = np.full(page.rows, len(self._order), np.int32)
        at_once = min(size, self._condition.candidates)
        for page_rows, window_rows in _expand(begins, ends, self._order, first_live, at_once):
            live = self._able(window_rows)
            page_rows, window_rows = page_rows[live], window_rows[live]
            if not len(window_rows):
                continue
            kept = self._ask(keys, page_rows, window_rows)
            if kept.any():
                yield page_rows[kept], window_rows[kept]

    def failed(self) -> list[tuple[int, str]]:
        found = list(self._failed.items())
        self._failed.clear()
        return found

    def _able(self, window_rows: I64) -> npt.NDArray[np.bool_]:
        able: npt.NDArray[np.bool_] = self._waiting.flags[window_rows] & FAILED == 0
        return able & ~np.isin(window_rows, list(self._failed)) if self._failed else able

    def _ask(self, keys: pa.RecordBatch, page_rows: I64, window_rows: I64) -> npt.NDArray[np.bool_]:
        try:
            return self._decided(keys, page_rows, window_rows)
        except Exception as error:
            if self._condition.on_error == "stop":
                row = plain_rows(self._waiting.take(window_rows[:1], self._condition.on))[0]
                raise PredicateFailed(
                    f"The predicate of this join raised {type(error).__name__}: {error}",
                    why=f"It was asked about {len(window_rows)} pairs, the first with {row}.",
                    do='Mend it, or give where(…, on_error="set_aside") to go on without the rows it fails for.',
                ) from error
        # Which row is to blame is found by asking for each alone.
        kept = np.zeros(len(window_rows), np.bool_)
        for row in np.unique(window_rows):
            here = np.flatnonzero(window_rows == row)
            try:
                kept[here] = self._decided(keys, page_rows[here], window_rows[here])
            except Exception as error:
                self._failed[int(row)] = f"the predicate raised {type(error).__name__}: {error}"
        return kept

    def _decided(self, keys: pa.RecordBatch, page_rows: I64, window_rows: I64) -> npt.NDArray[np.bool_]:
        ours = self._waiting.take(window_rows, self._condition.on)
        said = self._condition.predicate(ours, keys.take(pa.array(page_rows)))
        if isinstance(said, (pa.Array, pa.ChunkedArray)):
            said = said.fill_null(False).to_numpy(zero_copy_only=False)
        mask = np.asarray(said)
        if mask.dtype != np.bool_ or mask.shape != window_rows.shape:
            raise TypeError(f"it must give {len(window_rows)} truth values, not {mask.dtype} of shape {mask.shape}")
        return mask


def _expand(begins: I32, ends: I32, order: I32, first_live: int, size: int) -> Iterator[tuple[I64, I64]]:
    page_rows, window_rows = np.empty(size, np.int64), np.empty(size, np.int64)
    row, place = 0, 0
    while row < len(begins):
        count, row, place = _fill(begins, ends, order, first_live, row, place, page_rows, window_rows)
        if count:
            yield page_rows[:count], window_rows[:count]


@njit(cache=True)
def _fill(
    begins: I32, ends: I32, order: I32, first_live: int, row: int, place: int, page_rows: I64, window_rows: I64
) -> tuple[int, int, int]:
    found = 0
    room = page_rows.size
    for r in range(row, begins.size):
        for at in range(max(begins[r], place), ends[r]):
            if order[at] >= first_live:
                if found == room:
                    return found, r, at
                page_rows[found] = r
                window_rows[found] = order[at]
                found += 1
        place = 0
    return found, begins.size, 0


def _shifted(values: Numbers, by: int | float) -> Numbers:
    """The values moved, as far as there are numbers."""
    if values.dtype == np.float64:
        with np.errstate(over="ignore"):
            return values + by
    left = min(max(int(by), 2 * _LEAST), 2 * _MOST + 1)
    while left:  # from one end of all numbers to the other is further than any of them
        step = min(max(left, -_MOST), _MOST)
        values = (np.minimum(values, _MOST - step) if step > 0 else np.maximum(values, _LEAST - step)) + step
        left -= step
    return values


def _distance(value: Distance) -> int | float:
    """In the units of the column: microseconds for times, days for dates."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return value


def _distance_fault(side: str, value: Distance, kind: str) -> PenstockError | None:
    if kind.startswith("timestamp"):
        fits, want = isinstance(value, timedelta) or value == 0, "a timedelta"
    elif kind == "float":
        fits, want = isinstance(value, (int, float)) and math.isfinite(value), "a finite number"
    else:
        fits, want = isinstance(value, int), "a whole number" + (" of days" if kind == "date" else "")
    return None if fits else BadOption(f"{side}={value!r} is not a distance between {kind}s.", do=f"Give {want}.")


def _order_faults(stream: pa.Schema, column: str, table: Table, key: tuple[str, ...]) -> list[PenstockError]:
    found = [fault for name in key if (fault := type_fault(stream, column, table, name)) is not None]
    if not found and column_kind(stream, column, "The stream") not in ORDERED:
        kind = column_kind(stream, column, "The stream")
        found.append(
            UnsupportedType(
                f"{column!r} is a {kind}, and bands and ranges are of numbers, dates and times.",
                do="Cast it, or join by penstock.where(…).",
            )
        )
    return found
