"""How a running group of standing queries learns who is in it: files of changes that Spark reads as a stream.

What the files say, each number by its highest version, is compared with who is registered, and the difference becomes
one more file. So a file that was written before a crash is not written again, one that was not is, and many
registrations are one change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from penstock.kernels.standing.query_table import ID, OP, REMOVE, SET, VERSION
from penstock.plan.query_source import QuerySource
from penstock.plan.standing_queries import StandingQueriesPlan
from penstock.spark.query_changes import ChangeFiles

#: The folder of a group with its changes.
CHANGES = "changes"


def with_changes(plan: StandingQueriesPlan) -> StandingQueriesPlan:
    """The same plan, with all queries brought by a stream of changes."""
    table = plan.queries.table
    assert table is not None
    bounds = [field for field in table.schema if field.name != ID]
    schema = pa.schema([(ID, pa.int64()), (OP, pa.string()), (VERSION, pa.int64()), *bounds])
    return replace(plan, queries=QuerySource(plan.queries.kinds), changes=schema)


def agree(place: Path, schema: pa.Schema, wanted: Mapping[int, tuple[float, ...]]) -> bool:
    """Write what is missing in the changes for these queries to stand, and no others; whether anything was."""
    files = ChangeFiles(place, schema)
    known: dict[int, tuple[str, int]] = {}
    for row in files.rows():
        if row[VERSION] > known.get(row[ID], ("", 0))[1]:
            known[row[ID]] = (row[OP], row[VERSION])
    standing = {number: version for number, (op, version) in known.items() if op == SET}
    new = [number for number in wanted if number not in standing]
    gone = [number for number in standing if number not in wanted]
    if not new and not gone:
        return False
    bounds = schema.names[3:]
    # A range without an end would not be read; what is removed has no range any more.
    rows = [(number, SET, known.get(number, ("", 0))[1] + 1, *wanted[number]) for number in new]
    rows += [(number, REMOVE, standing[number] + 1, *(0.0 for _ in bounds)) for number in gone]
    files.append(lambda _: [dict(zip(schema.names, row, strict=True)) for row in rows])
    return True
