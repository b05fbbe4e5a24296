"""What the results of a table join have: which rows, and which columns."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from penstock.kernels.mesh.condition import Condition, Equal
from penstock.tables.base import Table

How = Literal["inner", "left", "semi", "anti"]
_EQUAL = Equal(())


def carried(table: Table, condition: Condition) -> list[str]:
    """The table's columns in a result: all but a key that equals the stream's."""
    return [name for name in table.schema.names if not (condition.by_key and name in table.key)]


def results_schema(stream: pa.Schema, table: Table, condition: Condition = _EQUAL, how: How = "inner") -> pa.Schema:
    """The stream's columns, then those that the table adds."""
    if how in ("semi", "anti"):
        return stream
    return pa.schema([*stream, *(table.schema.field(name) for name in carried(table, condition))])
