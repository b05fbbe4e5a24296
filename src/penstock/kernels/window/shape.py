"""The columns of a stream join: what goes into results, and what the archive adds to rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import PredicateFailed
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA
from penstock.kernels.window.windows import LEFT, RIGHT

How = Literal["inner", "left", "right", "full"]

LATE = ("late_left", "late_right")
ARCHIVE = ("archive_left", "archive_right")
RESIDENCE = "residence"
#: What the archive says of a row beside its own columns: its event time in microseconds, the slot it belongs to, its
#: number among the rows of its side there, how many rows of the other side were before it, and the step in which it
#: came; where it was shed before it reached the join, it left before the first step, and why is said.
NOTES = pa.schema(
    [
        ("_time", pa.int64()),
        ("_slot", pa.int32()),
        ("_number", pa.int64()),
        ("_before", pa.int64()),
        ("_entered", pa.int64()),
        ("_left", pa.int64()),
        ("_reason", pa.string()),
    ]
)
#: Rows that left memory before they left the window, and the last step in which they were there. Where event time has
#: come further by rows that are not in the archive, a note of no row says how far, as `_left`.
RESIDENCE_SCHEMA = pa.schema(
    [
        ("_side", pa.int32()),
        ("_slot", pa.int32()),
        ("_number", pa.int64()),
        ("_left", pa.int64()),
        ("_reason", pa.string()),
    ]
)


@dataclass(frozen=True)
class Shape:
    """Two sides, the pairs of columns that are equal, and the kind of the join."""

    left: pa.Schema
    right: pa.Schema
    on: tuple[tuple[str, str], ...]
    how: How = "inner"

    @property
    def sides(self) -> tuple[pa.Schema, pa.Schema]:
        """Left, right."""
        return self.left, self.right

    @cached_property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The key columns of each side."""
        return tuple(ours for ours, _ in self.on), tuple(theirs for _, theirs in self.on)

    @cached_property
    def carried(self) -> tuple[str, ...]:
        """The right side's columns in a result: all but key columns with the same name on the left."""
        shared = {theirs for ours, theirs in self.on if ours == theirs}
        return tuple(name for name in self.right.names if name not in shared)

    @cached_property
    def results(self) -> pa.Schema:
        """The left side's columns, then those that the right adds."""
        fields = [*self.left, *(self.right.field(name) for name in self.carried)]
        return pa.schema([field.with_nullable(True).remove_metadata() for field in fields])

    def outer(self, side: int) -> bool:
        """Whether rows of a side without partner are results."""
        return self.how == "full" or self.how == ("left" if side == LEFT else "right")

    def pairs(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        """Results from rows side by side."""
        columns = [*left.columns, *(right.column(name) for name in self.carried)]
        return pa.RecordBatch.from_arrays(columns, schema=self.results)

    def alone(self, side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Results from rows without partner: NULL for the other side, but the key is theirs."""
        if side == RIGHT:
            theirs = dict(self.on)
            columns = [
                rows.column(theirs[field.name]).cast(field.type)
                if theirs.get(field.name) == field.name
                else pa.nulls(rows.num_rows, field.type)
                for field in self.left
            ]
            columns += [rows.column(name) for name in self.carried]
        else:
            columns = [*rows.columns, *(pa.nulls(rows.num_rows, self.right.field(n).type) for n in self.carried)]
        return pa.RecordBatch.from_arrays(columns, schema=self.results)

    def channels(self, *, late: bool, archive: bool) -> dict[str, pa.Schema]:
        """What leaves a join of this shape, by channel."""
        found = {RESULTS: self.results, SET_ASIDE: SET_ASIDE_SCHEMA}
        if late:
            found |= {LATE[side]: self.sides[side] for side in (LEFT, RIGHT)}
        if archive:
            found |= {ARCHIVE[side]: self.archived(side) for side in (LEFT, RIGHT)} | {RESIDENCE: RESIDENCE_SCHEMA}
        return found

    def archived(self, side: int) -> pa.Schema:
        """A row as the archive has it."""
        return pa.schema([*(field.with_nullable(True) for field in self.sides[side]), *NOTES])


def truths(condition: Callable[..., Any], *given: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """What a condition says of each row that it is given, NULL for no.

    >>> truths(lambda rows: pa.array([True, None]), pa.record_batch({"n": [1, 2]}))
    array([ True, False])
    """
    rows = given[0].num_rows
    try:
        said = condition(*given)
        if isinstance(said, pa.ChunkedArray):
            said = said.combine_chunks()
        if isinstance(said, pa.Array):
            said = said.fill_null(False).to_numpy(zero_copy_only=False)
        found = np.asarray(said, np.bool_)
    except Exception as error:
        raise PredicateFailed(
            f"The condition of this join raised {type(error).__name__}: {error}",
            why=f"It was asked about {rows} rows with the columns {' and '.join(str(g.schema.names) for g in given)}.",
            do="Mend it, and start again with the same checkpoint: nothing of this micro-batch was committed.",
        ) from error
    if found.size != rows:
        # One value for all would be taken for the value of each.
        raise PredicateFailed(
            f"The condition of this join gave {found.size} value{'s' * (found.size != 1)} for {rows} rows.",
            why="Which of them are results cannot be decided by that.",
            do="Return an array with a truth value for each, for example pyarrow.compute.less(left['a'], right['b']).",
        )
    return found.reshape(rows)
