"""An Iceberg table as pages: its newest metadata file says which files belong to a snapshot (extra `iceberg`)."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import UnreadableTable
from penstock.tables.parquet import Listed, ParquetTable

_FIELD_ID = b"PARQUET:field_id"


def is_iceberg(where: Path) -> bool:
    """Whether there is Iceberg metadata."""
    return any((where / "metadata").glob("*.metadata.json"))


def newest(where: Path) -> int:
    """The id of the current snapshot; 0 for a table without any."""
    snapshot = _open(where).metadata.current_snapshot_id
    return int(snapshot) if snapshot is not None else 0


def plan(where: Path, key: tuple[str, ...], snapshot: int | None = None) -> ParquetTable:
    """The rows as of a snapshot, or the current one, in the columns that the table has now."""
    opened = _open(where)
    wanted = opened.metadata.current_snapshot_id if snapshot is None else snapshot
    scan = opened.scan(snapshot_id=wanted) if wanted else opened.scan()
    columns = opened.schema().as_arrow()
    named = opened.name_mapping()
    numbers = {name: field.field_id for field in (named or ()) for name in field.names}
    listed = [_file(task, columns, numbers, opened) for task in scan.plan_files()]
    listed.sort(key=lambda file: str(file.path))
    return ParquetTable.plan(
        str(where), key, listed=listed, columns=columns, snapshot=f"Iceberg snapshot {wanted or 'none'}"
    )


def _file(task: Any, columns: pa.Schema, numbers: dict[str, int], opened: Any) -> Listed:
    """A data file. Its columns are the table's by their numbers, whatever they are called; `numbers` has those of the
    columns of files that were written without any.
    """
    path = Path(str(task.file.file_path).removeprefix("file://"))
    if task.delete_files:
        raise UnreadableTable(
            f"Rows of {path} were deleted by a file of deletes.",
            why="The data files of this Iceberg table then hold rows that are not in it any more.",
            do="Compact the table (rewrite_data_files), or let its writer copy on write.",
        )
    if str(task.file.file_format).rpartition(".")[2] != "PARQUET":
        raise UnreadableTable(f"{path} is {task.file.file_format}.", do="Write the table's files as Parquet.")
    try:
        stored = pq.read_schema(path)
    except (OSError, pa.ArrowException) as fault:
        raise UnreadableTable(f"{path} cannot be read: {str(fault).splitlines()[0]}.") from fault
    there = {_number_of(field) or numbers.get(field.name): field for field in stored}
    names, constants = [], []
    elsewhere = _elsewhere(task.file, opened)
    for field in columns:
        number = _number_of(field)
        found = there.get(number)
        if found is None:
            constants += [(field.name, elsewhere[number])] if number in elsewhere else []
            continue
        names.append((field.name, found.name))
        if found.type.num_fields and _number_of(found) and _inner(found.type) != _inner(field.type):
            raise UnreadableTable(
                f"What is within column {field.name!r} is not what {path} has there.",
                why="It was renamed, or dropped and made anew; only whole columns are known by their numbers.",
                do="Rewrite the table's files (rewrite_data_files), so that they have its present columns.",
            )
    return Listed(path, tuple(constants), tuple(names))


def _elsewhere(file: Any, opened: Any) -> dict[int | None, Any]:
    """By their numbers, the values of columns that a file lacks: its partition's, or what a later column began with."""
    from pyiceberg.transforms import IdentityTransform

    begun = {field.field_id: field.initial_default for field in opened.schema().fields}
    values: dict[int | None, Any] = {number: value for number, value in begun.items() if value is not None}
    for place, field in enumerate(opened.specs()[file.spec_id].fields):
        if isinstance(field.transform, IdentityTransform):
            values[field.source_id] = file.partition[place]
    return {number: value.bytes if isinstance(value, UUID) else value for number, value in values.items()}


def _number_of(field: pa.Field) -> int | None:
    said = (field.metadata or {}).get(_FIELD_ID)
    return None if said is None else int(said)


def _inner(kind: pa.DataType) -> list[Any]:
    """The numbers and names of the columns within one."""
    fields = [kind.field(place) for place in range(kind.num_fields)]
    own = pa.types.is_struct(kind)
    return [(_number_of(field), field.name if own else "", _inner(field.type)) for field in fields]


def _open(where: Path) -> Any:
    try:
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.table import StaticTable
    except ImportError as missing:
        raise UnreadableTable(
            f"{where} is an Iceberg table.", why="Reading it needs pyiceberg.", do='pip install "penstock[iceberg]"'
        ) from missing
    files = list((where / "metadata").glob("*.metadata.json"))
    last = max(files, key=_number)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return StaticTable.from_metadata(str(last))
    except (OSError, ValueError, ValidationError) as fault:
        raise UnreadableTable(
            f"{last} is not metadata of an Iceberg table: {str(fault).splitlines()[0]}.",
            do="Restore it, or write a snapshot.",
        ) from fault


def _number(file: Path) -> tuple[int, float]:
    """Metadata files are numbered: 00012-….metadata.json, or v12.metadata.json."""
    found = re.match(r"v?(\d+)", file.name)
    return int(found[1]) if found else -1, file.stat().st_mtime
