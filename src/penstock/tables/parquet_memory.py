"""What reading a row group costs in memory: bounds for `Page`, from the metadata and a look at the first pages.

A reader holds one Parquet page of a column at a time, packed and unpacked, its dictionary, and a batch of decoded
values. Footers do not say how large pages are: most writers cut them at one megabyte, some write a whole column chunk
as one page. So the header of each column's first page in a file is read, and no page is taken to be more than twice as
large.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.tables.arrow_types import fixed_width
from penstock.tables.base import Page

#: What is decoded of a column at once: so memory stays bounded where it unfolds to more than it has on disk.
_BATCH_BYTES = 1 << 19
#: Bytes read ahead of a column chunk.
BUFFER = 1 << 18
# What writers usually do: a page that was cut a little late, a full dictionary.
_USUAL_PAGE = 5 << 18
_USUAL_DICTIONARY = 1 << 20
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_2 = 0, 2, 3
# Thrift: the field after the last one is a 32-bit integer; some later field is a struct.
_NEXT_INTEGER, _STRUCT = 0x15, 0x0C


class PageSizes(NamedTuple):
    """The first page of a column chunk, unpacked and packed; its dictionary, and how many values that has."""

    unpacked: int
    packed: int
    dictionary: int
    entries: int


def measured(file: Path, metadata: pq.FileMetaData) -> list[PageSizes | None]:
    """The pages that each leaf column begins with, in the first row group with rows; None where it cannot be told."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    group = next((group for group in groups if group.num_rows), None)
    if group is None:
        return []
    with open(file, "rb", buffering=0) as opened:
        return [_first_page(opened.fileno(), group.column(leaf)) for leaf in range(group.num_columns)]


def _first_page(descriptor: int, chunk: pq.ColumnChunkMetaData) -> PageSizes | None:
    kind, unpacked, packed, _ = _header(descriptor, chunk.data_page_offset)
    if kind not in (_DATA_PAGE, _DATA_PAGE_2):
        return None
    dictionary = entries = 0
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        kind, dictionary, _, entries = _header(descriptor, chunk.dictionary_page_offset)
        if kind != _DICTIONARY_PAGE:
            return None
    return PageSizes(unpacked, packed, dictionary, entries)


def _header(descriptor: int, offset: int) -> tuple[int, int, int, int]:
    """Type, unpacked and packed size of a page, and how many values it has: from its Thrift header. -1 or 0 if unknown.

    Compact protocol: fields 1 to 3, perhaps field 4 (a checksum), then a struct whose first field is the number.
    """
    data = os.pread(descriptor, 40, offset)
    fields: list[int] = []
    at = 0
    while len(fields) < 4 and at < len(data) and data[at] == _NEXT_INTEGER:
        value, at = _integer(data, at + 1)
        fields.append(value)
    if len(fields) < 3:
        return -1, 0, 0, 0
    entries = 0
    if data[at : at + 1] and data[at] & 0x0F == _STRUCT and data[at + 1 : at + 2] == bytes([_NEXT_INTEGER]):
        entries, at = _integer(data, at + 2)
    return fields[0], fields[1], fields[2], entries


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of 7 bits a byte, and where it ends."""
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            break
    return (value >> 1) ^ -(value & 1), at


def page(
    index: int, group: pq.RowGroupMetaData, fields: pa.Schema, key: tuple[str, ...], sizes: list[PageSizes | None]
) -> Page:
    """The page that a row group is."""
    rows: int = group.num_rows
    cost, widths = dict.fromkeys(fields.names, 0), dict.fromkeys(fields.names, 0)
    for leaf in range(group.num_columns):
        chunk = group.column(leaf)
        column = owner(chunk.path_in_schema, fields)
        if column is None:
            continue
        first = sizes[leaf] if leaf < len(sizes) else None
        each = width(chunk, fields.field(column).type, rows, first)
        cost[column] += _held(chunk, first)
        cost[column] += min(batch_rows(each), max(chunk.num_values, rows)) * each
        widths[column] += each
    key_bytes = 8 * rows + sum(cost[name] for name in key)
    return Page(index, rows, key_bytes, max(cost.values(), default=0), sum(widths.values()))


def _held(chunk: pq.ColumnChunkMetaData, first: PageSizes | None) -> int:
    """Bytes of a chunk that a reader holds at once. The room for unpacking grows by doubling, hence twice."""
    unpacked, packed = chunk.total_uncompressed_size, chunk.total_compressed_size
    dictionary = unpacked if chunk.has_dictionary_page else 0
    if first is not None:
        unpacked = min(unpacked, max(2 * first.unpacked, _USUAL_PAGE))
        packed = min(packed, max(2 * first.packed, _USUAL_PAGE))
        dictionary = min(dictionary, max(first.dictionary, _USUAL_DICTIONARY))
    # A page and the dictionary are different parts of the chunk.
    both = min(unpacked + dictionary, chunk.total_uncompressed_size)
    return min(BUFFER, chunk.total_compressed_size) + packed + 2 * both


def owner(path: str, fields: pa.Schema) -> str | None:
    """The column a leaf belongs to; None if that is no column of the table any more."""
    first = path.partition(".")[0]
    if fields.get_field_index(first) >= 0:
        return first
    # A name with a dot in it.
    return next((name for name in fields.names if path == name or path.startswith(name + ".")), None)


def width(chunk: pq.ColumnChunkMetaData, type_: pa.DataType, rows: int, first: PageSizes | None) -> int:
    """Bytes of a decoded value, on average.

    Under a dictionary that is a guess: as if each of its values were as frequent as the others. A text of megabytes
    that every row has takes a few bytes a row on disk.
    """
    fixed = fixed_width(type_)
    if fixed is not None:
        return fixed
    stored = -(-chunk.total_uncompressed_size // max(rows, 1))
    if not chunk.has_dictionary_page:
        return 8 + stored
    mean = first.dictionary // first.entries if first is not None and first.entries else 0
    return 8 + max(stored, max(mean, 24) * -(-chunk.num_values // max(rows, 1)))


def batch_rows(each: int) -> int:
    """How many values of this width are decoded at once."""
    return int(np.clip(_BATCH_BYTES // max(each, 1), 1 << 10, 1 << 16))
