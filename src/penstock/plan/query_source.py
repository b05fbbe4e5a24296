"""Where the first standing queries come from: a few in memory, or a Parquet file or folder that the workers read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import BadOption, TableChanged, UnreadableTable
from penstock.kernels.standing.query_table import ID, Queries, check_columns, read_queries
from penstock.tables.find import local, plain_files

#: Queries given as a table travel with every task; more than this does not.
INLINE = 4 << 20


@dataclass(frozen=True)
class QuerySource:
    """Queries to start with, checked where the plan is made, read again by each worker that needs them.

    `kinds` says what each bound is to be; `files` has path, size and time of each file.
    """

    kinds: dict[str, str]
    table: pa.Table | None = field(default=None, repr=False)
    files: tuple[tuple[str, int, int], ...] = ()
    where: str = "queries"

    @classmethod
    def of(cls, queries: str | os.PathLike[str] | pa.Table | None, kinds: dict[str, str]) -> QuerySource:
        """From a path, from a small table, or none at all."""
        if queries is None:
            return cls(kinds)
        if isinstance(queries, pa.Table):
            check_columns(queries.schema, kinds, where="The table of queries")
            slim = queries.select([ID, *kinds])
            if slim.nbytes > INLINE:
                raise BadOption(
                    f"A table of {queries.num_rows:,} queries ({slim.nbytes:,} bytes) does not travel with the plan.",
                    do='Write it to Parquet first, and give its path: queries="queries/".',
                )
            return cls(kinds, slim)
        place = local(queries)
        found = plain_files(place)
        if not found:
            raise UnreadableTable(
                f"{place} has no Parquet file.", do="Give the path of a Parquet file, or of a folder of them."
            )
        source = cls(kinds, None, tuple((str(path), *_stamp(path)) for path in found), str(place))
        for path, *_ in source.files:
            check_columns(_schema(path), kinds, where=path)
        return source

    def load(self) -> Queries:
        """All queries, or one error that names every fault in them."""
        names = tuple(self.kinds)
        if self.table is not None:
            return read_queries(self.table, names, where="The table of queries")
        parts = []
        for path, size, time in self.files:
            if not Path(path).exists() or _stamp(Path(path)) != (size, time):
                raise TableChanged(
                    f"{path} is not the file that it was when these queries were checked.",
                    why="Slots that read it at different times would answer different queries.",
                    do="Leave it as it is until the flow has begun; use a stream of changes for what is new.",
                )
            parts.append(pq.read_table(path, columns=[ID, *names]))
        try:
            whole = pa.concat_tables(parts, promote_options="permissive") if parts else _empty(self.kinds)
        except pa.ArrowException as fault:
            raise UnreadableTable(
                f"The files of {self.where} have columns of types that do not go together.",
                why=str(fault).splitlines()[0],
                do="Write all of them with the same types.",
            ) from fault
        return read_queries(whole, names, where=self.where)

    @property
    def count(self) -> int:
        """How many queries there are, as files say."""
        if self.table is not None:
            return int(self.table.num_rows)
        return int(sum(pq.read_metadata(path).num_rows for path, *_ in self.files))


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _schema(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise UnreadableTable(
            f"{path} cannot be read as Parquet.", why=str(error).splitlines()[0], do="Write the queries as Parquet."
        ) from error


def _empty(kinds: dict[str, str]) -> pa.Table:
    return pa.schema([(ID, pa.int64()), *((name, pa.float64()) for name in kinds)]).empty_table()
