"""Sorting by hash on disk: the same rows in order, in bounded memory, whatever repeats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.tables.spill import sort_by_hash


def batch(hashes: np.ndarray, first: int, width: int = 0) -> pa.RecordBatch:
    """Rows that know where they came from; the hash last."""
    numbers = np.arange(first, first + len(hashes))
    columns = {"row": pa.array(numbers)}
    if width:
        columns["text"] = pa.array(["x" * width] * len(hashes))
    columns["hash"] = pa.array(hashes.astype(np.uint64))
    return pa.record_batch(columns)


@settings(max_examples=40)
@given(
    pieces=st.lists(st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 7, 2**64 - 1]), max_size=30), max_size=8),
    memory=st.sampled_from([6, 600, 60_000]),
)
def test_rows_come_back_in_order_of_hash_and_arrival(
    pieces: list[list[int]], memory: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("spill")
    arrays = [np.array(piece, np.uint64) for piece in pieces]
    starts = np.cumsum([0] + [len(piece) for piece in arrays])
    batches = [batch(piece, int(start)) for piece, start in zip(arrays, starts, strict=False)]
    out = list(sort_by_hash(iter(batches), rows=int(starts[-1]), memory=memory, directory=directory))
    got = [(h, r) for part in out for r, h in zip(*(part.column(i).to_pylist() for i in (0, 1)), strict=True)]
    flat = [int(h) for piece in pieces for h in piece]
    assert got == sorted((h, r) for r, h in enumerate(flat))
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("hot", ["uniform", "one hash", "half of one hash", "all in one range", "wrong estimate"])
def test_sorting_stays_within_its_memory(tmp_path: Path, hot: str) -> None:
    """40 MB of rows through 6 MB."""
    random = np.random.default_rng(0)
    memory, rows, step = 6 << 20, 100_000, 2_000

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, step):
            hashes = random.integers(0, 2**64, step, dtype=np.uint64)
            if hot == "one hash":
                hashes[:] = 12345
            elif hot == "half of one hash":
                hashes[::2] = 2**63
            elif hot == "all in one range":
                hashes >>= np.uint64(20)
            yield batch(hashes, first, width=400)

    base = pa.total_allocated_bytes()
    highest = seen = last = 0
    told = 10 if hot == "wrong estimate" else rows
    for part in sort_by_hash(batches(), rows=told, memory=memory, directory=tmp_path):
        hashes = part.column("hash").to_numpy()
        assert int(hashes[0]) >= last
        assert np.all(hashes[1:] >= hashes[:-1])
        last, seen = int(hashes[-1]), seen + part.num_rows
        highest = max(highest, pa.total_allocated_bytes() - base)
    assert seen == rows
    assert highest <= memory


def test_the_room_on_disk_is_given_back_when_the_consumer_stops(tmp_path: Path) -> None:
    import psutil

    hashes = np.random.default_rng(0).integers(0, 2**64, 10_000, dtype=np.uint64)
    pieces = [batch(hashes[i : i + 100], i, width=100) for i in range(0, 10_000, 100)]
    before = psutil.Process().num_fds()
    ordered = sort_by_hash(iter(pieces), rows=10_000, memory=100_000, directory=tmp_path)
    next(ordered)
    ordered.close()  # type: ignore[attr-defined]
    assert psutil.Process().num_fds() == before
    assert list(tmp_path.iterdir()) == []
