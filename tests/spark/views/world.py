"""Three tables that change, what they hold after every change, and DuckDB as the judge of views over them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.plan.view import Changing, TableSpec, ViewPlan
from penstock.spark.views.logs import Log
from penstock.spark.views.maintain import Maintainer
from penstock.spark.views.store import Store

OPERATION = "_change_type"
SCHEMAS = {
    "orders": pa.schema(
        [
            ("o", pa.int64()),
            ("c", pa.int64()),
            ("amount", pa.decimal128(12, 2)),
            ("qty", pa.int32()),
            ("w", pa.float64()),
            ("day", pa.date32()),
        ]
    ),
    "customers": pa.schema([("c", pa.int64()), ("n", pa.int64()), ("name", pa.string())]),
    "nations": pa.schema([("n", pa.int64()), ("label", pa.string())]),
}
#: Orders are a bag of rows; customers are known by a key; nations never change.
KEYS = {"orders": (), "customers": ("c",), "nations": ()}
CHANGING = ("orders", "customers")

Row = tuple[Any, ...]


@dataclass
class World:
    """Tables below a folder. `newest` has every change; `taken` is as far as a view is said to be."""

    folder: Path
    seed: int = 0
    rows: int = 60
    newest: dict[str, list[Row]] = field(init=False)
    taken: dict[str, list[Row]] = field(init=False)
    refused: Counter[str] = field(default_factory=Counter)
    files: int = 0
    history: dict[str, list[list[Row]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        customers = [(c, self.random.randrange(4), self._name()) for c in range(12)]
        self.newest = {
            "orders": [self._order() for _ in range(self.rows)],
            "customers": customers,
            "nations": [(n, f"nation {n % 3}") for n in range(4)],
        }
        self.taken = {name: list(rows) for name, rows in self.newest.items()}
        self.history = {name: [list(rows)] for name, rows in self.newest.items()}
        for name in SCHEMAS:
            (self.folder / name).mkdir(parents=True)
            pq.write_table(self.arrow(name, self.newest[name]), self.folder / name / "base.parquet")
        for name in CHANGING:
            (self.folder / f"{name}-changes").mkdir()

    @classmethod
    def reopened(cls, folder: Path) -> World:
        """The files of a world that another process made; it knows no rows."""
        made = cls.__new__(cls)
        made.folder = folder
        return made

    def _name(self) -> str | None:
        return self.random.choice(["Ann", "Bob", "Cid", None])

    def _order(self) -> Row:
        draw = self.random
        return (
            draw.randrange(1000),
            draw.choice([None, *range(14)]),
            draw.choice([None, *(Decimal(draw.randrange(-5000, 5000)) / 100 for _ in range(8))]),
            draw.choice([None, *range(6)]),
            # Sums of these are exact in any order; infinity goes only where the rows that are left are added anew.
            draw.choice([None, 0.5, -3.25, 1e9, *[float(draw.randrange(100))] * 6, float("inf")]),
            date(1995 + draw.randrange(3), draw.randrange(1, 13), 1),
        )

    def arrow(self, name: str, rows: Sequence[Row]) -> pa.Table:
        columns = list(zip(*rows, strict=True)) if rows else [[] for _ in SCHEMAS[name]]
        arrays = [pa.array(column, f.type) for column, f in zip(columns, SCHEMAS[name], strict=True)]
        return pa.table(arrays, schema=SCHEMAS[name])

    # -- changes -------------------------------------------------------------------------------------------------

    def change(self, name: str, count: int = 12) -> None:
        """One more file of random changes: inserts, deletes, updates, some of them senseless."""
        self.write(name, [self._change(name) for _ in range(count)])

    def _change(self, name: str) -> tuple[str, Row]:
        draw, rows = self.random, self.newest[name]
        if name == "orders":
            return self._change_order(rows)
        kind = draw.choice(["insert", "update", "update", "delete", "odd"])
        there = [row[0] for row in rows]
        if kind == "odd":
            kind = draw.choice(["insert", "update", "delete"])
            key = draw.choice(there) if kind == "insert" and there else 900 + draw.randrange(9)
        elif kind == "insert":
            key = 20 + draw.randrange(1000)
        else:
            key = draw.choice(there) if there else 0
        change = (kind, (key, draw.randrange(5), self._name()))
        self._apply("customers", *change)
        return change

    def _change_order(self, rows: list[Row]) -> tuple[str, Row]:
        draw = self.random
        kind = draw.choice(["insert", "insert", "delete", "delete", "odd"])
        row = self._order() if kind != "delete" or not rows else draw.choice(rows)
        # Repeat one that is there, now and then, so that equal rows are many.
        row = draw.choice(rows) if rows and kind == "insert" and draw.random() < 0.3 else row
        change = ("delete" if kind == "odd" else kind, row)
        self._apply("orders", *change)
        return change

    def _apply(self, name: str, kind: str, row: Row) -> None:
        rows = self.newest[name]
        key = row[0] if KEYS[name] else None
        at = [n for n, have in enumerate(rows) if (have[0] == key if KEYS[name] else have == row)]
        if kind == "insert" and not (KEYS[name] and at):
            rows.append(row)
        elif kind != "insert" and at:
            rows.pop(at[0])
            if kind == "update":
                rows.append(row)
        else:
            self.refused[name] += 1

    def write(self, name: str, changes: Sequence[tuple[str, Row]]) -> Path:
        self.files += 1
        rows = self.arrow(name, [row for _, row in changes])
        rows = rows.append_column(OPERATION, pa.array([kind for kind, _ in changes], pa.string()))
        path = self.folder / f"{name}-changes" / f"{self.files:06d}.parquet"
        pq.write_table(rows, path.with_name(f".{path.name}"))
        path.with_name(f".{path.name}").rename(path)
        self.history[name].append(list(self.newest[name]))
        return path

    def after(self, name: str, files: int) -> list[Row]:
        """What a table held after so many files of changes."""
        return self.history[name][files]

    # -- the view ------------------------------------------------------------------------------------------------

    def tables(self, changing: Sequence[str] = CHANGING) -> dict[str, Any]:
        return {
            name: Changing(
                self.folder / name, self.folder / f"{name}-changes" if name in changing else None, key=KEYS[name]
            )
            for name in SCHEMAS
        }

    def maintainer(self, spark: Any, sql: str, used: Sequence[str], place: str = "view") -> Maintainer:
        """The part of a view that refreshes, without the part that decides when."""
        tables = {name: table for name, table in self.tables().items() if name in used}
        specs = {n: TableSpec(SCHEMAS[n], KEYS[n], t.changes is not None) for n, t in tables.items()}
        plan = ViewPlan.checked(sql, specs, answer_within="1 minute", planner="online", reads_every=None)
        store = Store(self.folder / place)
        logs = {n: Log(n, t.changes, t, SCHEMAS[n]) for n, t in tables.items() if t.changes is not None}
        last = store.open(plan.identity())
        made = Maintainer(spark, plan, store, tables, logs)
        made.open(last, {name: [self.folder / name / "base.parquet"] for name in tables})
        return made

    def take(self, *names: str) -> None:
        """Say that a view is as far as the newest changes of some tables."""
        for name in names:
            self.taken[name] = list(self.newest[name])

    def judge(self, sql: str) -> Counter[Row]:
        """The query over the tables as far as they were taken."""
        with duckdb.connect() as connection:
            for name in SCHEMAS:
                connection.register(name, self.arrow(name, self.taken[name]))
            return Counter(comparable(connection.sql(sql).to_arrow_table()))


def comparable(rows: pa.Table) -> list[Row]:
    """Rows whose numbers are equal if they are to nine digits: engines have other types for sums and means."""
    return [tuple(_plain(value) for value in row.values()) for row in rows.to_pylist()]


def _plain(value: Any) -> Any:
    return f"{float(value) + 0.0:.9g}" if isinstance(value, (int, float, Decimal)) else value


def same(got: pa.Table, want: Counter[Row], said: Mapping[str, object]) -> None:
    have = Counter(comparable(got))
    assert have == want, (
        f"{said}: missing {list((want - have).items())[:3]}, too many {list((have - want).items())[:3]}"
    )
