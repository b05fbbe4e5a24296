"""Random texts: queries of every shape that can be answered, and what becomes of them when they are spoilt."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.sql.catalogue import Catalogue, Function, Relation, Stream
from tests.sql.expressions import SCHEMA, Writer

_AT = pa.timestamp("us", "UTC")


def catalogue(folder: Path) -> Catalogue:
    """Two streams with columns of every kind, one of updates, two tables in files, and a function."""
    wide = pa.schema([*SCHEMA, ("at", _AT), ("k", pa.int64()), ("n", pa.int64())])
    quotes = pa.schema(
        [("symbol", pa.string()), ("market", pa.string()), ("risk", pa.float64()), ("per", pa.float64()), ("at", _AT)]
    )
    one = pa.table({"k": range(100), "name": [str(n) for n in range(100)], "price": [n / 2 for n in range(100)]})
    two = pa.table({"k": range(50), "region": [n % 5 for n in range(50)]})
    for name, rows in (("one", one), ("two", two)):
        pq.write_table(rows, folder / f"{name}.parquet", row_group_size=20)
    return Catalogue.of(
        {
            "a": Stream.of("a", wide, event_time="at", lateness="1 minute"),
            "b": Stream.of("b", wide, event_time="at"),
            "quotes": Stream.of("quotes", quotes, event_time="at", key="symbol"),
        },
        {
            "one": Relation.of("one", folder / "one.parquet", key="k"),
            "two": Relation.of("two", folder / "two.parquet"),
        },
        {"alike": Function("alike", lambda left, right: left, pa.bool_())},
        archives=str(folder),
    )


class Queries:
    """Writes queries that can be answered."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._seed = seed

    def text(self) -> str:
        """A query of any shape, in any layout."""
        made = self._draw.choice(
            [self.selection, self.table_join, self.window_join, self.band, self.select_join, self.aggregate, self.view]
        )()
        made = self._draw.choice(["", "", "EXPLAIN "]) + made + self._draw.choice(["", ";", " ;\n", " --so\n"])
        return self._draw.choice([made, made.replace(" ", "\n  "), made.replace(" ", "\t ")])

    def _write(self, alias: str) -> Writer:
        self._seed += 1
        return Writer(self._seed * 7919, alias)

    def _int(self, low: int, high: int) -> int:
        return self._draw.randint(low, high)

    def _items(self, *aliases: str) -> str:
        if self._draw.random() < 0.2:
            return "*"
        count = self._int(1, 4)
        return ", ".join(f"{self._write(self._draw.choice(aliases)).any(2)} AS c{n}" for n in range(count))

    def _where(self, *aliases: str) -> str:
        return "".join(f" AND {self._write(self._draw.choice(aliases)).truth(2)}" for _ in range(self._int(0, 2)))

    def _window(self) -> str:
        return self._draw.choice(["WINDOW 1 MINUTE", "WINDOW 30 min", "WINDOW 1 h 30 min", "WINDOW 250 ms"])

    def _memory(self) -> str:
        return self._draw.choice(["", " MEMORY 64 MB", " MEMORY 1.5GB"])

    def selection(self) -> str:
        """Rows and columns of a stream."""
        return f"SELECT {self._items('a')} FROM a WHERE {self._write('a').truth(3)}{self._where('a')}"

    def table_join(self) -> str:
        """A stream with a table."""
        items = self._draw.choice(
            [self._items("a"), "a.n, t.k, t.name", "a.*, t.price AS cost", "t.price + a.n AS sum"]
        )
        name = self._draw.choice(["one", "one AS"])
        shed = self._draw.choice(["", "", " SHED TOPW AFTER 20 SECONDS ARCHIVE 'shed'"])
        joined = self._draw.choice(
            [f"FROM a, {name} t WHERE a.k = t.k", f"FROM {name} t JOIN a ON t.k = a.n WHERE a.i > 0"]
        )
        return f"SELECT {items} {joined}{self._where('a')}{self._memory()}{shed}"

    def window_join(self) -> str:
        """Two streams by key, or by any condition."""
        froms = self._draw.choice(["a, b", "b, a", "a JOIN b ON a.k = b.k", "a x, a b", "a INNER JOIN b USING (k)"])
        left = "x" if "x" in froms else "a"
        on = self._draw.choice([f"{left}.k = b.k", f"{left}.k = b.n AND b.s = {left}.t", f"alike({left}.s, b.t)"])
        window = self._draw.choice([self._window(), "WINDOW 500 ROWS", f"{self._window()} SHED PROB ARCHIVE 'x/y'"])
        window += self._memory()
        return f"SELECT {self._items(left, 'b')} FROM {froms} WHERE {on}{self._where(left, 'b')} {window}"

    def band(self) -> str:
        """Two streams whose difference lies in a band."""
        low, width = self._int(-9, 9), self._int(0, 9)
        condition = self._draw.choice(
            [
                f"a.n - b.n BETWEEN {low} AND {low + width}",
                f"b.n >= a.n + {low} AND b.n < a.n + {low + width + 1}",
                f"ABS(a.x - b.x) <= {width}.5",
                f"a.n <= b.k - {low}",
            ]
        )
        return f"SELECT {self._items('a', 'b')} FROM a, b WHERE {condition}{self._where('a')} {self._window()}"

    def select_join(self) -> str:
        """Two streams by key, with ranges on either side."""
        low, high = self._int(-9, 0), self._int(1, 9)
        ours = self._draw.choice([f"a.n BETWEEN {low} AND {high}", f"{low} < a.x AND a.x <= {high}.5", f"a.i = {high}"])
        theirs = f"b.j >= {low} AND {high} >= b.j"
        return f"SELECT {self._items('a', 'b')} FROM b, a WHERE a.k = b.k AND {ours} AND {theirs} {self._window()}"

    def aggregate(self) -> str:
        """An aggregate over a range."""
        what = self._draw.choice(["MIN(per)", "MAX(per) AS best", "COUNT(*)", "SUM(per)", "AVG(per)", "min(q.risk)"])
        ends = self._draw.choice(["risk BETWEEN 1 AND 5", "risk > 2", "low <= risk AND risk < high", "risk <= 3.5"])
        market = self._draw.choice(["", " AND market = 'N'", " AND 'N' = market"])
        return f"SELECT {what} FROM quotes q WHERE {ends}{market}{self._memory()}"

    def view(self) -> str:
        """A view of tables, or of a stream and a table."""
        head = self._draw.choice(["", "CREATE VIEW totals AS "])
        body = self._draw.choice(
            [
                "SELECT region, COUNT(*) AS n, MIN(price) AS least FROM one JOIN two USING (k) GROUP BY region",
                "SELECT MAX(price) FROM one WHERE name LIKE '1%' OR price > low",
                "SELECT DISTINCT region FROM two WHERE region NOT IN (1, 2)",
            ]
        )
        return f"{head}{body} {self._draw.choice(['', 'ANSWER WITHIN 12 SECONDS'])}"


