"""A table that is not in memory: what it gains that the next page is fetched while one is joined. The kernel alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.harness import Benchmark, Contestant, Ratio, Sample, Say, Turn
from benchmarks.join_table import FULL, QUICK, Size, Work
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.plan.units import parse_size
from penstock.tables import system_cache
from penstock.tables.prepared_reader import PreparedReader

AHEAD = "fetched ahead, from disk"
WHEN_NEEDED = "read when needed, from disk"
MEMORY = "fetched ahead, all in memory"


def benchmarks(quick: bool) -> list[Benchmark]:
    """One micro-batch, over a table that the system has dropped from memory and over one that it has kept."""
    size = QUICK if quick else FULL
    cold = Cold(size)
    about = f"one core, a prepared table of {size.table:,} rows, {size.batch:,} rows with uniform keys, no Spark"
    ratios = (Ratio(AHEAD, WHEN_NEEDED), Ratio(MEMORY, AHEAD))
    return [Benchmark("join_table/cold", about, cold.contestants, ratios, (), cold.setup)]


class Cold:
    """The kernel over the prepared table."""

    def __init__(self, size: Size) -> None:
        self.work, self.size = Work(size), size

    @contextmanager
    def setup(self, say: Say) -> Iterator[None]:
        """The table, and the rows."""
        with self.work.setup(say):
            key = self.work.table.key
            keys = np.random.default_rng(1).integers(0, self.size.table, self.size.batch)
            self._rows = pa.record_batch({"order_id": np.arange(self.size.batch), key: keys})
            yield

    def contestants(self) -> list[Contestant]:
        """From disk in two ways, and from memory."""
        return [
            Contestant(AHEAD, lambda turn: self._turn(turn, drop=True)),
            Contestant(WHEN_NEEDED, lambda turn: self._turn(turn, drop=True, ahead=False)),
            Contestant(MEMORY, lambda turn: self._turn(turn, drop=False)),
        ]

    def _turn(self, turn: Turn, *, drop: bool, ahead: bool = True) -> Sequence[Sample]:
        prepared = self.work.prepared
        if drop:
            for file in Path(prepared.path).iterdir():
                system_cache.forget(file)
        kernel = MeshJoin(
            self._rows.schema, prepared, on=Equal(prepared.key), how="inner", budget=parse_size(self.size.memory)
        )
        began, busy, found = time.perf_counter(), time.process_time(), 0
        with patch.object(PreparedReader, "expect", PreparedReader.expect if ahead else lambda self, page: None):
            found += sum(out.rows.num_rows for out in kernel.step(Batch([Portion(0, self._rows)]), 0))
            while kernel.pending():
                found += sum(out.rows.num_rows for out in kernel.tick(0))
        if found != self.size.batch:
            raise RuntimeError(f"{found} results where {self.size.batch} were expected.")
        return [Sample(found, time.perf_counter() - began, time.process_time() - busy)]
