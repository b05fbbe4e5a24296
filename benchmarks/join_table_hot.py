"""What the front cache of `join_table` is worth, where a budget is so small that micro-batches take several passes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from benchmarks.harness import Benchmark, Contestant, Ratio, Sample, Say, Turn
from benchmarks.join_table import FULL, PREPARED, QUICK, Size, Work, _Discard
from benchmarks.judge import Keys
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.front import GAIN
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.plan.units import parse_size
from penstock.tables.keys import hash_keys, hash_range, slot_of
from penstock.testing import uniform_keys, zipf_keys

SLOTS = 2
#: Micro-batches of a turn; the cache learns in the first, which is not counted.
STEPS = 4
_PORTION = 32_768


def benchmarks(quick: bool) -> list[Benchmark]:
    """Kernels with and without the cache, and the whole operator with both kinds of keys."""
    # The least that pages of this table allow is 15 MB.
    size = replace(QUICK, batch=400_000, memory="8MB") if quick else replace(FULL, memory="16MB")
    hot = Hot(size)
    ratios = (
        Ratio(_name("Zipf 1.0", GAIN), _name("Zipf 1.0", None)),
        Ratio(_name("uniform", GAIN), _name("uniform", None)),
        Ratio(f"{PREPARED}, Zipf 1.0", f"{PREPARED}, uniform"),
    )
    about = (
        f"table of {size.table:,} rows, micro-batches of {size.batch:,}, memory={size.memory!r}; one of two slots' "
        "kernel alone, and the whole, results discarded"
    )
    return [Benchmark("join_table/hot", about, hot.contestants, ratios, (), hot.setup)]


def _name(keys: str, front: float | None) -> str:
    return f"kernel alone, {keys}, {'with' if front is not None else 'without'} front cache"


class Hot:
    """The prepared table and both streams."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.works = [Work(size, Keys(), ", uniform"), Work(size, Keys(zipf=True), ", Zipf 1.0")]

    @contextmanager
    def setup(self, say: Say) -> Iterator[None]:
        """Make what is not there yet, and start the session."""
        with self.works[0].setup(say), self.works[1].setup(say):
            yield

    def contestants(self) -> list[Contestant]:
        """Each kind of keys: the kernel with and without, and Spark."""
        whole = [one for work in self.works for one in work.contestants(_Discard) if one.name.startswith(PREPARED)]
        alone = [
            Contestant(_name(keys, front), lambda turn, keys=keys, front=front: self._kernel(turn, keys, front))
            for keys in ("uniform", "Zipf 1.0")
            for front in (None, GAIN)
        ]
        return [*alone, *whole]

    def _kernel(self, turn: Turn, keys: str, front: float | None) -> list[Sample]:
        table = self.works[0].prepared
        assert table is not None
        pages = table.by_key(0, SLOTS)
        schema = pa.schema([("order_id", pa.int64()), ("product_id", pa.int64())])
        on = Equal(("product_id",)).slot(hash_range(0, SLOTS))
        kernel = MeshJoin(schema, table, on=on, budget=parse_size(self.size.memory) // SLOTS, pages=pages, front=front)
        samples = []
        for step in range(STEPS):
            turn.say(f"step {step}")
            rows = self._rows(keys, turn.round * STEPS + step, schema)
            portions = [Portion(0, rows.slice(at, _PORTION)) for at in range(0, rows.num_rows, _PORTION)]
            began, busy = time.perf_counter(), time.process_time()
            results = sum(emission.rows.num_rows for emission in kernel.step(Batch(portions), 0))
            seconds, busy = time.perf_counter() - began, time.process_time() - busy
            kernel.changes()
            if results != rows.num_rows:
                raise RuntimeError(f"{results} results where {rows.num_rows} were expected.")
            numbers = kernel.metrics()
            details = {"passes": numbers["pages_read"] / len(pages or ()), "answered": numbers["rows_answered"]}
            samples.append(Sample(rows.num_rows, seconds, busy, results, details))
        return samples[1:]

    def _rows(self, keys: str, seed: int, schema: pa.Schema) -> pa.RecordBatch:
        """One slot's part of a micro-batch."""
        size = self.size
        drawn = (
            uniform_keys(size.batch, size.table, seed)
            if keys == "uniform"
            else zipf_keys(size.batch, size.table, 1.0, seed)
        )
        rows = pa.record_batch([pa.array(range(size.batch)), pa.array(drawn)], schema=schema)
        return rows.filter(pa.array(slot_of(hash_keys([rows.column(1)]), SLOTS) == 0))
