"""Extremes over two-dimensional ranges: moves on both axes, equal values, extremes, empty ranges, bad updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import inf, nan
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Portion
from penstock.kernels.subscriptions.range_kernel import LEAST_MEMORY, Columns, RangeSubscriptions
from penstock.testing.conformance import Case, register, side_of
from penstock.testing.strategies import cuts
from tests.kernels.subscriptions.judge2d import changes, heard

_TOP = 2**63 - 1
#: Places on either axis, in order: few, with extremes.
FIRST: list[Any] = [-_TOP - 1, 0, 1, _TOP]
SECOND: dict[pa.DataType, list[Any]] = {
    pa.float64(): [-inf, -0.5, 2.0, inf],
    pa.date32(): [date.min, date(2026, 2, 28), date(2026, 3, 1), date.max],
}
YS = [-_TOP - 1, 0, 3, _TOP]
FACTS = pa.schema([("fact", pa.string())])


@dataclass(frozen=True)
class Plan:
    agg: str
    second: pa.DataType
    parts: tuple[str | None, ...] = (None,)

    @property
    def schema(self) -> pa.Schema:
        part = [("part", pa.string())] if self.parts != (None,) else []
        fields = [("key", pa.string()), ("x", pa.int64()), ("z", self.second), ("y", pa.int64()), ("at", pa.int64())]
        return pa.schema([*part, *fields, ("gone", pa.bool_())])

    @property
    def columns(self) -> Columns:
        parts = ("part",) if self.parts != (None,) else ()
        return Columns(x="x", x2="z", y="y", key=("key",), order="at", deleted="gone", partition_by=parts)


@st.composite
def plans(draw: DrawFn) -> Plan:
    parts = draw(st.sampled_from([(None,), ("p", "q")]))
    return Plan(draw(st.sampled_from(["min", "max"])), draw(st.sampled_from(list(SECOND))), parts)


@st.composite
def updates(draw: DrawFn, plan: Plan) -> list[Portion]:
    def maybe_missing(pool: list[Any]) -> st.SearchStrategy[Any]:
        missing = [None, nan] if isinstance(pool[0], float) else [None]
        # One in a dozen.
        return st.integers(0, 11).flatmap(lambda n: st.sampled_from(missing if n == 11 else pool))

    columns: dict[str, st.SearchStrategy[Any]] = {
        "part": st.sampled_from(["p", "q"]),
        "key": maybe_missing(["a", "b", "c", "d", "e"]),
        "x": maybe_missing(FIRST),
        "z": maybe_missing(SECOND[plan.second]),
        "y": maybe_missing(YS),
        "gone": st.sampled_from([False, False, False, None, True]),
    }
    size = draw(st.integers(0, 14))
    rows = [{name: draw(columns[name]) if name != "at" else at for name in plan.schema.names} for at in range(size)]
    return [Portion(0, piece) for piece in draw(cuts(pa.Table.from_pylist(rows, schema=plan.schema)))]


def make(plan: Plan) -> RangeSubscriptions:
    return RangeSubscriptions(plan.schema, plan.columns, plan.agg, memory=LEAST_MEMORY)


def twin(plan: Plan, portions: Sequence[Portion]) -> dict[str, pa.Table]:
    rows = side_of(portions, 0, plan.schema).to_pylist()
    facts, aside = changes(plan.agg, rows, FIRST, SECOND[plan.second], plan.parts)
    return {
        RESULTS: pa.table({"fact": sorted(map(repr, facts))}, schema=FACTS),
        SET_ASIDE: pa.Table.from_pylist([{"reason": "", "source": "", "raw": ""}] * aside, schema=SET_ASIDE_SCHEMA),
    }


def agree(plan: Plan, got: dict[str, pa.Table], want: dict[str, pa.Table]) -> None:
    facts = heard(got[RESULTS], FIRST, SECOND[plan.second], plan.parts)
    expected = want[RESULTS].column("fact").to_pylist() if want[RESULTS].num_rows else []
    assert sorted(map(repr, facts)) == expected
    assert got[SET_ASIDE].num_rows == want[SET_ASIDE].num_rows
    assert all(got[SET_ASIDE].column("reason").to_pylist())


register(
    Case(
        "subscriptions of two dimensions",
        RangeSubscriptions,
        plans=plans(),
        make=make,
        inputs=updates,
        twin=twin,
        budget=lambda plan: LEAST_MEMORY,
        agree=agree,
        bulk_rows=700,
    )
)
