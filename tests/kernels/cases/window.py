"""The window join: exact over every kind of window and join, and each policy under a budget that it cannot keep.

Under a tight budget results are some of the exact ones, and the archive says which are missing: both together are the
exact join, whatever the policy chose.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import RESULTS, Portion
from penstock.kernels.window.custom import Custom
from penstock.kernels.window.exact import Exact
from penstock.kernels.window.heeb import Heeb
from penstock.kernels.window.life import Life
from penstock.kernels.window.policy import Policy
from penstock.kernels.window.prob import Prob
from penstock.kernels.window.rand import Rand
from penstock.kernels.window.shape import ARCHIVE, RESIDENCE, How, Shape
from penstock.kernels.window.windowjoin import LEAST_BUDGET, WindowJoin
from penstock.kernels.window.windows import LandmarkWindow, RowWindow, TimeWindow, Window
from penstock.testing import EventTime, bag
from penstock.testing.conformance import Case, register
from penstock.testing.strategies import KEY_KINDS, key_names, table_schema, tables

_spec = importlib.util.spec_from_file_location("window_naive", Path(__file__).parents[1] / "window" / "naive.py")
naive = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(naive)

TIMES = ("lt", "rt")
HOWS: tuple[How, ...] = ("inner", "left", "right", "full")
WINDOWS: tuple[Window, ...] = (TimeWindow(5, 5), TimeWindow(3, 20), LandmarkWindow(10), RowWindow(3, 5))
POLICIES: dict[str, Policy] = {
    "exact": Exact(),
    "rand": Rand(),
    "prob": Prob(),
    "life": Life(),
    "heeb": Heeb(),
    "custom": Custom(lambda keys, ages, partner: partner - ages),
}
PADS = [b"", b"x" * 700, b"y" * 950]


@dataclass(frozen=True)
class WindowPlan:
    """How two streams are joined."""

    kind: str
    window: Window
    how: How = "inner"
    policy: str = "exact"
    condition: bool = False
    fixed: bool = False

    @property
    def tight(self) -> bool:
        return self.policy != "exact"

    @property
    def shape(self) -> Shape:
        pad = [("pad", pa.binary())] if self.tight else []
        left = table_schema(self.kind, pa.schema([("lt", pa.timestamp("us")), ("v", pa.int64()), *pad]))
        other = [("pad2", pa.binary())] if self.tight else []
        right = table_schema(self.kind, pa.schema([("rt", pa.timestamp("us")), ("w", pa.int64()), *other]))
        return Shape(left, right, tuple((name, name) for name in key_names(self.kind)), self.how)


@st.composite
def plans(draw: DrawFn, windows: Sequence[Window], policies: Sequence[str], kinds: Sequence[str]) -> WindowPlan:
    return WindowPlan(
        draw(st.sampled_from(kinds)),
        draw(st.sampled_from(windows)),
        draw(st.sampled_from(HOWS)),
        draw(st.sampled_from(policies)),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def condition(left: pa.RecordBatch, right: pa.RecordBatch) -> Any:
    return left.column("v").to_numpy() % 3 != right.column("w").to_numpy() % 3


def naive_condition(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left["v"] % 3 != right["w"] % 3


def make(plan: WindowPlan) -> WindowJoin:
    return WindowJoin(
        plan.shape,
        plan.window,
        POLICIES[plan.policy],
        budget=LEAST_BUDGET,
        times=TIMES,
        fixed=plan.fixed,
        where=condition if plan.condition else None,
        archive=plan.tight,
    )


@st.composite
def arrivals(draw: DrawFn, plan: WindowPlan, ordered: bool) -> list[Portion]:
    """Rows of both sides, in order of their time or not; each time comes once where rows are counted."""
    keys = [draw(tables(plan.kind, pa.schema([]), min_rows=0, max_rows=14 if plan.tight else 6)) for _ in (0, 1)]
    total = sum(table.num_rows for table in keys)
    clock = draw(st.lists(st.integers(0, 60), min_size=total, max_size=total, unique=not plan.window.timed))
    turns = draw(st.permutations([side for side, table in enumerate(keys) for _ in range(table.num_rows)]))
    moments = sorted(clock) if ordered else clock
    portions, used = [], [0, 0]
    for side, moment in zip(turns, moments, strict=True):
        row = keys[side].slice(used[side], 1).to_pylist()[0]
        used[side] += 1
        row |= {TIMES[side]: moment, "vw"[side]: draw(st.integers(0, 9))}
        if plan.tight:
            # Rows that are counted cannot be shed: a step of them has to fit.
            row["pad2" if side else "pad"] = draw(st.sampled_from(PADS))[: None if plan.window.timed else 150]
        portions.append(Portion(side, pa.RecordBatch.from_pylist([row], schema=plan.shape.sides[side])))
    return portions


def clock_of(plan: WindowPlan, sides: Sequence[Sequence[dict[str, Any]]], lateness: int) -> dict[str, Any]:
    latest = [max((naive.micros(row[TIMES[side]]) for row in rows), default=None) for side, rows in enumerate(sides)]
    mark = None if None in latest else min(latest) - lateness
    able = [sum(naive.has_key(plan.shape, side, row) for row in rows) for side, rows in enumerate(sides)]
    return {"watermark": mark, "rows": able}


def twin(plan: WindowPlan, portions: Sequence[Portion], lateness: int) -> dict[str, pa.Table]:
    sides = naive.rows_of(portions)
    naive.placed(sides, lambda side, row: naive.has_key(plan.shape, side, row), TIMES)
    where = naive_condition if plan.condition else None
    rows = naive.join(plan.shape, plan.window, sides, TIMES, clock_of(plan, sides, lateness), where)
    return {RESULTS: pa.Table.from_pylist(rows, schema=plan.shape.results)}


def complete(plan: WindowPlan, got: dict[str, pa.Table], want: dict[str, pa.Table], lateness: int) -> None:
    """What came and what the archive says is missing are the exact join."""
    live, exact = bag(got[RESULTS]), bag(want[RESULTS])
    assert not live - exact, f"not in the exact join: {live - exact}"
    archived = [got[channel].to_pylist() for channel in ARCHIVE]
    where = naive_condition if plan.condition else None
    clock = clock_of(plan, archived, lateness)
    gone = got[RESIDENCE].to_pylist()
    rows = naive.missing(plan.shape, plan.window, archived, gone, TIMES, clock, where)
    found = bag(pa.Table.from_pylist(rows, schema=plan.shape.results))
    assert live + found == exact, f"missing: {exact - live - found}; twice: {live + found - exact}"
    assert not np.any(got["set_aside"].num_rows)


def case(name: str, windows: Sequence[Window], policies: Sequence[str], *, ordered: bool, lateness: int = 0) -> None:
    tight = "exact" not in policies
    register(
        Case(
            f"window join, {name}",
            WindowJoin,
            plans=plans(windows, policies, ("integer", "string") if tight else KEY_KINDS),
            make=make,
            # Rows that are counted have no order but that of their times.
            inputs=lambda plan: arrivals(plan, ordered or not plan.window.timed),
            twin=lambda plan, portions: twin(plan, portions, lateness),
            budget=lambda plan: LEAST_BUDGET,
            cut_free=not tight,
            agree=(lambda plan, got, want: complete(plan, got, want, lateness)) if tight else None,
            event_time=EventTime(TIMES, lateness),
            bulk_rows=200 if tight else 300,
            bulk_portion=2 if tight else 20,
        )
    )


case("exact, in order", WINDOWS, ["exact"], ordered=True)
case("tight, out of order", WINDOWS, [name for name in POLICIES if name != "exact"], ordered=False, lateness=100)
