"""The same join by DuckDB, which shares no code with ours, and a comparison as bags of rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError


@dataclass(frozen=True)
class Verdict:
    """How the rows found compare with the rows expected."""

    expected: int
    found: int
    missing: int
    unexpected: int

    @property
    def good(self) -> bool:
        """Whether both are the same bag of rows."""
        return not self.missing and not self.unexpected and self.found == self.expected


class Judge:
    """DuckDB over the files of the demonstration."""

    def __init__(self, orders: Path, products: Path, results: Path, scratch: Path) -> None:
        duckdb = load()
        self._db: Any = duckdb.connect()
        self._db.execute("SET memory_limit='2GB'")
        self._db.execute(f"SET temp_directory='{_quoted(scratch)}'")
        self._db.execute("SET TimeZone='UTC'")
        self._view("orders", orders)
        self._view("products", products)
        self._view("found", results)
        self._db.execute(
            "CREATE VIEW expected AS SELECT o.*, p.* EXCLUDE (product_id) "
            "FROM orders o JOIN products p USING (product_id)"
        )

    def _view(self, name: str, place: Path) -> None:
        files = "*.parquet" if place.is_dir() else ""
        self._db.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{_quoted(place / files)}')")

    def compare(self) -> Verdict:
        """Count every row on both sides, and what either has more often than the other."""
        columns = self._db.execute("SELECT * FROM expected LIMIT 0").description
        names = ", ".join('"' + column[0].replace('"', '""') + '"' for column in columns)
        counts = self._db.execute(
            f"""
            SELECT sum(wanted), sum(there), sum(greatest(wanted - there, 0)), sum(greatest(there - wanted, 0))
            FROM (
                SELECT count(*) FILTER (NOT is_found) AS wanted, count(*) FILTER (is_found) AS there
                FROM (SELECT *, false AS is_found FROM expected UNION ALL SELECT *, true FROM found)
                GROUP BY {names}
            )
            """
        ).fetchone()
        return Verdict(*(int(count or 0) for count in counts))

    def sample(self, rows: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """A few results."""
        cursor = self._db.execute(
            "SELECT order_id, product_id, title, price, quantity AS qty, round(quantity * price, 2) AS total "
            f"FROM found ORDER BY order_id LIMIT {rows}"
        )
        return [column[0] for column in cursor.description], cursor.fetchall()

    def close(self) -> None:
        """Let go of files and memory."""
        self._db.close()


def load() -> Any:
    """DuckDB, or an error that says how to get what the demonstration needs."""
    try:
        # The meter and the plot need these, later: their absence is found at the start.
        import duckdb
        import matplotlib as mpl  # noqa: F401
        import psutil  # noqa: F401
    except ImportError as missing:
        raise PenstockError(
            f"The demonstration needs {missing.name}, which is not installed.",
            why="DuckDB checks the results, psutil tells the workers' memory, matplotlib draws the plot.",
            do="Run it as ./dev demo, or install all three: pip install 'penstock[demo]'",
        ) from None
    return duckdb


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
