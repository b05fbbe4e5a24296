"""What a refresh of a view costs on Spark, by the number of changes: the functions that planners plan with.

Measured in processor seconds of the driver, the JVM and its workers, so that it says the same on a busy machine. A
refresh is done in full, with rows of the table itself, and thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.harness import Benchmark, Contestant, Sample, Say, Turn

if TYPE_CHECKING:
    from benchmarks.views import Bench

#: Changes that are brought in at once; a table with fewer rows has as many as it has.
SIZES = (100, 1_000, 10_000, 40_000)


def busy() -> float:
    """Processor seconds of this process and all below it, so far."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


class Costs:
    """A view that is open for all turns."""

    def __init__(self, bench: Bench, tables: Sequence[str]) -> None:
        self._bench, self._tables = bench, tables
        self._maintainer: Any = None

    @contextmanager
    def setup(self, say: Say) -> Iterator[None]:
        """Open the view, with no change waiting."""
        with self._bench.open(say):
            self._maintainer = self._bench.service._maintainer
            yield

    def contestants(self) -> list[Contestant]:
        """Every table with every number of changes."""
        return [
            Contestant(f"{table}, {size:,} changes", lambda turn, t=table, n=size: self._run(turn, t, n))
            for table in self._tables
            for size in SIZES
        ]

    def _run(self, turn: Turn, table: str, size: int) -> list[Sample]:
        began = busy()
        ((changes, seconds),) = self._maintainer.tried(table, (size,))
        # It is done twice, the first time to warm up.
        each = (busy() - began) / 2
        turn.say(f"{changes:,} changes: {each:.2f} processor seconds, {seconds:.2f} s")
        return [Sample(changes, each, details={"wall": seconds})]


def benchmark(bench: Bench, tables: Sequence[str]) -> Benchmark:
    """One: changes for each processor second, by their number."""
    costs = Costs(bench, tables)
    about = f"changes for each processor second of a refresh, at scale {bench.setting.scale}"
    return Benchmark("views/costs", about, costs.contestants, setup=costs.setup)
