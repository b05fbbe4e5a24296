"""Updates on their way into a table: laid out as rows of it, or set aside with the reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import SET_ASIDE, SET_ASIDE_SCHEMA, Emission
from penstock.kernels.subscriptions.codes import encode
from penstock.kernels.subscriptions.groups import Groups
from penstock.kernels.subscriptions.rows import DEAD, EXTRA, F1, F2, FULL, LIVE, ORDER, STALE, STATE, UNKNOWN, P, X, Y
from penstock.kernels.subscriptions.rows import fingerprints as fingerprints_of
from penstock.tables.keys import joinable

I64 = npt.NDArray[np.int64]
Reasons = list[str | None]


@dataclass(frozen=True)
class Columns:
    """Which column of the stream is what. `on` is what a select-join is joined on, in the place of a y."""

    x: str
    key: tuple[str, ...]
    order: str
    y: str | None = None
    deleted: str | None = None
    partition_by: tuple[str, ...] = ()
    x2: str | None = None
    on: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        """Those that are looked at, each once."""
        named = [*self.partition_by, *self.key, *self.on, self.x, self.x2, self.y, self.order, self.deleted]
        return list(dict.fromkeys(name for name in named if name is not None))


def encode_updates(rows: pa.RecordBatch, names: Columns, width: int, groups: Groups) -> tuple[I64, Reasons | None]:
    """The updates that can be used, laid out as rows of the table, and the reasons against the others, if any."""
    count = rows.num_rows
    out = np.zeros((count, width), np.int64)
    bad: dict[str, npt.NDArray[np.bool_]] = {}
    goes = np.zeros(count, np.bool_)
    if names.deleted:
        goes = rows.column(names.deleted).fill_null(False).to_numpy(zero_copy_only=False)
    keys = (*names.partition_by, *names.key)
    out[:, F1], out[:, F2] = _fingerprints(rows, keys, np.zeros(count, np.bool_), bad)
    if names.on:
        out[:, Y], out[:, EXTRA] = _fingerprints(rows, (*names.partition_by, *names.on), goes, bad)
    for place, name in ((X, names.x), (Y, names.y), (ORDER, names.order), (EXTRA, names.x2)):
        if name is None:
            continue
        out[:, place], fine = encode(rows.column(name))
        missing = ~fine if name == names.order else ~fine & ~goes
        if missing.any():
            bad[f"NULL or NaN in {name}"] = missing
    out[:, STATE] = np.where(goes, DEAD, LIVE)
    if not bad:
        _set_groups(out, rows, names, groups)
        return out, None
    reasons: Reasons = [None] * count
    for why, where in bad.items():
        for at in np.flatnonzero(where):
            reasons[at] = reasons[at] or why
    fine = np.array([reason is None for reason in reasons], np.bool_)
    kept = out[fine]
    _set_groups(kept, rows.filter(pa.array(fine)), names, groups)
    return kept, reasons


def _fingerprints(
    rows: pa.RecordBatch, names: tuple[str, ...], spared: npt.NDArray[np.bool_], bad: dict[str, npt.NDArray[np.bool_]]
) -> tuple[I64, I64]:
    """Of some columns; where one of them is no value, that is noted, unless the row is spared."""
    columns = [rows.column(name) for name in names]
    able = joinable(columns)
    if able is not None and (~able & ~spared).any():
        bad[f"NULL or NaN in {', '.join(names)}"] = ~able & ~spared
    return fingerprints_of(columns)


def _set_groups(out: I64, rows: pa.RecordBatch, names: Columns, groups: Groups) -> None:
    if names.partition_by and len(out):
        out[:, P] = groups.of([rows.column(name) for name in names.partition_by])


def in_order(updates: I64) -> I64:
    """The places of updates by their order, ties by content alone: a step that is run again takes them the same way."""
    columns = updates.T
    return np.lexsort((*columns[:ORDER:-1], columns[Y], columns[X], columns[F2], columns[F1], columns[ORDER]))


def verdict_text(verdict: int, most: int) -> str:
    """Why an update was not taken."""
    return {
        STALE: "not newer than what is known of its key",
        UNKNOWN: "a deletion of a key that is not there",
        FULL: f"the table is full: its memory has room for {most:,} rows",
    }[verdict]


def aside(rows: pa.RecordBatch, reasons: Reasons) -> Emission:
    """The rows that have a reason, as they are set aside."""
    bad = [at for at, reason in enumerate(reasons) if reason is not None]
    texts = _texts(rows.take(pa.array(bad, pa.int64())))
    columns = [pa.array([reasons[at] for at in bad], pa.string()), pa.nulls(len(bad), pa.string()), pa.array(texts)]
    return Emission(SET_ASIDE, pa.RecordBatch.from_arrays(columns, schema=SET_ASIDE_SCHEMA))


def _texts(rows: pa.RecordBatch) -> list[str]:
    """Rows as people read them. Through Arrow's own text: some of its times are none that Python has."""
    columns = [_text_of(column) for column in rows.columns]
    return [
        ", ".join(f"{n}={v}" for n, v in zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)
    ]


def _text_of(column: pa.Array) -> list[str]:
    try:
        return [str(text) for text in column.cast(pa.string()).to_pylist()]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return [repr(value.as_py()) for value in column]