#: Constants that the texts name.
VALUES = {"low": 1, "high": 4.5}

_TEXT = """
SELECT FROM WHERE AND OR NOT IN BETWEEN LIKE IS NULL CASE WHEN THEN ELSE END JOIN ON USING LEFT GROUP BY HAVING ORDER
LIMIT WINDOW ROWS MEMORY SHED ARCHIVE ANSWER WITHIN CREATE VIEW AS EXPLAIN DISTINCT UNION WITH TABLE VALUES INSERT
DELETE DROP reflect java_method TRANSFORM read_csv parquet.`/etc/passwd` ( ) , . ; * = < >= - + / % || :: [ ] { } '
" ` -- /* */ ? :x @ $1 \\ 0 1 99999999999999999999 1e999 0x1F .5 'x' "y" a b t one two quotes a.k b.k alike( COUNT(
MIN( CAST( INTERVAL DATE TIMESTAMP ARRAY STRUCT LATERAL PIVOT QUALIFY TABLESAMPLE FETCH FOR OVER PARTITION ≠ ‘ ’ é 漢
"""
_WORDS = [*_TEXT.split(), "\x00", "\u2028", "\n"]


def spoilt(text: str, seed: int) -> str:
    """A text with one to three mistakes in it."""
    draw = random.Random(seed)
    for _ in range(draw.randint(1, 3)):
        parts = text.split(" ")
        place = draw.randrange(len(parts))
        match draw.randrange(8):
            case 0:
                del parts[place]
            case 1:
                parts.insert(place, draw.choice(_WORDS))
            case 2:
                parts[place] = draw.choice(_WORDS)
            case 3:
                other = draw.randrange(len(parts))
                parts[place], parts[other] = parts[other], parts[place]
            case 4:
                parts.insert(place, parts[draw.randrange(len(parts))])
            case 5:
                parts = parts[: place + 1]
            case 6:
                at = draw.randrange(len(text) + 1)
                parts = [text[:at] + chr(draw.choice([draw.randrange(1, 128), draw.randrange(0xD7FF)])) + text[at:]]
            case _:
                at = draw.randrange(len(text) + 1)
                parts = [text[:at] + text[at + draw.randint(1, 5) :]]
        text = " ".join(parts)
    return text
