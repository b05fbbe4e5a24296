"""A view of TPC-H with changes of a large table and of a small one, which arrive as time goes by.

Lines of recent orders are priced anew, and suppliers move to another nation. A change of the small table must look
through the large one, whatever their number; changes of the large one cost by their number. Files of changes are made
before the clock runs, and get their names when they are due, so that making them costs the run nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from penstock.plan.view import plain

SQL = (
    "SELECT n_name, COUNT(*) AS lines, SUM(l_extendedprice * (1 - l_discount)) AS revenue "
    "FROM lineitem, supplier, nation WHERE l_suppkey = s_suppkey AND s_nationkey = n_nationkey GROUP BY n_name"
)
TABLES = ("lineitem", "supplier", "nation")
LARGE, SMALL = "lineitem", "supplier"
KEYS = {LARGE: ("l_orderkey", "l_linenumber"), SMALL: ("s_suppkey",)}
#: Seconds between files of changes.
EVERY = 0.5
#: The share of all lines that are recent.
RECENT = 0.05


@dataclass
class Arrivals:
    """Files of changes of both tables, so many changes a second."""

    folder: Path
    base: Path
    rates: dict[str, int]
    seed: int
    made: int = 0
    given: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        for name in KEYS:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        stored = self.base / f"{LARGE}.parquet"
        lines = ds.dataset(stored, schema=plain(pq.read_schema(stored), LARGE))
        newest = pc.max(lines.to_table(columns=["l_orderkey"])["l_orderkey"]).as_py()
        recent = lines.to_table(filter=ds.field("l_orderkey") > int(newest * (1 - RECENT)))
        small = pq.read_table(self.base / f"{SMALL}.parquet")
        self._rows = {LARGE: recent, SMALL: small.cast(plain(small.schema, SMALL))}
        self._new = {
            "l_discount": pa.array([Decimal(n).scaleb(-2) for n in range(11)]),
            "s_nationkey": pa.array(range(25)),
        }

    def make(self, seconds: float) -> None:
        """Files for so much time, under names that nobody looks at."""
        for _ in range(round(seconds / EVERY)):
            self.made += 1
            for (name, rows), (column, values) in zip(self._rows.items(), self._new.items(), strict=True):
                count = min(rows.num_rows, max(1, int(self.rates[name] * EVERY)))
                some = rows.take(np.sort(self._rng.choice(rows.num_rows, count, replace=False)))
                place = some.schema.get_field_index(column)
                drawn = values.take(self._rng.integers(0, len(values), count)).cast(some.schema.field(place).type)
                changed = some.set_column(place, column, drawn)
                changed = changed.append_column("_change_type", pa.array(["update"] * count))
                pq.write_table(changed, self._path(name, self.made, hidden=True))

    def give(self, count: int = 1) -> None:
        """Let the next files arrive."""
        for _ in range(count):
            self.given += 1
            for name in KEYS:
                self._path(name, self.given, hidden=True).rename(self._path(name, self.given))

    def _path(self, name: str, number: int, hidden: bool = False) -> Path:
        return self.folder / name / f"{'.' * hidden}{number:06d}.parquet"

    def run(self, seconds: float) -> None:
        """Give files as time goes by."""
        began = time.monotonic()
        for number in range(1, round(seconds / EVERY) + 1):
            time.sleep(max(0.0, began + number * EVERY - time.monotonic()))
            self.give()

    def judge(self) -> list[tuple[object, ...]]:
        """The view's query over the tables with all changes that were given, as DuckDB has it."""
        with duckdb.connect() as connection:
            for name in TABLES:
                stored = f"read_parquet('{self.base / name}.parquet')"
                if name not in KEYS:
                    connection.execute(f"CREATE VIEW {name} AS FROM {stored}")
                    continue
                files = f"read_parquet('{self.folder / name}/[0-9]*.parquet', filename = true)"
                key, on = ", ".join(KEYS[name]), " AND ".join(f"b.{k} = c.{k}" for k in KEYS[name])
                connection.execute(
                    f"CREATE VIEW {name} AS WITH c AS (SELECT * EXCLUDE (_change_type, filename) FROM {files} "
                    f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY filename DESC) = 1) "
                    f"SELECT * FROM c UNION ALL SELECT * FROM {stored} b ANTI JOIN c ON {on}"
                )
            return sorted(connection.sql(SQL).fetchall())
