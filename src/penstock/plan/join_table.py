"""The plan of `join_table`: a stream against a table larger than memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa

from penstock.errors import BadOption, MemoryTooSmall, PenstockError, PlanError
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Metric
from penstock.kernels.mesh.meshjoin import MeshJoin, least_budget, results_schema, rows_in
from penstock.plan.base import Plan, Side
from penstock.plan.units import format_size, parse_size
from penstock.tables.base import Page, Table
from penstock.tables.keys import PARTITIONS, check_key_types, hash_range

Division = Literal["key", "pages"]


@dataclass(frozen=True)
class JoinTablePlan(Plan):
    """Inner equi-join of a stream with a table.

    `division` says how slots share the work. By "key" each slot holds the rows of its own range of key hashes and scans
    only the pages with them, which needs a prepared table. By "pages" each slot scans its own share of the pages and
    holds every row. `memory` is for all slots together.
    """

    stream: pa.Schema
    table: Table
    on: tuple[str, ...]
    memory: int
    slots: int
    division: Division
    pages_per_step: int | None = None

    name: ClassVar[str] = "join_table"
    reports: ClassVar[tuple[Metric, ...]] = MeshJoin.reports

    @classmethod
    def checked(
        cls,
        stream: pa.Schema,
        table: Table,
        *,
        on: tuple[str, ...],
        memory: str | int,
        slots: int,
        division: Division | None = None,
        pages_per_step: int | None = None,
    ) -> JoinTablePlan:
        """The plan, or one error that names every fault in it."""
        by_key = table.by_key(0, 1) is not None
        size, faults = _size(memory)
        faults += _key_faults(stream, table, on)
        faults += _clashes(stream, table)
        faults += _option_faults(table, by_key, slots, division, pages_per_step)
        if not faults:
            plan = cls(stream, table, on, size, slots, division or ("key" if by_key else "pages"), pages_per_step)
            faults += plan._memory_faults()
        if len(faults) == 1:
            raise faults[0]
        if faults:
            raise PlanError(f"{len(faults)} faults in this join.", why="\n  ".join(str(fault) for fault in faults))
        return plan

    def _memory_faults(self) -> list[PenstockError]:
        least = least_memory(self.table, self.slots, self.division)
        if self.memory >= least:
            return []
        return [
            MemoryTooSmall(
                f"{format_size(self.memory)} cannot hold one page and one packet of this join.",
                why=f"{self.slots} slots need {format_size(least)}, most of it for one page of {self.table.path} each.",
                do=f'Give at least memory="{format_size(least, round_up=True)}", '
                f"or write the table with smaller pages: {_prepare(self.table)} --page 256KB",
            )
        ]

    def pages(self, slot: int) -> tuple[Page, ...]:
        """The pages that a slot scans."""
        return _share(self.table, slot, self.slots, self.division)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The stream."""
        return (Side(self.stream, key=self.on if self.division == "key" else ()),)

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """Results, and rows too large for the window."""
        return {RESULTS: results_schema(self.stream, self.table), SET_ASIDE: SET_ASIDE_SCHEMA}

    def make(self, slot: int) -> MeshJoin:
        """The kernel of a slot."""
        return MeshJoin(
            self.stream,
            self.table,
            on=self.on,
            budget=self.memory // self.slots,
            pages=self.pages(slot),
            hashes=hash_range(slot, self.slots) if self.division == "key" else (0, 1 << 64),
            pages_per_step=self.pages_per_step,
            counts_rows=self.division == "key" or slot == 0,
        )

    def identity(self) -> Mapping[str, str]:
        """Stream, key, division and slots; not the budget, which may change at a restart."""
        return {
            "operator": self.name,
            "stream columns": ", ".join(f"{field.name} {field.type}" for field in self.stream),
            "on": ", ".join(self.on),
            "table": os.path.abspath(self.table.path),
            "table key": ", ".join(self.table.key),
            "division": self.division,
            "slots": str(self.slots),
        }

    def explain(self) -> str:
        """The join, its division, and how memory is spent."""
        total = sum(page.rows for page in self.table.pages)
        width = sum(_width(field.type) for field in self.stream)
        shared = sum(rows_in(self.memory // self.slots, self.pages(slot), width) for slot in range(self.slots))
        shared = shared if self.division == "key" else shared // self.slots
        kind = "prepared" if self.table.by_key(0, 1) is not None else "Parquet"
        by = "key: each holds its own rows" if self.division == "key" else "pages: each holds every row"
        return "\n".join(
            [
                f"join_table on {', '.join(self.on)} = {', '.join(self.table.key)} (inner, MESHJOIN)",
                f"  table    {self.table.path}: {total:,} rows in {len(self.table.pages):,} pages, {kind}",
                f"  work     {self.slots} slots, divided by {by} and scans its own pages",
                f"  memory   {format_size(self.memory)} in all, {format_size(self.memory // self.slots)} a slot",
                f"  window   about {shared:,} rows of {width} B share one pass over the table",
            ]
        )


def least_memory(table: Table, slots: int, division: Division) -> int:
    """The smallest budget with which this many slots can join the table: for each, one page and one packet."""
    return slots * max(least_budget(_share(table, slot, slots, division)) for slot in range(slots))


def _share(table: Table, slot: int, slots: int, division: Division) -> tuple[Page, ...]:
    if division == "key":
        pages = table.by_key(slot, slots)
        assert pages is not None, "checked when the plan was made"
        return pages
    return table.pages[slot::slots]


def _prepare(table: Table) -> str:
    return f"penstock prepare {table.path} <target> --key {','.join(table.key)}"


def _width(kind: pa.DataType) -> int:
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 24


def _size(memory: str | int) -> tuple[int, list[PenstockError]]:
    try:
        return parse_size(memory), []
    except BadOption as fault:
        return 0, [fault]


def _key_faults(stream: pa.Schema, table: Table, on: tuple[str, ...]) -> list[PenstockError]:
    if len(on) != len(table.key):
        return [
            BadOption(
                f"`on` names {len(on)} columns, and the key of {table.path} has {len(table.key)}.",
                do=f"Give one stream column for each of: {', '.join(table.key)}.",
            )
        ]
    faults: list[PenstockError] = []
    for ours, theirs in zip(on, table.key, strict=True):
        try:
            check_key_types(stream, (ours,), table.schema, (theirs,))
        except PlanError as fault:
            faults.append(fault)
    return faults


def _option_faults(
    table: Table, by_key: bool, slots: int, division: str | None, pages_per_step: int | None
) -> list[PenstockError]:
    faults: list[PenstockError] = []
    if not 1 <= slots <= PARTITIONS:
        faults.append(BadOption(f"slots={slots} is not between 1 and {PARTITIONS}."))
    if division not in (None, "key", "pages"):
        faults.append(
            BadOption(
                f"division={division!r} is no way to divide the work.",
                do='Give "key" (a prepared table), "pages" (any table), or leave it out.',
            )
        )
    if division == "key" and not by_key:
        faults.append(
            BadOption(
                f"{table.path} cannot be divided by key: its pages hold any key.",
                do=f"Write the prepared layout once: {_prepare(table)}",
            )
        )
    if pages_per_step is not None and pages_per_step < 1:
        faults.append(BadOption(f"pages_per_step={pages_per_step} is no number of pages.", do="Give at least 1."))
    return faults


def _clashes(stream: pa.Schema, table: Table) -> list[PenstockError]:
    # As Spark has it: names that differ in case alone are the same.
    theirs = {name.lower(): name for name in table.schema.names if name not in table.key}
    both = [name for name in stream.names if name.lower() in theirs]
    if not both:
        return []
    return [
        PlanError(
            f"The stream and {table.path} both have {', '.join(repr(theirs[name.lower()]) for name in both)}.",
            why="The result would have two columns of one name.",
            do=f"Rename it in the stream first, for example with withColumnRenamed({both[0]!r}, 'stream_{both[0]}').",
        )
    ]
