"""Tables in CSV files, written as Parquet once: a join reads pages, which CSV does not have."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from penstock.errors import UnreadableTable
from penstock.plan.pipeline.columns import csv_options
from penstock.plan.pipeline.data_files import data_files
from penstock.plan.pipeline.spec import TableFile

#: Rows of a page; small pages need little memory.
_PAGE_ROWS = 20_000


def table_path(table: TableFile, folder: Path) -> Path:
    """Where the table can be read as pages: its own path, or what its CSV files were written to, below `folder`.

    The name of that folder holds the files' names, sizes and times, and how they are read, so that what changed is
    written anew, and a folder that is there is whole.
    """
    if table.format != "csv":
        return table.path
    files = data_files(table.path, ".csv")
    told = "\n".join(f"{f} {f.stat().st_size} {f.stat().st_mtime_ns}" for f in files)
    told += f"{table.columns} {sorted(table.options.items())}"
    whole = folder / "tables" / f"{table.name}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    if not whole.exists():
        scratch = whole.with_name(f".{whole.name}-{uuid.uuid4().hex[:8]}")
        scratch.mkdir(parents=True)
        try:
            for number, file in enumerate(files):
                _write(file, scratch / f"{number:05d}.parquet", table)
            scratch.rename(whole)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return whole


def settled(table: TableFile, folder: Path) -> TableFile:
    """The table as it can be read, by a path that stays the same when CSV files change: checkpoints know it by that.

    For whoever holds `folder`; what the files were written to before is deleted.
    """
    if table.format != "csv":
        return table
    whole = table_path(table, folder)
    link = whole.with_name(table.name)
    scratch = whole.with_name(f".{table.name}-{uuid.uuid4().hex[:8]}")
    scratch.symlink_to(whole.name)
    scratch.replace(link)
    for old in link.parent.glob(f"{table.name}-*"):
        if old != whole:
            shutil.rmtree(old, ignore_errors=True)
    return replace(table, path=link, format="parquet", options={})


def _write(file: Path, target: Path, table: TableFile) -> None:
    options = csv_options(table.options)
    options["convert_options"].column_types = table.columns  # type: ignore[attr-defined]
    options["convert_options"].include_columns = table.columns.names  # type: ignore[attr-defined]
    try:
        with csv.open_csv(file, **options) as rows, pq.ParquetWriter(target, table.columns) as out:
            for batch in rows:
                out.write_batch(batch, row_group_size=_PAGE_ROWS)
    except (pa.ArrowException, KeyError, OSError) as fault:
        raise UnreadableTable(
            f"{file}: {str(fault).splitlines()[0]}",
            why="A row of a table that cannot be read would be missing from every join with it.",
            do="Mend the file, or write down other types: columns = { … }.",
        ) from fault
