"""Sort more rows than fit in memory by their key hash: split them into ranges on disk, then sort range by range."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    Hashes = npt.NDArray[np.uint64]
    Splitter = Callable[[Hashes], npt.NDArray[np.uint16]]

#: Copies of what is in work that may exist at once: rows as they come, put together, in order, and as pages.
_COPIES = 6
_PIVOTS = 63
#: Arrow's offsets have 31 bits: no range is put together that could have more text.
_MOST = 512 << 20


class _Extent(NamedTuple):
    offset: int
    size: int
    nbytes: int
    lo: int
    hi: int


def sort_by_hash(
    batches: Iterable[pa.RecordBatch], *, rows: int, memory: int, directory: Path
) -> Iterator[pa.RecordBatch]:
    """The same rows in ascending order of their last column, the hash; rows with the same hash keep their order.

    Guarantees
        `batches` is used up before the first batch is yielded. Held at once: about `memory` bytes, whatever the number
        of rows or how often a key repeats: `test_sorting_stays_within_its_memory`.
    State and cost
        Nothing on disk if all rows fit; else every row is written and read once, and again only where one range of
        hashes got too many of them. `rows` is how many will come.
    """
    limit = min(memory // _COPIES, _MOST)
    kept: list[pa.RecordBatch] = []
    held = 0
    spill: _Spill | None = None
    split: Splitter | None = None
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            kept.append(batch)
            held += batch.nbytes
            if held <= limit:
                continue
            if spill is None or split is None:
                spill = _Spill(directory, batch.schema)
                seen = sum(each.num_rows for each in kept)
                split = _ranges(math.ceil(held / seen * max(rows, seen)), limit)
            spill.add(kept, split)
            kept, held = [], 0
        if spill is None or split is None:
            yield from _in_memory(kept)
            return
        spill.add(kept, split)
        kept = []
        yield from spill.drain(limit, directory)
    finally:
        if spill is not None:
            spill.close()


def _in_memory(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if batches:
        whole = _together(batches)
        batches.clear()
        order = np.argsort(_hashes(whole), kind="stable")
        yield whole.take(pa.array(order))


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _hashes(batch: pa.RecordBatch) -> Hashes:
    return batch.column(batch.num_columns - 1).to_numpy()


def _ranges(total: int, limit: int) -> Splitter:
    """Equal ranges of hashes, so many that each will hold about half the limit."""
    bits = int(np.clip(math.ceil(math.log2(max(2 * total / max(limit, 1), 1))), 6, 10))
    shift = np.uint64(64 - bits)
    return lambda hashes: (hashes >> shift).astype(np.uint16)


def _around(pivots: Hashes) -> Splitter:
    """The ranges between the pivots and, apart from them, each pivot: what repeats most has a range of its own."""

    def split(hashes: Hashes) -> npt.NDArray[np.uint16]:
        below = np.searchsorted(pivots, hashes)
        equal = pivots[np.minimum(below, len(pivots) - 1)] == hashes
        return (2 * below + equal).astype(np.uint16)

    return split


class _Spill:
    """Ranges of rows in one unnamed file. The extents of a range are in the order in which its rows came."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._schema = schema
        path = directory / "spill.tmp"
        self._file = open(path, "w+b", buffering=0)  # noqa: SIM115 — closed by `close`
        # It goes with the process, however that ends.
        path.unlink()
        self._end = 0
        self._ranges: dict[int, list[_Extent]] = defaultdict(list)

    def add(self, batches: list[pa.RecordBatch], split: Splitter) -> None:
        """Write rows to their ranges."""
        if not batches:
            return
        whole = _together(batches)
        batches.clear()
        ids = split(_hashes(whole))
        order = np.argsort(ids, kind="stable")
        ids, whole = ids[order], whole.take(pa.array(order))
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            self._write(int(ids[start]), whole.slice(start, end - start))

    def _write(self, number: int, rows: pa.RecordBatch) -> None:
        hashes = _hashes(rows)
        data = memoryview(rows.serialize())
        done = 0
        while done < len(data):
            done += os.pwrite(self._file.fileno(), data[done:], self._end + done)
        extent = _Extent(self._end, len(data), rows.nbytes, int(hashes.min()), int(hashes.max()))
        self._ranges[number].append(extent)
        self._end += len(data)

    def drain(self, limit: int, directory: Path) -> Iterator[pa.RecordBatch]:
        """All rows in ascending order."""
        for number in sorted(self._ranges):
            extents = self._ranges.pop(number)
            if sum(extent.nbytes for extent in extents) <= limit:
                yield from _in_memory([self._read(extent) for extent in extents])
            elif min(extent.lo for extent in extents) == max(extent.hi for extent in extents):
                # One hash alone: in order as it is.
                for extent in extents:
                    yield self._read(extent)
            else:
                yield from self._divide(extents, limit, directory)

    def _divide(self, extents: list[_Extent], limit: int, directory: Path) -> Iterator[pa.RecordBatch]:
        """A range with too many rows goes through a spill of its own, around hashes found in it."""
        sample = np.concatenate([_sample(_hashes(self._read(extent))) for extent in extents])
        found = np.quantile(np.arange(len(sample)), np.linspace(0, 1, _PIVOTS), method="nearest").astype(np.intp)
        split = _around(np.unique(np.sort(sample)[found]))
        finer = _Spill(directory, self._schema)
        try:
            for extent in extents:
                finer.add([self._read(extent)], split)
            yield from finer.drain(limit, directory)
        finally:
            finer.close()

    def _read(self, extent: _Extent) -> pa.RecordBatch:
        buffer = pa.allocate_buffer(extent.size)
        view = memoryview(buffer)
        done = 0
        while done < extent.size:
            got = os.preadv(self._file.fileno(), [view[done:]], extent.offset + done)
            if got == 0:
                raise OSError("the spill file ended early")
            done += got
        return pa.ipc.read_record_batch(buffer, self._schema)

    def close(self) -> None:
        """Give the room on disk back."""
        self._file.close()


def _sample(hashes: Hashes) -> Hashes:
    return hashes[:: max(len(hashes) // 256, 1)].copy()
