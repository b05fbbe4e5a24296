"""A view of two tables that change, read at once and fresh. Its files are in the given folder, or a temporary one.

./dev run python examples/keep_a_view.py [folder]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

SQL = """
    SELECT region, COUNT(*) AS orders, SUM(amount) AS total
    FROM orders JOIN customers USING (customer)
    GROUP BY region
"""


def change(folder: Path, name: str, rows: list[dict[str, object]]) -> None:
    """A file of changes: written aside, then renamed, so that it is whole when it is seen."""
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / f".{name}")
    (folder / f".{name}").rename(folder / name)


def main(folder: Path) -> list[dict[str, object]]:
    pq.write_table(
        pa.table({"order": [1, 2, 3], "customer": [7, 7, 8], "amount": [10, 20, 30]}), folder / "orders.parquet"
    )
    pq.write_table(pa.table({"customer": [7, 8], "region": ["north", "south"]}), folder / "customers.parquet")
    spark = ps.session()
    tables = {
        "orders": ps.Changing(folder / "orders.parquet", changes=folder / "orders", key="order"),
        "customers": ps.Changing(folder / "customers.parquet", changes=folder / "customers", key="customer"),
    }
    with ps.View(SQL, tables=tables, at=folder / "view", answer_within="1 minute", spark=spark) as view:
        print(view.explain())
        change(folder / "orders", "1.parquet", [{"order": 4, "customer": 8, "amount": 5, "_change_type": "insert"}])
        change(folder / "customers", "1.parquet", [{"customer": 7, "region": "south", "_change_type": "update"}])
        stale = view.read(max_staleness="1 hour")
        print(f"at once: {stale}, without {dict(stale.missing)}")
        answer = view.read()
        print(f"asked for: {answer}")
        rows = sorted(answer.to_arrow().to_pylist(), key=lambda row: str(row["region"]))
        print(*rows, sep="\n")
    return rows


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
