"""What the join must give, by DuckDB: how many rows, and a checksum over whole rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from benchmarks import streams
from benchmarks.data import WideTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Keys:
    """Which keys a stream asks for: the same for the same number.

    Uniform over those of the table, or by Zipf's law with exponent 1, scattered over them; `misses` percent of the rows
    have a key that the table lacks. Another `salt` draws others.
    """

    zipf: bool = False
    misses: int = 0
    salt: int = 0

    def of(self, rows: int) -> str:
        """The key of a `value`, in a table of so many rows."""
        hashed = f"xxhash64(value, {self.salt})" if self.salt else "xxhash64(value)"
        key = f"pmod({hashed}, {rows})"
        if self.zipf:
            # The logarithm of a rank is uniform; a prime scatters ranks.
            drawn = f"(({hashed} & 9007199254740991) / 9007199254740992D)"
            key = f"pmod((cast(floor(exp({drawn} * ln({rows} + 1D))) as bigint) - 1) * 7919, {rows})"
        return f"if(pmod(xxhash64(value, 7), 100) < {self.misses}, {key} + {rows}, {key})" if self.misses else key


UNIFORM = Keys()


def orders(numbers: DataFrame, table: WideTable, keys: Keys = UNIFORM) -> DataFrame:
    """Order id and key from consecutive numbers."""
    return numbers.selectExpr("value as order_id", f"{keys.of(table.rows)} as {table.key}")


class Judge:
    """The first micro-batches of the stream joined with the table, and what contestants gave for them."""

    def __init__(self, table: WideTable, path: Path, rows: int, keys: Keys = UNIFORM) -> None:
        self._keys = keys
        self._table = table
        self._path = path
        self._rows = rows
        self._expected: dict[int, tuple[int, int]] = {}

    @cached_property
    def _columns(self) -> list[str]:
        return [self._table.key, *self._table.values]

    def observe(self, results: DataFrame, whole: bool) -> dict[str, Column]:
        """What to observe of results: their number, and with `whole` the checksum, which reads every column."""
        from pyspark.sql import functions as fn

        shifted = (f"shiftright({name}, {place})" for place, name in enumerate(self._columns, 1))
        checksum = f"(order_id ^ {' ^ '.join(shifted)}) & 1048575"
        counted = {"rows": fn.count("*")}
        return counted | {"checksum": fn.sum(fn.expr(checksum))} if whole else counted

    def check_batch(self, contestant: str, batch: int, found: dict[str, Any]) -> None:
        """Compare what was observed of one micro-batch."""
        want = {"rows": self._rows if not self._keys.misses else self.expected(batch)[0]}
        if "checksum" in found:
            want["rows"], want["checksum"] = self.expected(batch)
        _compare(f"{contestant}, micro-batch {batch}", found, want)

    def check_files(self, contestant: str, place: Path, batches: int) -> None:
        """Compare the files written for the first micro-batches. A later one, cut short, may have left rows."""
        pieces = [self.expected(batch) for batch in range(batches)]
        want = {"rows": sum(piece[0] for piece in pieces), "checksum": sum(piece[1] for piece in pieces)}
        files = f"'{place}/*.parquet' where order_id < {batches * self._rows}"
        found = duckdb.sql(f"select count(*), sum({self._checksum()}) from {files}").fetchall()[0]
        _compare(f"{contestant}, files of {batches} micro-batches", dict(zip(want, found, strict=True)), want)

    def expected(self, batch: int) -> tuple[int, int]:
        """Rows and checksum of one micro-batch."""
        if batch not in self._expected:
            numbers = (
                streams.session().range(batch * self._rows, (batch + 1) * self._rows).withColumnRenamed("id", "value")
            )
            stream = orders(numbers, self._table, self._keys).toArrow()
            with duckdb.connect() as base:
                base.register("stream", stream)
                query = f"select count(*), sum({self._checksum()}) from stream join '{self._path}/*.parquet' using "
                rows, checksum = base.sql(f"{query} ({self._table.key})").fetchall()[0]
            self._expected[batch] = int(rows), int(checksum or 0)
        return self._expected[batch]

    def _checksum(self) -> str:
        # XOR over differently shifted columns, cut to 20 bits and summed: a row put together from two others shows.
        folded = "order_id"
        for place, name in enumerate(self._columns, 1):
            folded = f"xor({folded}, {name} >> {place})"
        return f"({folded}) & 1048575"


def _compare(who: str, found: dict[str, Any], want: dict[str, int]) -> None:
    if {name: int(found[name] or 0) for name in want} != want:
        raise RuntimeError(f"{who}: {found} where {want} was expected.")
