"""Random expressions as SQL text, over columns of every kind: what is tested against DuckDB and Spark alike.

Numbers stay small, so that no engine overflows; floating numbers are multiples of a half, so that sums are exact in any
order; division is left to whole halves of powers of two.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("j", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float32()),
        ("s", pa.string()),
        ("t", pa.string()),
        ("p", pa.bool_()),
        ("q", pa.bool_()),
        ("d", pa.date32()),
        ("m", pa.timestamp("us", "UTC")),
    ]
)
_TEXTS = ["", "a", "A", "ab", "a_b", "a%b", "Äé", "x'y", "abc"]
_PATTERNS = ["a%", "%b", "a_", "%", "a_b", ""]
_DAYS = [date(1999, 12, 31), date(2000, 2, 29), date(2026, 1, 1)]


def rows(count: int, seed: int) -> pa.Table:
    """Rows with every value that is likely to be treated wrongly, NULL the most."""
    draw = random.Random(seed)

    def column(values: list) -> list:
        return [None if draw.random() < 0.2 else draw.choice(values) for _ in range(count)]

    reals = [0.0, -0.0, 0.5, -1.5, 2.0, 7.5, float("nan"), float("inf"), float("-inf")]
    times = [datetime(2000, 1, 1, 12, tzinfo=UTC) + timedelta(hours=11 * n) for n in range(4)]
    return pa.table(
        {
            "i": column([-3, -1, 0, 1, 2, 5]),
            "j": column([-4, 0, 1, 2, 3]),
            "x": column(reals),
            "y": column(reals[:6]),
            "s": column(_TEXTS),
            "t": column(_TEXTS),
            "p": column([True, False]),
            "q": column([True, False]),
            "d": column(_DAYS),
            "m": column(times),
        },
        schema=SCHEMA,
    )


class Writer:
    """Writes expressions of a kind. `alias` stands before each column, if there is one."""

    def __init__(self, seed: int, alias: str = "") -> None:
        self._draw = random.Random(seed)
        self._alias = f"{alias}." if alias else ""

    def _one(self, *ways: Callable[[], str]) -> str:
        return self._draw.choice(ways)()

    def _pick(self, *texts: str) -> str:
        return self._draw.choice(texts)

    def column(self, *names: str) -> str:
        """One of these columns."""
        return self._alias + self._pick(*names)

    def number(self, depth: int) -> str:
        """A number."""
        if depth <= 0:
            return self._one(
                lambda: self.column("i", "j", "x", "y"),
                lambda: str(self._draw.randint(-3, 5)),
                lambda: self._pick("0.5", "2.5e0"),
            )
        inner = depth - 1
        return self._one(
            lambda: f"({self.number(inner)} {self._pick('+', '-', '*')} {self.number(inner)})",
            lambda: f"({self.whole(inner)} % {self.whole(inner)})",
            lambda: f"({self.number(inner)} / {self._pick('2', '4', '0', '-0.5e0')})",
            lambda: f"ABS({self.number(inner)})",
            lambda: f"-({self.number(inner)})",
            lambda: f"COALESCE({self.number(inner)}, {self.number(inner)})",
            lambda: f"CASE WHEN {self.truth(inner)} THEN {self.number(inner)} ELSE {self.number(inner)} END",
            lambda: f"CAST({self.number(inner)} AS DOUBLE)",
            lambda: self.whole(inner),
        )

    def whole(self, depth: int) -> str:
        """A whole number."""
        if depth <= 0:
            return self._one(lambda: self.column("i", "j"), lambda: str(self._draw.randint(-3, 5)))
        inner = depth - 1
        return self._one(
            lambda: f"({self.whole(inner)} {self._pick('+', '-', '*')} {self.whole(inner)})",
            lambda: f"LENGTH({self.text(inner)})",
            lambda: f"{self._pick('YEAR', 'MONTH', 'DAY')}({self.column('d', 'm')})",
            lambda: f"EXTRACT({self._pick('YEAR', 'MONTH', 'DAY')} FROM {self.column('d', 'm')})",
            lambda: f"CAST({self.whole(inner)} AS BIGINT)",
        )

    def text(self, depth: int) -> str:
        """A text."""
        if depth <= 0:
            return self._one(lambda: self.column("s", "t"), lambda: self._pick("''", "'a'", "'x''y'", "'Äé'"))
        inner = depth - 1
        return self._one(
            lambda: f"({self.text(inner)} || {self.text(inner)})",
            lambda: f"UPPER({self.column('t')})" if inner else "LOWER('AB')",
            lambda: f"LOWER({self.text(inner)})",
            lambda: f"SUBSTRING({self.text(inner)}, {self._draw.randint(1, 3)}, {self._draw.randint(1, 3)})",
            lambda: f"COALESCE({self.text(inner)}, {self.text(inner)})",
            lambda: f"CASE WHEN {self.truth(inner)} THEN {self.text(inner)} END",
        )

    def moment(self) -> str:
        """A date."""
        return self._one(
            lambda: self.column("d"), lambda: "DATE '2000-02-29'", lambda: f"CAST({self.column('m')} AS DATE)"
        )

    def truth(self, depth: int) -> str:
        """A condition."""
        if depth <= 0:
            return self._one(lambda: self.column("p", "q"), lambda: self._pick("TRUE", "FALSE", "NULL"))
        inner = depth - 1
        compare = self._pick("=", "<>", "<", "<=", ">", ">=")
        return self._one(
            lambda: f"({self.number(inner)} {compare} {self.number(inner)})",
            lambda: f"({self.text(inner)} {compare} {self.text(inner)})",
            lambda: f"({self.moment()} {compare} {self.moment()})",
            lambda: f"({self.column('m')} {compare} TIMESTAMP '2000-01-01T23:00:00')",
            *[lambda: f"({self.truth(inner)} {self._pick('AND', 'OR')} {self.truth(inner)})"] * 4,
            lambda: f"(NOT {self.truth(inner)})",
            lambda: f"({self.number(inner)} IS {self._pick('NULL', 'NOT NULL')})",
            lambda: f"({self.text(inner)} IS {self._pick('NULL', 'NOT NULL')})",
            lambda: f"({self.number(inner)} {self._pick('', 'NOT')} BETWEEN {self.number(0)} AND {self.number(0)})",
            lambda: f"({self.whole(inner)} {self._pick('IN', 'NOT IN')} (1, 2{self._pick('', ', NULL')}))",
            lambda: f"({self.text(inner)} {self._pick('IN', 'NOT IN')} ('a', ''{self._pick('', ', NULL')}))",
            lambda: f"({self.text(inner)} {self._pick('LIKE', 'NOT LIKE')} '{self._pick(*_PATTERNS)}')",
        )

    def any(self, depth: int) -> str:
        """An expression of any kind."""
        return self._one(
            lambda: self.number(depth), lambda: self.whole(depth), lambda: self.text(depth), lambda: self.truth(depth)
        )
