"""What comes in: rows as arrays that strategies work with, changes to queries in the one order that they have.

Rows that no query can want (NULL or NaN where a value is compared) are counted and let go. Rows that cannot be
compared exactly are set aside, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.contract import SET_ASIDE_SCHEMA
from penstock.kernels.row_text import row_texts
from penstock.kernels.standing.held import Arrivals
from penstock.kernels.standing.numbers import to_numbers
from penstock.kernels.standing.query_set import Change, QuerySet
from penstock.kernels.standing.query_table import ID, OP, REMOVE, SET, VERSION, read_bounds
from penstock.kernels.standing.search import Flags
from penstock.kernels.standing.shape import LEFT, SIDES, Shape
from penstock.tables.keys import hash_keys, joinable

#: Changes that are set aside at once.
_ASIDE = 4_096


class Read(NamedTuple):
    """Rows that may meet partners, those to be set aside, and how many were let go."""

    rows: Arrivals
    aside: pa.RecordBatch | None
    unmatched: int


class RowReader:
    """Reads the rows of one side.

    `payload` are the columns that results need of it; `event_time` that of the window, if there is one.
    """

    def __init__(self, shape: Shape, side: int, payload: tuple[str, ...], event_time: str | None) -> None:
        self.side = side
        self.event_time = event_time
        self._on = shape.on[side]
        self._ranges = shape.ranges[side]
        self._payload = payload
        self._negated = not shape.own and side == LEFT
        self._banded = not shape.own

    def read(self, rows: pa.RecordBatch, told: Flags) -> Read:
        """One portion; of what cannot be used, rows that are not `told` are let go."""
        values = np.empty((rows.num_rows, len(self._ranges)))
        able, inexact = np.ones(rows.num_rows, np.bool_), np.zeros(rows.num_rows, np.bool_)
        for at, name in enumerate(self._ranges):
            found = to_numbers(rows.column(name))
            values[:, at] = found.values
            able &= found.able
            inexact |= found.inexact
            if self._banded:
                # The difference of two infinities is nothing that a range could have.
                inexact |= found.able & np.isinf(found.values)
        keys = np.zeros(rows.num_rows, np.uint64)
        if self._on:
            columns = [rows.column(name) for name in self._on]
            keys = hash_keys(columns)
            joins = joinable(columns)
            able = able if joins is None else able & joins
        times = np.zeros(rows.num_rows if self.event_time else 0, np.int64)
        untimed = np.zeros(rows.num_rows, np.bool_)
        if self.event_time:
            column = rows.column(self.event_time)
            times = pc.cast(column, pa.timestamp("us", column.type.tz), safe=False).view(pa.int64())
            untimed = ~times.is_valid().to_numpy(zero_copy_only=False)
            times = times.fill_null(0).to_numpy(zero_copy_only=False)
        aside = able & (inexact | untimed)
        keep = able & ~aside
        payload = rows.select(list(self._payload))
        if not keep.all():
            payload = payload.filter(pa.array(keep))
            keys, values = keys[keep], values[keep]
            times = times[keep] if self.event_time else times
        read = Arrivals(keys, -values if self._negated else values, times, payload)
        return Read(read, self._aside(rows, aside & told, untimed), int((~able & told).sum()))

    def _aside(self, rows: pa.RecordBatch, aside: Flags, untimed: Flags) -> pa.RecordBatch | None:
        if not aside.any():
            return None
        why = ["no event time" if u else "a value that cannot be compared exactly" for u in untimed[aside]]
        return as_set_aside(rows.filter(pa.array(aside)), why, SIDES[self.side])


def as_set_aside(rows: pa.RecordBatch, reasons: list[str], source: str) -> pa.RecordBatch:
    """Rows on the channel for what cannot be used."""
    raw = row_texts(rows)
    return pa.RecordBatch.from_arrays(
        [pa.array(reasons, pa.string()), pa.array([source] * len(raw), pa.string()), pa.array(raw, pa.string())],
        schema=SET_ASIDE_SCHEMA,
    )


def joined(parts: list[Arrivals], like: Arrivals) -> Arrivals:
    """All rows of one side in one piece."""
    if not parts:
        return like
    keys, values, times, payloads = zip(*parts, strict=True)
    return Arrivals(np.concatenate(keys), np.concatenate(values), np.concatenate(times), pa.concat_batches(payloads))


class Changed(NamedTuple):
    """Changes that take effect, those that cannot be, and how many others of the micro-batch replaced or undid."""

    change: Change
    aside: Iterator[pa.RecordBatch]
    superseded: int


def read_changes(parts: list[pa.RecordBatch], standing: QuerySet, reach: tuple[float, float] | None = None) -> Changed:
    """The changes of one micro-batch, whatever order they came in.

    Of several for one query the one with the highest version counts. One that is not newer than what stands is stale.
    """
    rows = pa.concat_batches(parts)
    bounds, faults = read_bounds(rows, standing.shape.bounds)
    if reach is not None:
        faults.append(("a band beyond the reach", (bounds[:, 0] < reach[0]) | (bounds[:, 1] > reach[1])))
    named = (pc.is_valid(rows.column(name)).to_numpy(zero_copy_only=False) for name in (ID, VERSION))
    ids, versions = (pc.cast(rows.column(name), pa.int64()).fill_null(0).to_numpy() for name in (ID, VERSION))
    put, gone = (pc.equal(rows.column(OP), op).fill_null(False).to_numpy(zero_copy_only=False) for op in (SET, REMOVE))
    reasons = [
        ("a change without id or version", ~np.logical_and(*named)),
        (f"an op that is neither {SET!r} nor {REMOVE!r}", ~put & ~gone),
        *((why, flags & put) for why, flags in faults),
    ]
    sound = np.flatnonzero(~np.any([flags for _, flags in reasons], axis=0))
    # What stands in a bound that a removal does not need must not decide between two of them.
    deciding = np.where(gone[:, None], 0.0, bounds)[sound]
    sound = sound[np.lexsort((*deciding.T[::-1], gone[sound], versions[sound], ids[sound]))]
    ends = np.append(ids[sound][1:] != ids[sound][:-1], True)[: len(sound)]
    last = sound[ends]
    slots = standing.find_all(ids[last])
    unknown = gone[last] & (slots < 0)
    # It came and went within the micro-batch: nothing is wrong, and nothing is to be done.
    passed = unknown & np.isin(ids[last], ids[sound[put[sound]]])
    stale = (slots >= 0) & (versions[last] <= standing.versions[slots]) if len(standing.versions) else slots >= 0
    for why, which in (("no such query stands", unknown & ~passed), ("older than what stands", stale)):
        flags = np.zeros(len(ids), np.bool_)
        flags[last[which]] = True
        reasons.append((why, flags))
    chosen = np.sort(last[~unknown & ~stale])
    come, go = chosen[put[chosen]], chosen[gone[chosen]]
    change = Change(ids[come], versions[come], bounds[come], ids[go])
    return Changed(change, _changes_aside(rows, reasons), len(sound) - len(last) + int(passed.sum()))


def _changes_aside(rows: pa.RecordBatch, reasons: list[tuple[str, Flags]]) -> Iterator[pa.RecordBatch]:
    """What cannot be, each with the first reason, in pieces: as text it is many times as large."""
    wrong = np.flatnonzero(np.any([flags for _, flags in reasons], axis=0))
    for begin in range(0, len(wrong), _ASIDE):
        piece = wrong[begin : begin + _ASIDE]
        why = [next(why for why, flags in reasons if flags[at]) for at in piece]
        yield as_set_aside(rows.take(pa.array(piece)), why, "changes")
