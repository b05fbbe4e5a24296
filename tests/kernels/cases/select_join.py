"""Select-join subscriptions: pairs that come, go, and move, with rows that change their join value, and bad updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Portion
from penstock.kernels.subscriptions.intake import Columns
from penstock.kernels.subscriptions.select_join import LEAST_MEMORY, SelectJoinSubscriptions
from penstock.testing.conformance import Case, register
from penstock.testing.strategies import cuts
from tests.kernels.subscriptions.judge_pairs import changes, heard

KEYS = (["", "a", "b", "long " * 9], [1, 2, 3, -(2**63)])
XS = ([-(2**63), 0, 3, 2**63 - 1], [-1.5, 0.0, 2.5])
FACTS = pa.schema([("fact", pa.string())])


@dataclass(frozen=True)
class Plan:
    on: pa.DataType
    parts: bool

    @property
    def schemas(self) -> tuple[pa.Schema, pa.Schema]:
        part = [("part", pa.string())] if self.parts else []
        rest = [("at", pa.int64()), ("gone", pa.bool_())]
        return (
            pa.schema([*part, ("key", pa.string()), ("who", self.on), ("x", pa.int64()), *rest]),
            pa.schema([*part, ("id", pa.int64()), ("who", self.on), ("z", pa.float64()), *rest]),
        )

    @property
    def columns(self) -> tuple[Columns, Columns]:
        same: dict[str, Any] = {"order": "at", "deleted": "gone", "on": ("who",)}
        same["partition_by"] = ("part",) if self.parts else ()
        return Columns(x="x", key=("key",), **same), Columns(x="z", key=("id",), **same)

    @property
    def values(self) -> list[Any]:
        return ["u", "v"] if self.on == pa.string() else [7, 8]


@st.composite
def updates(draw: DrawFn, plan: Plan) -> list[Portion]:
    def maybe_missing(pool: list[Any]) -> st.SearchStrategy[Any]:
        missing = [None, nan] if isinstance(pool[0], float) else [None]
        # One in a dozen.
        return st.integers(0, 11).flatmap(lambda n: st.sampled_from(missing if n == 11 else pool))

    portions, at = [], 0
    for _ in range(draw(st.integers(0, 7))):
        side = draw(st.sampled_from([0, 1]))
        schema = plan.schemas[side]
        columns = {
            "part": st.sampled_from(["p", "q"]),
            "key": maybe_missing(KEYS[0]),
            "id": maybe_missing(KEYS[1]),
            "who": maybe_missing(plan.values),
            "x": maybe_missing(XS[0]),
            "z": maybe_missing(XS[1]),
            "gone": st.sampled_from([False, False, False, None, True]),
        }
        rows = []
        for _ in range(draw(st.integers(1, 3))):
            at += 1
            rows.append({name: draw(columns[name]) if name != "at" else at for name in schema.names})
        portions += [Portion(side, piece) for piece in draw(cuts(pa.Table.from_pylist(rows, schema=schema)))]
    return portions


def make(plan: Plan) -> SelectJoinSubscriptions:
    return SelectJoinSubscriptions(plan.schemas, plan.columns, memory=LEAST_MEMORY)


def twin(plan: Plan, portions: Sequence[Portion]) -> dict[str, pa.Table]:
    rows = [(side, row) for side, part in portions for row in part.to_pylist()]
    facts, aside = changes(sorted(rows, key=lambda one: one[1]["at"]), XS[0], XS[1])
    return {
        RESULTS: pa.table({"fact": sorted(map(repr, facts))}, schema=FACTS),
        SET_ASIDE: pa.Table.from_pylist([{"reason": "", "source": "", "raw": ""}] * aside, schema=SET_ASIDE_SCHEMA),
    }


def agree(plan: Plan, got: dict[str, pa.Table], want: dict[str, pa.Table]) -> None:
    expected = want[RESULTS].column("fact").to_pylist() if want[RESULTS].num_rows else []
    assert sorted(map(repr, heard(got[RESULTS], XS[0], XS[1]))) == expected
    assert sorted(got[RESULTS].column("seq").to_pylist()) == list(range(got[RESULTS].num_rows))
    assert got[SET_ASIDE].num_rows == want[SET_ASIDE].num_rows
    assert all(got[SET_ASIDE].column("reason").to_pylist())


register(
    Case(
        "select-join subscriptions",
        SelectJoinSubscriptions,
        plans=st.builds(Plan, st.sampled_from([pa.string(), pa.int64()]), st.booleans()),
        make=make,
        inputs=updates,
        twin=twin,
        budget=lambda plan: LEAST_MEMORY,
        agree=agree,
        bulk_rows=600,
    )
)
