"""How `join_table` answers to the size of the table, the budget and the keys; and what other ways to look up cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks import postgres, streams
from benchmarks.harness import Benchmark, Contestant, Ratio, Sample, Say, Turn
from benchmarks.join_table import BROADCAST, FULL, PLAIN, PREPARED, QUICK, Size, Work, _Discard
from benchmarks.judge import Keys, orders
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.mesh.inl import IndexNestedLoops
from penstock.kernels.mesh.inl import reserve as beside_pool
from penstock.plan.units import format_size, parse_size
from penstock.tables import table
from penstock.tables.lmdb_index import LmdbIndex, build_index

OURS = (BROADCAST, PLAIN, PREPARED)
DUCKDB = "DuckDB, each batch"
LMDB = "LMDB, index lookups, the same memory"
POSTGRES = "PostgreSQL, index lookups, the same memory"
BARE = "bare pass over the keys, all cores, no Spark"
_PORTION = 65_536


def benchmarks(quick: bool) -> list[Benchmark]:
    """Curves over table size, budget and keys, and peers that look rows up."""
    size = QUICK if quick else FULL
    parts = (0.25, 1, 4) if not quick else (0.25, 1)
    tables = [replace(size, table=int(part * size.table)) for part in parts]
    sizes = {f", {one.table / 1e6:g} M rows": Work(one, label=f", {one.table / 1e6:g} M rows") for one in tables}
    # Usual pages of the prepared table need 14 MB, smaller ones leave room for a window in 8; row groups of the plain
    # one need 18 MB. A window of the smallest budget takes dozens of passes, so there are fewer micro-batches.
    budgets = ("8MB", "16MB", "32MB", "64MB", "256MB") if not quick else ("8MB", "64MB")
    some = replace(size, turn=(min(2, size.turn[0]), min(3, size.turn[1])), page=1 << 20)
    memories = [Work(replace(some, memory=memory), label=f", {memory}") for memory in budgets]
    roomy = tuple(f"{PLAIN}, {memory}" for memory in budgets if memory not in ("8MB", "16MB"))
    keys = {
        "uniform": Keys(),
        "Zipf 1.0": Keys(zipf=True),
        "50% absent": Keys(misses=50),
        "all absent": Keys(misses=100),
    }
    asked = [Work(size, kind, label=f", {name}") for name, kind in keys.items()]
    lookups = Lookups(size)
    largest = f", {tables[-1].table / 1e6:g} M rows"
    return [
        _curve("join_table/sizes", "tables of different sizes, uniform keys", list(sizes.values()), OURS, (
            Ratio(f"{PLAIN}{largest}", f"{BROADCAST}{largest}", 2),
            Ratio(f"{PREPARED}{largest}", f"{BROADCAST}{largest}", 6),
            *(Ratio(f"{PREPARED}{label}", f"{PREPARED}{largest}") for label in list(sizes)[:-1]),
        )),
        _curve("join_table/budgets", f"budgets from {budgets[0]} to {budgets[-1]}", memories, (PREPARED, *roomy), tuple(
            Ratio(f"{PREPARED}, {memory}", f"{PREPARED}, {budgets[0]}") for memory in budgets[1:]
        )),
        _curve("join_table/keys", "uniform and skewed keys, and keys that the table lacks", asked, (PREPARED,), (
            Ratio(f"{PREPARED}, Zipf 1.0", f"{PREPARED}, uniform", 2),
            Ratio(f"{PREPARED}, 50% absent", f"{PREPARED}, uniform", 1),
            Ratio(f"{PREPARED}, all absent", f"{PREPARED}, uniform", 1),
        )),
        Benchmark(
            "join_table/lookups",
            "the same join by DuckDB on every batch and by index lookups, and the machine's limit",
            lookups.contestants,
            (Ratio(PREPARED, DUCKDB), Ratio(PREPARED, LMDB), Ratio(PREPARED, POSTGRES), Ratio(PREPARED, BARE)),
            (),
            lookups.setup,
        ),
    ]  # fmt: skip


def _curve(name: str, about: str, works: Sequence[Work], only: Sequence[str], ratios: tuple[Ratio, ...]) -> Benchmark:
    @contextmanager
    def setup(say: Say) -> Iterator[None]:
        with ExitStack() as stack:
            for work in works:
                stack.enter_context(work.setup(say))
            yield

    def contestants() -> list[Contestant]:
        every = (one for work in works for one in work.contestants(_Discard))
        return [one for one in every if one.name.startswith(tuple(only))]

    return Benchmark(name, f"{about}, results discarded", contestants, ratios, (), setup)


class Lookups:
    """Peers that do not run in Spark: each gets the stream's micro-batches as Arrow, one after the other."""

    def __init__(self, size: Size) -> None:
        self.work = Work(size)
        self.size = size
        self._batches: list[pa.Table] = []
        self._index: LmdbIndex
        self._server: Any = None

    @contextmanager
    def setup(self, say: Say) -> Iterator[None]:
        """The table, the index, and micro-batches at hand."""
        with self.work.setup(say), streams.scratch() as place, ExitStack() as stack:
            plain = table(self.work.path, key=self.work.table.key)
            say("building the index")
            self._index = build_index(plain, place / "index.lmdb")
            if postgres.programs() is not None:
                say("loading PostgreSQL")
                self._server = stack.enter_context(postgres.server(parse_size(self.size.memory)))
                postgres.load(self._server, plain)
            say("drawing micro-batches")
            for number in range(3):
                rows = streams.session().range(number * self.size.batch, (number + 1) * self.size.batch)
                self._batches.append(orders(rows.withColumnRenamed("id", "value"), self.work.table).toArrow())
            yield

    def contestants(self) -> list[Contestant]:
        """DuckDB, LMDB, the bare pass, and `join_table` itself."""
        ours = [one for one in self.work.contestants(_Discard) if one.name == PREPARED]
        missing = "" if self._server is not None else "PostgreSQL is not installed"
        return [
            Contestant(DUCKDB, self._duckdb),
            Contestant(LMDB, self._lmdb),
            Contestant(POSTGRES, self._postgres, missing),
            Contestant(BARE, self._bare),
            *ours,
        ]

    def _postgres(self, turn: Turn) -> list[Sample]:
        assert self.work.prepared is not None
        some, asked = self._some, self.work.prepared
        return self._timed(
            lambda batch: postgres.look_up(self._server, asked, batch.slice(0, some)[self.work.table.key]), some
        )

    @property
    def _some(self) -> int:
        """A tenth of a micro-batch: a cache that misses is slow."""
        return self.size.batch // 10

    def _duckdb(self, turn: Turn) -> list[Sample]:
        # With the budget of the others, and twice as much as often as it runs out of that.
        memory = parse_size(self.size.memory)
        while True:
            try:
                return [replace(one, details={"memory": memory}) for one in self._timed(partial(self._join, memory))]
            except duckdb.OutOfMemoryException:
                memory *= 2
                turn.say(f"out of memory; once more with {format_size(memory)}")

    def _join(self, memory: int, batch: pa.Table) -> int:
        with duckdb.connect() as base:
            base.execute(f"SET memory_limit = '{memory}B'")
            base.execute(f"SET threads = {streams.CORES}")
            base.execute("SET preserve_insertion_order = false")
            base.register("batch", batch)
            query = f"SELECT * FROM batch JOIN '{self.work.path}/*.parquet' USING ({self.work.table.key})"
            return sum(part.num_rows for part in base.sql(query).to_arrow_reader(_PORTION))

    def _lmdb(self, turn: Turn) -> list[Sample]:
        index = self._index
        schema = self._batches[0].schema
        some = self._some
        kernel = IndexNestedLoops(schema, index, on=index.key, budget=parse_size(self.size.memory) + beside_pool(index))

        def look_up(batch: pa.Table) -> int:
            portions = [Portion(0, rows) for rows in batch.slice(0, some).to_batches(_PORTION)]
            return sum(emission.rows.num_rows for emission in kernel.step(Batch(portions), 0))

        try:
            return self._timed(look_up, some)
        finally:
            kernel.close()

    def _bare(self, turn: Turn) -> list[Sample]:
        assert self.work.prepared is not None
        prepared = self.work.prepared

        def scan(_: pa.Table) -> int:
            def part(number: int) -> None:
                reader = prepared.open()
                for page in prepared.pages[number :: streams.CORES]:
                    np.bitwise_xor.reduce(reader.hashes(page))
                reader.close()

            workers = [threading.Thread(target=part, args=(number,)) for number in range(streams.CORES)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            return self.size.batch

        return self._timed(scan)

    def _timed(self, work: Callable[[pa.Table], int], rows: int | None = None) -> list[Sample]:
        found = []
        for batch in self._batches:
            began = time.perf_counter()
            results = work(batch)
            seconds = time.perf_counter() - began
            wanted = rows or self.size.batch
            if results != wanted:
                raise RuntimeError(f"{results} results where {wanted} were expected.")
            found.append(Sample(wanted, seconds))
        return found[1:]
