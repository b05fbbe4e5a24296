"""The plan of `catch_up`: archived rows of a stream against the table that the stream was joined with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import pyarrow as pa

from penstock.errors import BadOption, PlanError, UnsupportedType
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.results import How
from penstock.kernels.mesh.shedding import REASON
from penstock.tables.base import Table
from penstock.tables.keys import check_key_types


@dataclass(frozen=True)
class CatchUpPlan:
    """An equi-join of archived rows (`stream`, without their reason) with a table."""

    stream: pa.Schema
    table: Table
    on: tuple[str, ...]
    how: How

    @classmethod
    def checked(cls, stream: pa.Schema, table: Table, *, on: tuple[str, ...], how: How) -> CatchUpPlan:
        """The plan, or the first fault in it."""
        check_how(how)
        check_key_types(stream, on, table.schema, table.key)
        plan = cls(stream, table, on, how)
        plan._check_names()
        return plan

    def _check_names(self) -> None:
        ours = {name.lower() for name in self.stream.names}
        both = [name for name in self.carried if name.lower() in ours]
        if both:
            raise PlanError(
                f"The archive and {self.table.path} both have {', '.join(map(repr, both))}.",
                why="The result would have two columns of one name.",
                do="Is it the table that the stream was joined with?",
            )

    @property
    def carried(self) -> tuple[str, ...]:
        """The table's columns that go into the results."""
        if self.how in ("semi", "anti"):
            return ()
        return tuple(name for name in self.table.schema.names if name not in self.table.key)

    @property
    def results(self) -> pa.Schema:
        """The stream's columns, then the table's without its key, as in the results of `join_table`."""
        return pa.schema([*self.stream, *(self.table.schema.field(name) for name in self.carried)])

    def identity(self) -> dict[str, str]:
        """What may not change between two runs that add to the same results."""
        return {
            "stream columns": ", ".join(f"{field.name} {field.type}" for field in self.stream),
            "result columns": ", ".join(f"{field.name} {field.type}" for field in self.results),
            "on": ", ".join(self.on),
            "table key": ", ".join(self.table.key),
            "how": self.how,
        }

    def check_like(self, flow: dict[str, str]) -> None:
        """Refuse to make other results of the archived rows than the flow made of the others."""
        was = flow.get("how", self.how)
        if was != self.how:
            raise PlanError(
                f"The flow that shed these rows is {_a(was)} join, and this catch-up {_a(self.how)} one.",
                why="Its results and those of the catch-up together would be those of neither.",
                do=f'Give how="{was}".',
            )
        ours = Equal(self.on).describe(self.table.key)
        if flow.get("on", ours) != ours:
            raise PlanError(
                f"The flow that shed these rows joins on {flow['on']}, and this catch-up on {ours}.",
                why="Its results and those of the catch-up together would be those of neither.",
                do="Give `on` and the table's key as in the flow.",
            )

    def check_goes_on(self, before: dict[str, str]) -> None:
        """Refuse to add to the results of another join."""
        now = self.identity()
        differing = [name for name in now if before.get(name) != now[name]]
        if differing:
            raise PlanError(
                "Earlier runs of this catch-up made another join.",
                why="; ".join(f"{name}: was {before.get(name)!r}, is {now[name]!r}" for name in differing) + ".",
                do="Give the same options as before; an archive is joined once, in one way.",
            )


def _a(how: str) -> str:
    return f"an {how}" if how in ("inner", "anti") else f"a {how}"


def check_how(how: str) -> None:
    """Refuse a join that there is not."""
    if how not in get_args(How):
        raise BadOption(f"how={how!r} is not a join.", do=f"Choose one of: {', '.join(get_args(How))}.")


def split_reason(schema: pa.Schema, where: str) -> pa.Schema:
    """The stream's columns of an archive's files."""
    last = schema.field(len(schema) - 1) if len(schema) else None
    if last is None or last.name != REASON:
        raise BadOption(
            f"{where} does not hold shed rows.",
            why=f"The last column of an archive is {REASON!r}; here the columns are: {', '.join(schema.names)}.",
            do='Give the directory that a flow was started with as shed="…".',
        )
    if not pa.types.is_string(last.type):
        raise UnsupportedType(f"{where}: {REASON!r} is {last.type} and not a text.", do="Give an archive of shed rows.")
    return pa.schema(list(schema)[:-1])
