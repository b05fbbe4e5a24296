"""The plan of `join_table`: a stream against a table larger than memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from penstock.errors import BadOption, MemoryTooSmall, PenstockError, PlanError
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Metric
from penstock.kernels.mesh.budget import least_budget, rows_in
from penstock.kernels.mesh.condition import Condition, Equal
from penstock.kernels.mesh.front import GAIN, SHARE
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.kernels.mesh.results import How, carried, results_schema
from penstock.plan.base import Plan, Side
from penstock.plan.faults import Faults
from penstock.plan.given import renaming
from penstock.plan.outlook import Outlook, outlook
from penstock.plan.units import format_size, parse_count, parse_size
from penstock.tables.base import Page, Table
from penstock.tables.keys import PARTITIONS, hash_range

Division = Literal["input", "key", "pages", "rows"]

#: Where nobody gives a division, a prepared table is scanned whole in every micro-batch if that takes no longer than
#: keeping state would: its key hashes are not more bytes than this,
_QUICK_PASS = 512 << 20
#: and one pass mostly suffices, because as many rows as this have room.
_ROOMY = 1_000_000


@dataclass(frozen=True)
class JoinTablePlan(Plan):
    """Join of a stream with a table.

    `division` says how slots share the work. By "input" each takes the rows that a task of Spark's reads, joins them at
    once with every page, and keeps nothing: no row travels, and there is no state. By "key" each slot holds the rows of
    its own range of key hashes and scans only the pages with them, which needs a prepared table and equality. By "rows"
    each slot holds its own rows too, and scans every page. By "pages" each slot scans its own share of the pages and
    holds every row; no slot knows then whether a row has a partner in another's pages, so this is for inner joins.
    `memory` is for all slots together.
    """

    stream: pa.Schema
    table: Table
    condition: Condition
    how: How
    memory: int
    slots: int
    division: Division
    pages_per_step: int | None = None

    name: ClassVar[str] = "join_table"
    reports: ClassVar[tuple[Metric, ...]] = MeshJoin.reports

    @cached_property
    def outlook(self) -> Outlook | None:
        """What the cost model expects, if the table was measured."""
        division = "rows" if self.division == "input" else self.division
        return outlook(self.table, self.row_bytes, self.memory // self.slots, self.slots, division)

    @property
    def keeps_nothing(self) -> bool:
        """Divided by input, every row is answered in its own micro-batch."""
        return self.division == "input"

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the stream; texts as if they were short."""
        return sum(_width(field.type) for field in self.stream)

    @classmethod
    def checked(
        cls,
        stream: pa.Schema,
        table: Table,
        *,
        on: tuple[str, ...] | Condition,
        memory: str | int,
        slots: int,
        how: How = "inner",
        division: Division | None = None,
        pages_per_step: int | None = None,
        to_extend: bool = False,
    ) -> JoinTablePlan:
        """The plan, or one error that names every fault in it.

        With `to_extend` a plan of another class is made from it by `extended`, which knows what memory that needs. All
        of these decide something for each row in the slot that has it, so pages are not divided.
        """
        condition = on if isinstance(on, Condition) else Equal(on)
        by_key = table.by_key(0, 1) is not None and condition.by_key
        faults = Faults()
        size = faults.tried(parse_size, memory)
        faults += condition.faults(stream, table)
        faults += _clashes(stream, table, condition) if how in ("inner", "left") else []
        faults += _option_faults(table, condition, slots, how, division, pages_per_step, to_extend)
        if not faults:
            shares_pages = how == "inner" and not condition.flags and not to_extend
            usual: Division = "key" if by_key else "pages" if shares_pages else "rows"
            plan = cls(stream, table, condition, how, size, slots, division or usual, pages_per_step)
            if division is None and by_key and pages_per_step is None and not to_extend and plan._is_quick_at_once:
                plan = replace(plan, division="input")
            faults += [] if to_extend else plan._memory_faults()
        faults.complain("this join")
        return plan

    @classmethod
    def extended(cls, plan: JoinTablePlan, **more: Any) -> Self:
        """A plan of this class from a plain one, or why its memory does not suffice."""
        known: dict[str, Any] = {each.name: getattr(plan, each.name) for each in fields(JoinTablePlan)}
        made = cls(**known, **more)
        for fault in made._memory_faults():
            raise fault
        return made

    @property
    def _is_quick_at_once(self) -> bool:
        return quick_at_once(self.table, self.row_bytes, self.memory, self.slots, self.condition)

    def _memory_faults(self) -> list[PenstockError]:
        least = self.least_memory
        if self.memory >= least:
            return []
        given, enough = format_size(self.memory), format_size(least, round_up=True)
        given = f"{self.memory:,} bytes" if given == enough else given
        less = self.condition.thrift or f"write the table with smaller pages: {_prepare(self.table)} --page 256KB"
        less += f"; or share it among fewer slots: slots={self.slots // 2}" if self.slots > 1 else ""
        return [
            MemoryTooSmall(
                f"{given} cannot hold one page and one packet of this join.",
                why=f"{self.slots} slots need {format_size(least)}, most of it for one page of {self.table.path} each.",
                do=f'Give at least memory="{enough}", or {less}',
            )
        ]

    @property
    def least_memory(self) -> int:
        """The smallest budget with which this can run."""
        return least_memory(self.table, self.slots, self.division, self.condition)

    def pages(self, slot: int) -> tuple[Page, ...]:
        """The pages that a slot scans."""
        return share(self.table, slot, self.slots, self.division)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The stream."""
        return (Side(self.stream, key=() if self.division in ("pages", "input") else self.condition.routes),)

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """Results, and rows too large for the window."""
        return {RESULTS: results_schema(self.stream, self.table, self.condition, self.how), SET_ASIDE: SET_ASIDE_SCHEMA}

    def make(self, slot: int) -> MeshJoin:
        """The kernel of a slot."""
        condition, pages, at_once = self.condition, self.pages(slot), self.keeps_nothing
        if self.division in ("key", "rows"):
            condition = condition.slot(hash_range(slot, self.slots))
        return MeshJoin(
            self.stream,
            self.table,
            on=condition,
            how=self.how,
            budget=self.memory // self.slots,
            pages=pages,
            pages_per_step=max(len(pages), 1) if at_once else self.pages_per_step,
            counts_rows=self.division != "pages" or slot == 0,
            # A front cache is state, and kernels in more workers than there are slots would each have one.
            front=None if at_once else GAIN,
        )

    def identity(self) -> Mapping[str, str]:
        """Stream, key, division and slots; not the budget, which may change at a restart."""
        return {
            "operator": self.name,
            "stream columns": ", ".join(f"{field.name} {field.type}" for field in self.stream),
            "on": self.condition.describe(self.table.key),
            **self.condition.identity(),
            "how": self.how,
            "table": os.path.abspath(self.table.path),
            "table key": ", ".join(self.table.key),
            "division": self.division,
            **({} if self.keeps_nothing else {"slots": str(self.slots)}),
        }

    def explain(self) -> str:
        """The join, its division, and how memory is spent."""
        total = sum(page.rows for page in self.table.pages)
        width = self.row_bytes
        shared = sum(
            rows_in(self.memory // self.slots, self.pages(slot), width, self.condition) for slot in range(self.slots)
        )
        shared = shared // self.slots if self.division == "pages" else shared
        kind = "prepared" if self.table.by_key(0, 1) is not None else "Parquet"
        pages = f"{len(self.table.pages):,} page{'s' if len(self.table.pages) != 1 else ''}"
        return "\n".join(
            [
                f"join_table on {self.condition.describe(self.table.key)} ({self.how}, MESHJOIN)",
                f"  table    {self.table.path}: {total:,} rows in {pages}, {kind}",
                f"  work     {self.slots} slots, divided by {_DIVISIONS[self.division]}",
                f"  memory   {format_size(self.memory)} in all, {format_size(self.memory // self.slots)} a slot",
                f"  window   about {shared:,} rows of {width} B share one pass over the table",
                *([] if self.keeps_nothing else [f"  front    {self._front_line()}"]),
                *(
                    self.outlook.lines()
                    if self.outlook is not None
                    else [f"  expect   unknown; to know: {_tune(self.table)}"]
                ),
            ]
        )

    def _front_line(self) -> str:
        if not self.condition.by_key:
            return "no cache for hot keys: this join is not by equal keys"
        return (
            f"up to 1/{SHARE} of it for rows with hot keys, when micro-batches take several passes and that saves some"
        )

    def expect(self, rows: float, arrival_rate: float) -> dict[str, float]:
        """Rate and step as the cost model has them, and what the arrival rate asks for."""
        if self.outlook is None:
            return {}
        advice = self.outlook.advice(arrival_rate, self.memory / self.slots)
        return {
            "rows_per_second": self.outlook.rate,
            "step_seconds": self.outlook.step_seconds(rows),
            "arrival_rate": arrival_rate,
            "memory_for_arrivals": advice.choice.memory.total * self.slots,
            "excess": advice.excess,
        }


_DIVISIONS = {
    "input": "input: each joins the rows that a task of Spark's reads, with every page, at once; nothing is kept",
    "key": "key: each holds its own rows and scans its own pages",
    "rows": "rows: each holds its own rows and scans every page",
    "pages": "pages: each holds every row and scans its own pages",
}


def quick_at_once(table: Table, row_bytes: int, memory: int, slots: int, condition: Condition | None = None) -> bool:
    """Whether a prepared table may well be scanned whole in every micro-batch, with rows of this size."""
    room = slots * rows_in(memory // slots, table.pages, row_bytes, condition or Equal(table.key))
    return 8 * table.rows <= _QUICK_PASS and room >= _ROOMY


def least_memory(table: Table, slots: int, division: Division, condition: Condition | None = None) -> int:
    """The smallest budget with which this many slots can join the table: for each, one page and one packet."""
    join = condition or Equal(table.key)
    return slots * max(least_budget(share(table, slot, slots, division), join) for slot in range(slots))


def share(table: Table, slot: int, slots: int, division: Division) -> tuple[Page, ...]:
    """The pages of a slot."""
    if division == "key":
        pages = table.by_key(slot, slots)
        assert pages is not None, "checked when the plan was made"
        return pages
    return table.pages[slot::slots] if division == "pages" else table.pages


def _prepare(table: Table) -> str:
    return f"penstock prepare {table.path} <target> --key {','.join(table.key)}"


def _tune(table: Table) -> str:
    return f"penstock tune {table.path} --key {','.join(table.key)}"


def _width(kind: pa.DataType) -> int:
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 24


def _option_faults(
    table: Table,
    condition: Condition,
    slots: int,
    how: str,
    division: str | None,
    pages_per_step: int | None,
    to_extend: bool,
) -> list[PenstockError]:
    by_key = table.by_key(0, 1) is not None and condition.by_key
    faults = Faults()
    faults.tried(parse_count, slots, option="slots", most=PARTITIONS)
    if how not in ("inner", "left", "semi", "anti"):
        faults.append(BadOption(f"how={how!r} is not a kind of join.", do='Give "inner", "left", "semi" or "anti".'))
    if division == "pages" and how != "inner":
        faults.append(
            BadOption(
                f'A {how} join cannot be divided by "pages".',
                why="A slot that has some of the pages does not know whether a row has a partner in the others.",
                do='Leave division out, or give "rows" or, with a prepared table, "key".',
            )
        )
    elif division == "pages" and condition.flags:
        faults.append(
            BadOption(
                f'A join on {condition.describe(table.key)} cannot be divided by "pages".',
                why="Every slot has every row then, and each would set it aside or join it by its own pages alone.",
                do='Leave division out, or give "rows".',
            )
        )
    if division not in (None, *_DIVISIONS):
        faults.append(
            BadOption(
                f"division={division!r} is not a way to divide the work.",
                do='Give "key" (a prepared table), "input", "rows" or "pages" (any table), or leave it out.',
            )
        )
    if division == "input" and to_extend:
        faults.append(
            BadOption(
                'A join that sheds, follows its table or keeps an order cannot be divided by "input".',
                why="Its slots keep something from one micro-batch to the next.",
                do='Leave division out, or give "rows" or, with a prepared table, "key".',
            )
        )
    if division == "input" and pages_per_step is not None:
        faults.append(
            BadOption(
                'pages_per_step is not for joins divided by "input".',
                why="These scan every page in every micro-batch.",
                do="Leave one of the two out.",
            )
        )
    if division == "key" and not by_key:
        faults.append(
            BadOption(
                f"{table.path} cannot be divided by key: its pages hold any key.",
                do=f"Write the prepared layout once: {_prepare(table)}",
            )
        )
    if pages_per_step is not None:
        faults.tried(parse_count, pages_per_step, option="pages_per_step")
    return faults


def _clashes(stream: pa.Schema, table: Table, condition: Condition) -> list[PenstockError]:
    # As Spark has it: names that differ in case alone are the same.
    names = carried(table, condition)
    theirs = {name.lower(): name for name in names}
    alike = [name for name in names if theirs[name.lower()] != name]
    both = [name for name in stream.names if name.lower() in theirs]
    faults: list[PenstockError] = [
        PlanError(
            f"{table.path} has both {name!r} and {theirs[name.lower()]!r}.",
            why="Names that differ in case alone are one name to Spark, which could not read the results.",
            do="Write the table with another name for one of them.",
        )
        for name in alike
    ]
    if not both:
        return faults
    return [
        *faults,
        PlanError(
            f"The stream and {table.path} both have {', '.join(repr(theirs[name.lower()]) for name in both)}.",
            why="The result would have two columns of one name.",
            do=renaming(both[0], f"stream_{both[0]}", "the stream"),
        ),
    ]
