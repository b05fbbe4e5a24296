"""The same table in pages of other sizes: a sample of it, written anew, so that `c_IO(b)` can be measured over b."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.tables import prepare
from penstock.tables import table as find_table
from penstock.tables.base import Page, Table
from penstock.tables.parquet import ParquetTable

_SAMPLE = 16 << 20
_SMALLEST = 16 << 10
_LARGEST = 8 << 20
_STEP = 4


def page_variants(
    table: Table, where: Path, *, sample: int = _SAMPLE, sizes: Sequence[int] | None = None
) -> list[Table]:
    """Tables of the same kind and rows in `where`, one for each page size: quarters and fourfolds of the table's own.

    A run of pages that follow one another is taken, so that rows of a prepared table lie as densely in their range of
    hashes as in the table itself. Writes and reads about `sample` bytes for each size.
    """
    own = _bytes_of(table.pages[0])
    chosen = sorted({*(_sizes(own) if sizes is None else sizes)})
    run = _run(table.pages, sample)
    reader = table.open()
    try:
        rows = pa.Table.from_batches([batch for page in run for batch in reader.batches(page)], table.schema)
    finally:
        reader.close()
    width = max(sum(_bytes_of(page) for page in run) // max(rows.num_rows, 1), 1)
    # Where rows are wide, many a size is that of as many rows.
    chosen = sorted({max(size // width, 1): size for size in chosen}.values())
    plain = where / "plain"
    plain.mkdir(parents=True)
    pq.write_table(rows, plain / "rows.parquet")
    made: list[Table] = []
    for size in chosen:
        place = where / f"pages-{size}"
        if isinstance(table, ParquetTable):
            place.mkdir()
            codec = _codec(table)
            pq.write_table(rows, place / "rows.parquet", row_group_size=max(size // width, 1), compression=codec)
            made.append(find_table(place, key=table.key))
        else:
            made.append(prepare(plain, place, key=table.key, page_bytes=size))
    return made


def _bytes_of(page: Page) -> int:
    return page.rows * max(page.row_width, 1)


def _sizes(own: int) -> list[int]:
    """From quarters to fourfolds; pages of a small table are smaller than any that is worth making."""
    sizes = [max(own, _SMALLEST)]
    while sizes[0] // _STEP >= _SMALLEST:
        sizes.insert(0, sizes[0] // _STEP)
    while sizes[-1] * _STEP <= _LARGEST:
        sizes.append(sizes[-1] * _STEP)
    return sizes


def _run(pages: Sequence[Page], sample: int) -> list[Page]:
    """Pages from the middle of the table on, about `sample` bytes of them."""
    taken: list[Page] = []
    for page in [*pages[len(pages) // 2 :], *reversed(pages[: len(pages) // 2])]:
        if sum(map(_bytes_of, taken)) >= sample:
            break
        taken.append(page)
    return sorted(taken, key=lambda page: page.index)


def _codec(table: ParquetTable) -> str:
    metadata = pq.read_metadata(table.locate(0))
    if not metadata.num_row_groups:
        return "snappy"
    stored: str = metadata.row_group(0).column(0).compression.lower()
    return "none" if stored == "uncompressed" else stored
