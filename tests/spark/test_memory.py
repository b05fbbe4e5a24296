"""Resident memory of the Python workers, sampled through a run over a table many times larger than the budget.

The promise: never more than a worker's start (its size before its first step) + 1.25 × budget + 64 MB. Resident size
counts file pages that are mapped into the process, too.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.testing import uniform_keys, zipf_keys
from tests.spark.conftest import FINITE, eventually, python_workers

pytestmark = pytest.mark.spark

MB = 1 << 20
COLUMNS = 14


class Scales:
    """Samples the resident size of every Python worker below this process."""

    def __init__(self, seconds: float = 0.05) -> None:
        self.seconds = seconds
        self.starts: dict[int, int] = {}
        self.peaks: dict[int, int] = {}
        self.samples = 0
        self._known: dict[int, psutil.Process] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Scales:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        """How far the heaviest worker came above the start.

        All are forked from one process and begin alike; the least that any was first seen with is the start, for some
        were already at work when they were found.
        """
        return max(self.peaks.values()) - min(self.starts.values())

    def _sample(self) -> None:
        look = 0.0
        while not self._stop.is_set():
            if time.monotonic() > look:
                self._find()
                look = time.monotonic() + 0.5
            for pid, process in list(self._known.items()):
                try:
                    size = process.memory_info().rss
                    self.starts.setdefault(pid, size)
                    self.peaks[pid] = max(self.peaks.get(pid, 0), size)
                    self.samples += 1
                except psutil.Error:
                    del self._known[pid]
            self._stop.wait(self.seconds)

    def _find(self) -> None:
        for process in python_workers():
            if process.pid not in self._known:
                self._known[process.pid] = process


def table(folder, megabytes: int, page: int, seed: int):
    """Unique integer keys in random order and columns of random integers: what it is on disk, it is in memory."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    count = megabytes * MB // (8 * (COLUMNS + 1))
    keys = rng.permutation(count).astype(np.int64)
    for number, start in enumerate(range(0, count, 500_000)):
        part = keys[start : start + 500_000]
        columns = {f"c{i}": rng.integers(0, 1 << 62, len(part)) for i in range(COLUMNS)}
        pq.write_table(
            pa.table({"k": part, **columns}), folder / f"{number}.parquet", row_group_size=page,
            use_dictionary=False, compression="none",
        )  # fmt: skip
    return count


def stream(folder, keys, files: int) -> None:
    folder.mkdir()
    for number, part in enumerate(np.array_split(keys, files)):
        ids = np.arange(len(part)) + number * len(part)
        pq.write_table(pa.table({"id": ids, "k": part}), folder / f"{number:03d}.parquet")


KEYS = {
    "uniform": lambda rows, count: uniform_keys(rows, count, seed=1),
    "zipf": lambda rows, count: zipf_keys(rows, count, 1.1, seed=2),
    "hot": lambda rows, count: np.where(np.arange(rows) % 2 == 0, 7, uniform_keys(rows, count, seed=3)),
}


def weigh(spark, folder, budget: int, over, rows: int, count: int, kind: str) -> int:
    """Run the join and say how far above its start the heaviest worker came."""
    for worker in python_workers():
        worker.kill()  # what other queries of the session left in them is not this one's
    keys = KEYS[kind](rows, count)
    stream(folder / f"stream-{kind}", keys, files=3)
    frame = spark.readStream.schema("id long, k long").option("maxFilesPerTrigger", 1)
    flow = ps.join_table(frame.parquet(str(folder / f"stream-{kind}")), over, on="k", memory=budget, slots=2)
    places = {name: str(folder / f"{name}-{kind}") for name in ("results", "set_aside")}
    with Scales() as scales:
        flow.start(**places, checkpoint=str(folder / f"ck-{kind}"), trigger=FINITE).wait()
    written = sum(pq.read_metadata(path).num_rows for path in (folder / f"results-{kind}").glob("*.parquet"))
    assert written == rows, "every key is in the table, once"
    assert eventually(lambda: sum(b["rows_out"] for b in flow.history()) == rows)
    assert all(0 < b["memory"] <= b["budget"] <= budget for b in flow.history() if b["slots_stepped"])
    assert scales.samples > 20
    print(f"starts {min(scales.starts.values()) / MB:.0f} MB, {len(scales.starts)} workers")
    return scales.growth


@pytest.mark.parametrize("layout", ["parquet", pytest.param("prepared", marks=pytest.mark.slow)])
def test_workers_stay_within_a_small_budget(spark, tmp_path, layout):
    """8 MB over a table of 200 MB; half of the rows have one key, the others any."""
    budget = 8 * MB
    count = table(tmp_path / "t", 200, page=2_000, seed=11)
    check(spark, tmp_path, budget, layout, count, rows=40_000, page_bytes=128 << 10, kinds=("hot",))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["parquet", "prepared"])
def test_workers_stay_within_a_large_budget(spark, tmp_path, layout):
    """64 MB over a table of 1.3 GB, and windows that are full."""
    count = table(tmp_path / "t", 1_300, page=65_536, seed=12)
    check(spark, tmp_path, 64 * MB, layout, count, rows=2_000_000, page_bytes=1 * MB, kinds=tuple(KEYS))


def check(spark, folder, budget, layout, count, rows, page_bytes, kinds) -> None:
    over = ps.table(folder / "t", key="k")
    if layout == "prepared":
        over = ps.prepare(over, folder / "prepared", key="k", page_bytes=page_bytes)
    found = {kind: weigh(spark, folder, budget, over, rows, count, kind) for kind in kinds}
    allowed = 1.25 * budget + 64 * MB
    for kind, grown in found.items():
        print(f"{layout}, {kind}: {grown / MB:.0f} MB above the start, {allowed / MB:.0f} allowed")
    assert max(found.values()) <= allowed
