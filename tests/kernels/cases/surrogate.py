"""Surrogate keys: those of the table, and new ones that are given once each, in whichever step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import RESULTS, Portion
from penstock.kernels.mesh.budget import least_budget
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.surrogate import ASSIGNED, SurrogateKeys
from penstock.testing.conformance import Case, register, side_of
from penstock.testing.strategies import key_names, table_schema
from tests.kernels.cases import mesh

FIRST, SLOT, SLOTS = 1_000, 1, 3


@dataclass(frozen=True)
class SurrogatePlan:
    """A table of keys whose column `name` is made a number: its place in the table."""

    join: mesh.MeshPlan


@st.composite
def plans(draw: DrawFn) -> SurrogatePlan:
    join = draw(mesh.plans())
    rows = join.rows.append_column("number", pa.array(range(join.rows.num_rows), pa.int64()))
    return SurrogatePlan(mesh.MeshPlan(join.kind, rows, join.page, None, join.prepared, "left"))


def budget(plan: SurrogatePlan) -> int:
    return 2 * least_budget(plan.join.table.pages) + 1


def make(plan: SurrogatePlan) -> SurrogateKeys:
    return SurrogateKeys(
        table_schema(plan.join.kind, mesh.NARROW),
        plan.join.table,
        on=Equal(tuple(key_names(plan.join.kind))),
        surrogate="number",
        budget=budget(plan),
        first=FIRST,
        slot=SLOT,
        slots=SLOTS,
    )


def twin(plan: SurrogatePlan, portions: Sequence[Portion]) -> dict[str, pa.Table]:
    """Each row with the numbers of its key: those of the table, or "new", or None where the key is NULL."""
    names = key_names(plan.join.kind)
    known = [(tuple(row[n] for n in names), row["number"]) for row in plan.join.rows.to_pylist()]
    rows = []
    for row in side_of(portions, 0, table_schema(plan.join.kind, mesh.NARROW)).to_pylist():
        key = tuple(row[n] for n in names)
        found = [number for theirs, number in known if theirs == key and None not in key]
        rows += [(row["v"], repr(key), number) for number in found]
        rows += [] if found else [(row["v"], repr(key), None if None in key else -1)]
    return {RESULTS: pa.table({"rows": sorted(map(repr, rows))})}


def settled(plan: SurrogatePlan, got: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The results with -1 for new numbers, once these are found to be given as they should."""
    names = key_names(plan.join.kind)
    given = {tuple(row[n] for n in names): row["number"] for row in got[ASSIGNED].to_pylist()}
    assert len(given) == got[ASSIGNED].num_rows, "a key was given two numbers"
    first = -(-FIRST // SLOTS) * SLOTS + SLOT
    assert sorted(given.values()) == [first + SLOTS * n for n in range(len(given))]
    rows = []
    used = set()
    for row in got[RESULTS].to_pylist():
        key, number = tuple(row[n] for n in names), row["number"]
        if number is not None and number >= FIRST:
            assert given[key] == number
            used.add(key)
            number = -1
        rows.append((row["v"], repr(key), number))
    assert used == given.keys()
    return {RESULTS: pa.table({"rows": sorted(map(repr, rows))})}


def agree(plan: SurrogatePlan, got: dict[str, pa.Table], want: dict[str, pa.Table]) -> None:
    assert settled(plan, got)[RESULTS].to_pydict() == want[RESULTS].to_pydict()


register(
    Case(
        "surrogate keys",
        SurrogateKeys,
        plans=plans(),
        make=make,
        inputs=lambda plan: mesh.arrivals(plan.join.kind, mesh.NARROW),
        twin=twin,
        budget=budget,
        agree=agree,
        settled=settled,
    )
)
