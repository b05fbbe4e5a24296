"""Range subscriptions of every aggregate: moves, equal values, duplicates, extremes, empty ranges, bad updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Portion
from penstock.kernels.subscriptions.engine import AGGREGATES
from penstock.kernels.subscriptions.range_kernel import LEAST_MEMORY, Columns, RangeSubscriptions
from penstock.testing.conformance import Case, register, side_of
from penstock.testing.strategies import cuts
from tests.kernels.subscriptions.judge import changes, heard

_TOP = 2**63 - 1
#: Places of each type, in order: few, with extremes.
XS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-_TOP - 1, -3, 0, 1, 2, 5, _TOP],
    pa.float64(): [-inf, -1.5, 0.0, 1e-300, 2.0, inf],
    pa.date32(): [date.min, *(date(2026, 2, 27) + timedelta(n) for n in range(4)), date.max],
}
YS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-_TOP - 1, -1, 0, 3, _TOP],
    pa.float64(): [-inf, -0.0, 0.0, 0.5, inf],
    pa.decimal128(18, 2): [Decimal("-9999999999999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("7.25")],
}
#: Numbers that can be added in any order.
ADDABLE = [-2, 0, 1, 3]
FACTS = pa.schema([("fact", pa.string())])


@dataclass(frozen=True)
class Plan:
    agg: str
    x: pa.DataType
    y: pa.DataType
    parts: tuple[str | None, ...] = (None,)

    @property
    def schema(self) -> pa.Schema:
        part = [("part", pa.string())] if self.parts != (None,) else []
        y = [] if self.agg == "count" else [("y", self.y)]
        return pa.schema([*part, ("key", pa.string()), ("x", self.x), *y, ("at", pa.int64()), ("gone", pa.bool_())])

    @property
    def columns(self) -> Columns:
        return Columns(
            x="x",
            y=None if self.agg == "count" else "y",
            key=("key",),
            order="at",
            deleted="gone",
            partition_by=("part",) if self.parts != (None,) else (),
        )

    @property
    def ys(self) -> list[Any]:
        return ADDABLE if self.agg in ("sum", "avg") else YS[self.y]


@st.composite
def plans(draw: DrawFn) -> Plan:
    agg = draw(st.sampled_from(AGGREGATES))
    y = pa.int64() if agg in ("sum", "avg") else draw(st.sampled_from(list(YS)))
    parts = draw(st.sampled_from([(None,), ("p", "q")]))
    return Plan(agg, draw(st.sampled_from(list(XS))), y, parts)


@st.composite
def updates(draw: DrawFn, plan: Plan) -> list[Portion]:
    def maybe_missing(pool: list[Any], kind: pa.DataType) -> st.SearchStrategy[Any]:
        missing = [None, nan] if pa.types.is_floating(kind) else [None]
        # One in a dozen.
        return st.integers(0, 11).flatmap(lambda n: st.sampled_from(missing if n == 11 else pool))

    columns: dict[str, st.SearchStrategy[Any]] = {
        "part": maybe_missing([part for part in plan.parts if part], pa.string())
        if "part" in plan.schema.names
        else st.none(),
        "key": maybe_missing(["", "a", "b", "c", "d", "long " * 9], pa.string()),
        "x": maybe_missing(XS[plan.x], plan.x),
        "y": maybe_missing(plan.ys, plan.y),
        "gone": st.sampled_from([False, False, False, None, True]),
    }
    size = draw(st.integers(0, 16))
    rows = [{name: draw(columns[name]) if name != "at" else at for name in plan.schema.names} for at in range(size)]
    return [Portion(0, piece) for piece in draw(cuts(pa.Table.from_pylist(rows, schema=plan.schema)))]


def make(plan: Plan) -> RangeSubscriptions:
    return RangeSubscriptions(plan.schema, plan.columns, plan.agg, memory=LEAST_MEMORY)


def twin(plan: Plan, portions: Sequence[Portion]) -> dict[str, pa.Table]:
    rows = side_of(portions, 0, plan.schema).to_pylist()
    facts, aside = changes(plan.agg, rows, XS[plan.x], plan.parts)
    return {
        RESULTS: pa.table({"fact": sorted(map(_text, facts))}, schema=FACTS),
        SET_ASIDE: pa.Table.from_pylist([{"reason": "", "source": "", "raw": ""}] * aside, schema=SET_ASIDE_SCHEMA),
    }


def agree(plan: Plan, got: dict[str, pa.Table], want: dict[str, pa.Table]) -> None:
    facts = heard(plan.agg, got[RESULTS], XS[plan.x], plan.parts)
    expected = want[RESULTS].column("fact").to_pylist() if want[RESULTS].num_rows else []
    assert sorted(map(_text, facts)) == expected
    assert got[SET_ASIDE].num_rows == want[SET_ASIDE].num_rows
    assert all(got[SET_ASIDE].column("reason").to_pylist())


def _text(fact: tuple[Any, ...]) -> str:
    *where, now = fact
    return repr((*where, sorted(map(_plain, now)) if isinstance(now, frozenset) else _plain(now)))


def _plain(value: Any) -> Any:
    """-0.0 and 0.0 are one value."""
    return value + 0.0 if isinstance(value, float) else value


register(
    Case(
        "range subscriptions",
        RangeSubscriptions,
        plans=plans(),
        make=make,
        inputs=updates,
        twin=twin,
        budget=lambda plan: LEAST_MEMORY,
        agree=agree,
        bulk_rows=2_000,
    )
)
