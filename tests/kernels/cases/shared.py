"""The shared window join: every query's stream is, in content and order, the one it has alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.kernels.contract import Portion
from penstock.kernels.shared.greedy import Greedy
from penstock.kernels.shared.lwo import LWO
from penstock.kernels.shared.scheduler import Scheduler
from penstock.kernels.shared.sharedjoin import SharedJoin
from penstock.kernels.shared.swf import SWF
from penstock.kernels.window.shape import Shape
from penstock.kernels.window.windows import FAR
from penstock.testing import EventTime
from penstock.testing.conformance import Case, register
from penstock.testing.strategies import key_names, table_schema, tables

_spec = importlib.util.spec_from_file_location("shared_naive", Path(__file__).parents[1] / "shared" / "naive.py")
naive = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(naive)

TIMES = ("lt", "rt")
BUDGET = 256 << 10
SCHEDULERS: tuple[Scheduler, ...] = (LWO(), SWF(), Greedy())


@dataclass(frozen=True)
class SharedPlan:
    """Which queries share a join, and how it is run."""

    kind: str
    windows: tuple[int, ...]
    scheduler: int
    hashed: bool
    by_rows: bool
    condition: bool
    slice: int

    @property
    def shape(self) -> Shape:
        left = table_schema(self.kind, pa.schema([("lt", pa.timestamp("us")), ("v", pa.int64())]))
        right = table_schema(self.kind, pa.schema([("rt", pa.timestamp("us")), ("w", pa.int64())]))
        return Shape(left, right, tuple((name, name) for name in key_names(self.kind)))

    @property
    def queries(self) -> dict[str, int]:
        return {f"q{number}": window for number, window in enumerate(self.windows)}


@st.composite
def plans(draw: DrawFn) -> SharedPlan:
    return SharedPlan(
        draw(st.sampled_from(("integer", "string", "composite"))),
        tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([FAR, 1, 3, 20])),
    )


def condition(left: pa.RecordBatch, right: pa.RecordBatch) -> Any:
    return left.column("v").to_numpy() % 3 != right.column("w").to_numpy() % 3


def make(plan: SharedPlan) -> SharedJoin:
    return SharedJoin(
        plan.shape,
        plan.queries,
        SCHEDULERS[plan.scheduler],
        budget=BUDGET,
        times=TIMES,
        by_rows=plan.by_rows,
        hashed=plan.hashed,
        where=condition if plan.condition else None,
        units=plan.slice,
    )


@st.composite
def arrivals(draw: DrawFn, plan: SharedPlan, ordered: bool) -> list[Portion]:
    """Rows of both sides with few keys, so that most meet several. In order, each time comes once, and no cut changes
    the order.
    """
    keys = draw(tables(plan.kind, pa.schema([]), min_rows=1, max_rows=3)).to_pylist()
    total = draw(st.integers(0, 24))
    clock = draw(st.lists(st.integers(0, 60), min_size=total, max_size=total, unique=ordered))
    turns = draw(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(keys)), min_size=total, max_size=total))
    portions = []
    for number, ((side, key), moment) in enumerate(zip(turns, sorted(clock) if ordered else clock, strict=True)):
        row = key | {TIMES[side]: moment, "vw"[side]: number % 7}
        portions.append(Portion(side, pa.RecordBatch.from_pylist([row], schema=plan.shape.sides[side])))
    return portions


def twin(plan: SharedPlan, portions: Sequence[Portion]) -> dict[str, pa.Table]:
    shape, names = plan.shape, key_names(plan.kind)
    came = [(side, row) for side, rows in portions for row in rows.to_pylist()]
    for side, row in came:
        row[TIMES[side]] = pa.scalar(row[TIMES[side]], pa.timestamp("us")).value

    def match(left: dict[str, Any], right: dict[str, Any]) -> bool:
        same = all(left[name] == right[name] for name in names)
        return same and (not plan.condition or left["v"] % 3 != right["w"] % 3)

    def keyed(side: int, row: dict[str, Any]) -> bool:
        return all(row[name] is not None for name in names)

    out = {}
    for name, window in plan.queries.items():
        pairs = naive.alone(came, window, by_rows=plan.by_rows, match=match, keyed=keyed)
        rows = [left | {one: right[one] for one in shape.carried} for left, right in pairs]
        out[name] = pa.Table.from_pylist(rows, schema=shape.results)
    return out


register(
    Case(
        "shared join, in order",
        SharedJoin,
        plans=plans(),
        make=make,
        inputs=lambda plan: arrivals(plan, ordered=True),
        twin=twin,
        budget=lambda plan: BUDGET,
        ordered=True,
        event_time=EventTime(TIMES),
        bulk_rows=300,
        bulk_portion=20,
    )
)
register(
    Case(
        "shared join, out of order",
        SharedJoin,
        plans=plans().filter(lambda plan: not plan.by_rows),
        make=make,
        inputs=lambda plan: arrivals(plan, ordered=False),
        twin=twin,
        budget=lambda plan: BUDGET,
        event_time=EventTime(TIMES, 100),
        bulk_rows=300,
        bulk_portion=20,
    )
)
