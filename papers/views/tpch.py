"""TPC-H tables in a database with indexes, and what it costs there to join changes of one table with the others.

The chapter used IBM DB2; here it is SQLite, in memory, which has B-tree indexes too. As in the chapter, one side of
each join has an index on the join column and the other has none: changes of the side without are joined by one look-up
for each change (linear), changes of the side with are joined by one scan for all of them (flat).
"""

from __future__ import annotations

import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

#: Columns that the joins look at.
COLUMNS = {
    "partsupp": ("ps_partkey", "ps_suppkey", "ps_supplycost"),
    "supplier": ("s_suppkey", "s_nationkey"),
    "orders": ("o_custkey", "o_totalprice"),
    "customer": ("c_custkey", "c_nationkey"),
    "nation": ("n_nationkey", "n_regionkey"),
    "region": ("r_regionkey", "r_name"),
}


def generate(folder: Path, scale: float, tables: Sequence[str]) -> None:
    """Parquet files of some tables, by the generator that comes as a package."""
    program = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which("tpchgen-cli")
    if program is None:
        raise FileNotFoundError("tpchgen-cli is not installed: pip install 'penstock[papers]'")
    command = [program, "parquet", "-s", str(scale), f"--output-dir={folder}", f"--tables={','.join(tables)}"]
    subprocess.run(command, check=True, capture_output=True)


@dataclass(frozen=True)
class Delta:
    """The changes of one table joined with the others: a query over the table `delta`."""

    table: str
    query: str
    #: The column of changes by which a scan of the other table finds them.
    key: str = ""


#: Figure 2.1: Orders (R) have an index on their customer, Customer (S) has none.
JOIN = {
    "R": Delta(
        "orders",
        "SELECT SUM(c_nationkey) FROM customer NOT INDEXED JOIN delta d ON d.o_custkey = c_custkey",
        "o_custkey",
    ),
    "S": Delta("customer", "SELECT SUM(o_totalprice) FROM delta d CROSS JOIN orders ON o_custkey = d.c_custkey"),
}
#: Figure 2.4: PartSupp has an index on its supplier, Supplier has none.
_REST = "JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey AND r_name = 'MIDDLE EAST'"
VIEW = {
    "PartSupp": Delta(
        "partsupp",
        f"SELECT MIN(d.ps_supplycost) FROM supplier NOT INDEXED JOIN delta d ON d.ps_suppkey = s_suppkey {_REST}",
        "ps_suppkey",
    ),
    "Supplier": Delta(
        "supplier", f"SELECT MIN(ps_supplycost) FROM delta d CROSS JOIN partsupp ON ps_suppkey = s_suppkey {_REST}"
    ),
}


class Database:
    """TPC-H at a scale, in memory."""

    def __init__(self, scale: float, seed: int = 1) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._seed = seed
        with tempfile.TemporaryDirectory(prefix="penstock-tpch-") as folder:
            generate(Path(folder), scale, list(COLUMNS))
            for table, columns in COLUMNS.items():
                self._load(table, columns, Path(folder) / f"{table}.parquet")
        run = self._connection.execute
        run("CREATE INDEX orders_customer ON orders (o_custkey)")
        run("CREATE INDEX partsupp_supplier ON partsupp (ps_suppkey)")
        run("CREATE INDEX nation_key ON nation (n_nationkey)")
        run("CREATE INDEX region_key ON region (r_regionkey)")
        run("ANALYZE")

    def _load(self, table: str, columns: Sequence[str], path: Path) -> None:
        rows = pq.read_table(path, columns=list(columns))
        decimals = [pa.types.is_decimal(rows.schema.field(name).type) for name in columns]
        arrays = [
            (rows[name].cast("double") if decimal else rows[name]).to_pylist()
            for name, decimal in zip(columns, decimals, strict=True)
        ]
        self._connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        self._connection.execute("BEGIN")
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", zip(*arrays, strict=True))
        self._connection.execute("COMMIT")

    def changes(self, delta: Delta, count: int) -> list[tuple[object, ...]]:
        """So many rows of the table, drawn at random but the same each time: updates touch rows that are there."""
        names = ", ".join(COLUMNS[delta.table])
        # A multiplicative hash of the row number as a random order that needs no memory.
        order = f"(rowid * 2654435761 + {self._seed}) % 4294967296"
        return self._connection.execute(f"SELECT {names} FROM {delta.table} ORDER BY {order} LIMIT {count}").fetchall()

    def join(self, delta: Delta, rows: Sequence[tuple[object, ...]]) -> float:
        """Seconds of this thread to bring changes in: they are put into a table, which is joined with the others.

        Time of the processor, not of the clock: all is in memory, and what else the machine does is not meant.
        """
        run = self._connection.execute
        began = time.thread_time()
        columns = COLUMNS[delta.table]
        run(f"CREATE TEMP TABLE delta ({', '.join(columns)})")
        run("BEGIN")
        self._connection.executemany(f"INSERT INTO temp.delta VALUES ({', '.join('?' * len(columns))})", rows)
        run("COMMIT")
        if delta.key:
            run(f"CREATE INDEX temp.delta_key ON delta ({delta.key})")
        run(delta.query).fetchall()
        run("DROP TABLE temp.delta")
        return time.thread_time() - began

    def curves(
        self, deltas: Mapping[str, Delta], sizes: Sequence[int], repeats: int
    ) -> dict[str, list[tuple[float, float]]]:
        """(changes, seconds) of each: the median of some runs, every run with other rows, as changes are.

        Sizes and tables take turns: a busy moment does not fall on one of them alone, and none finds what it needs in
        the processor's caches because it was the last.
        """
        most = max(sizes)
        rows = {name: self.changes(delta, most * min(repeats, 8)) for name, delta in deltas.items()}
        found: dict[str, dict[int, list[float]]] = {name: {size: [] for size in sizes} for name in deltas}
        for turn in range(repeats + 1):
            for size in sizes:
                for name, delta in deltas.items():
                    start = most * (turn % 8) % (len(rows[name]) - most + 1)
                    seconds = self.join(delta, rows[name][start : start + size])
                    if turn:  # the first is slow for once
                        found[name][size].append(seconds)
        return {
            name: [(float(size), statistics.median(times)) for size, times in sizes_.items()]
            for name, sizes_ in found.items()
        }
