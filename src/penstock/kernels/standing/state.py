"""The chunks of standing queries: rows of a micro-batch, changes to queries (or all of them), as Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.kernels.standing.held import Arrivals
from penstock.kernels.standing.query_set import Change
from penstock.kernels.standing.query_table import ID, VERSION
from penstock.kernels.standing.shape import Shape

_KEY, _TIME, _REMOVED = "__key", "__time", "__removed"


def row_blob(rows: Arrivals) -> pa.Buffer:
    """Rows that wait: keys, values and times, and what results need. Columns go by their places: a stream may have any
    of these names.
    """
    names = [_KEY, *(f"__{n}" for n in range(rows.values.shape[1]))]
    columns = [pa.array(rows.keys), *(pa.array(np.ascontiguousarray(c)) for c in rows.values.T)]
    if len(rows.times):
        names.append(_TIME)
        columns.append(pa.array(rows.times))
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    schema = pa.schema([*fields, *rows.payload.schema])
    return _blob(pa.RecordBatch.from_arrays([*columns, *rows.payload.columns], schema=schema))


def rows_of(blob: pa.RecordBatch, width: int, timed: bool, payload: tuple[str, ...]) -> Arrivals:
    """What `row_blob` wrote, its columns as they lie in the blob."""
    rest = 1 + width + timed
    if (blob.schema.names[:1], blob.schema.names[rest:]) != ([_KEY], [*payload]):
        raise ValueError(f"rows with the columns {', '.join(blob.schema.names)}")
    values = [blob.column(1 + n).to_numpy() for n in range(width)]
    times = blob.column(rest - 1).to_numpy() if timed else np.empty(0, np.int64)
    kept = blob.select(list(range(rest, blob.num_columns)))
    return Arrivals(blob.column(0).to_numpy(), np.stack(values, axis=1), times, kept)


def change_blob(change: Change, shape: Shape) -> pa.Buffer:
    """Queries that were set, and those that were removed."""
    put, removed = len(change.ids), len(change.removed)
    bounds = np.vstack([change.bounds, np.zeros((removed, len(shape.bounds)))])
    columns = {
        ID: np.concatenate([change.ids, change.removed]),
        VERSION: np.concatenate([change.versions, np.zeros(removed, np.int64)]),
        _REMOVED: np.repeat([False, True], [put, removed]),
        **{name: np.ascontiguousarray(bounds[:, at]) for at, name in enumerate(shape.bounds)},
    }
    return _blob(pa.record_batch({name: pa.array(values) for name, values in columns.items()}))


def change_of(blob: pa.Buffer, shape: Shape) -> Change:
    """What `change_blob` wrote."""
    rows = read_blob(blob)
    removed = rows.column(_REMOVED).to_numpy(zero_copy_only=False)
    ids, put = rows.column(ID).to_numpy(), ~removed
    bounds = np.stack([rows.column(name).to_numpy() for name in shape.bounds], axis=1)
    return Change(ids[put], rows.column(VERSION).to_numpy()[put], bounds[put], ids[removed])


def read_blob(blob: pa.Buffer) -> pa.RecordBatch:
    """The one batch of rows in a chunk."""
    return pa.ipc.open_stream(blob).read_next_batch()


def _blob(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()
