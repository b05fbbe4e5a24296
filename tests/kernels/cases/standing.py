"""Standing queries: select-joins and band joins, one range or two on a side, with a window and without, by every
strategy.

Queries that come and go take effect with their micro-batch, so which pairs they see depends on the cut: for those the
twin says which results must be there whatever the cut, and which may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from penstock.kernels.contract import RESULTS, SET_ASIDE, Portion
from penstock.kernels.standing.query_table import Queries
from penstock.kernels.standing.shape import BandJoin, SelectJoin, Shape
from penstock.kernels.standing.standing_join import StandingJoin
from penstock.kernels.standing.strategies import BAND_JOIN, SELECT_JOIN
from penstock.testing.conformance import Case, register
from penstock.testing.event_time import EventTime

DAY = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = pa.timestamp("us", "UTC")
LEFT = pa.schema([("k", pa.int64()), ("a", pa.float64()), ("a2", pa.int32()), ("t", STAMP), ("note", pa.string())])
RIGHT = pa.schema([("k", pa.int64()), ("c", pa.float64()), ("c2", pa.int32()), ("u", STAMP)])
#: The key by another name than the left side's.
RENAMED = pa.schema([("key", pa.int64()), *[*RIGHT][1:]])
SHAPES: dict[str, Shape] = {
    "select": SelectJoin((("k",), ("k",)), (("a",), ("c",))),
    "several": SelectJoin((("k",), ("key",)), (("a", "a2"), ("c", "c2"))),
    "band": BandJoin((("a",), ("c",))),
    "band and key": BandJoin((("a",), ("c",)), (("k",), ("key",))),
}
WITHIN = 5_000_000
BUDGET = 16 << 20

numbers = st.one_of(st.integers(-4, 4).map(float), st.sampled_from([0.1, 0.3, -0.7, 2.5]))
wild = st.one_of(numbers, st.none(), st.sampled_from([float("nan")]))


@dataclass(frozen=True)
class Standing:
    """A shape, its queries, and how they are gone about."""

    shape: str
    strategy: Any
    queries: tuple[tuple[float, ...], ...]
    timed: bool = False

    @property
    def right(self) -> pa.Schema:
        return RIGHT if self.shape == "select" else RENAMED

    @property
    def names(self) -> list[str]:
        return ["query", *LEFT.names, *(name for name in self.right.names if name != "k")]


@st.composite
def ranges(draw: DrawFn) -> tuple[float, float]:
    a, b = draw(numbers), draw(numbers)
    return min(a, b), max(a, b)


def bounds(shape: str) -> SearchStrategy[tuple[float, ...]]:
    width = len(SHAPES[shape].bounds) // 2
    drawn = st.lists(ranges(), min_size=width, max_size=width)
    return drawn.map(lambda pairs: tuple(end for pair in pairs for end in pair))


@st.composite
def plans(draw: DrawFn, timed: bool) -> Standing:
    shape = draw(st.sampled_from([*SHAPES]))
    strategy = draw(st.sampled_from(("dynamic", *(SELECT_JOIN if SHAPES[shape].own else BAND_JOIN))))
    return Standing(shape, strategy, tuple(draw(st.lists(bounds(shape), max_size=6))), timed)


def make(plan: Standing) -> StandingJoin:
    shape = SHAPES[plan.shape]
    queries = Queries(
        np.arange(len(plan.queries), dtype=np.int64), np.array(plan.queries).reshape(-1, len(shape.bounds))
    )
    return StandingJoin(
        (LEFT, plan.right),
        shape,
        lambda: queries,
        budget=BUDGET,
        strategy=plan.strategy,
        keep=None if plan.timed else 1_000_000,
        within=WITHIN if plan.timed else None,
        event_time=("t", "u") if plan.timed else None,
    )


@st.composite
def arrivals(draw: DrawFn, plan: Standing) -> list[Portion]:
    """Rows of both sides in turns; event times never go back, so that none is late."""
    second, found = 0, []
    for _ in range(draw(st.integers(0, 5))):
        side = draw(st.integers(0, 1))
        rows = []
        for _ in range(draw(st.integers(1, 4))):
            second += draw(st.sampled_from([0, 0, 1, 4]))
            key, small = draw(st.sampled_from([1, 2, None])), draw(st.sampled_from([0, 1, 2, None]))
            rows.append((key, draw(wild), small, DAY + timedelta(seconds=second)))
        schema = (LEFT, plan.right)[side]
        columns = [list(column) for column in zip(*rows, strict=True)]
        if side == 0:
            columns.append([draw(st.sampled_from(["x", "", None])) for _ in rows])
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        found.append(Portion(side, pa.record_batch(arrays, schema=schema)))
    return found


def wanted(plan: Standing, query: tuple[float, ...], left: Any, right: Any) -> bool:
    """Whether a query wants a pair, as SQL would have it; NULL and NaN lie in no range."""
    shape = SHAPES[plan.shape]
    if any(left[a] is None or left[a] != right[b] for a, b in zip(*shape.on, strict=True)):
        return False
    if plan.timed and abs(left["t"] - right["u"]) > timedelta(microseconds=WITHIN):
        return False
    if isinstance(shape, BandJoin):
        values = [None if left["a"] is None or right["c"] is None else right["c"] - left["a"]]
    else:
        values = [row[name] for row, names in zip((left, right), shape.ranges, strict=True) for name in names]
    return all(
        value is not None and lo <= value <= hi for value, lo, hi in zip(values, query[::2], query[1::2], strict=True)
    )


def rows_of(portions: Sequence[Portion], side: int) -> list[tuple[int, Any]]:
    """The rows of one side, each with its place in the order of arrival."""
    return [(at, row) for at, (number, rows) in enumerate(portions) if number == side for row in rows.to_pylist()]


def schema_of(plan: Standing) -> pa.Schema:
    fields = {field.name: field for field in [pa.field("query", pa.int64()), *LEFT, *plan.right]}
    return pa.schema([fields[name] for name in plan.names])


def twin(plan: Standing, portions: Sequence[Portion]) -> dict[str, pa.Table]:
    """Every left row beside every right row, for every query."""
    found = [
        {"query": query, **right, **left}
        for query, ends in enumerate(plan.queries)
        for _, left in rows_of(portions, 0)
        for _, right in rows_of(portions, 1)
        if wanted(plan, ends, left, right)
    ]
    rows = [{name: row[name] for name in plan.names} for row in found]
    return {RESULTS: pa.Table.from_pylist(rows, schema=schema_of(plan))}


for timed in (False, True):
    register(
        Case(
            f"standing queries{', in a window' if timed else ''}",
            StandingJoin,
            plans=plans(timed),
            make=make,
            inputs=arrivals,
            twin=twin,
            budget=lambda plan: BUDGET,
            event_time=EventTime(("t", "u")) if timed else None,
            bulk_rows=400,
            bulk_portion=20,
            allowance=64 << 10,
        )
    )


def changes_schema(shape: str) -> pa.Schema:
    fields = [("query", pa.int64()), ("op", pa.string()), ("version", pa.int64())]
    return pa.schema([*fields, *((name, pa.float64()) for name in SHAPES[shape].bounds)])


@st.composite
def with_changes(draw: DrawFn, plan: Standing) -> list[Portion]:
    """Rows, and between them queries that are set or removed, each id by ever higher versions."""
    portions = draw(arrivals(plan))
    schema = changes_schema(plan.shape)
    for number in range(draw(st.integers(0, 4))):
        op = draw(st.sampled_from(["set", "remove"]))
        row = (draw(st.integers(0, 6)), op, number + 1, *draw(bounds(plan.shape)))
        batch = pa.record_batch([pa.array([v], f.type) for v, f in zip(row, schema, strict=True)], schema=schema)
        portions.insert(draw(st.integers(0, len(portions))), Portion(2, batch))
    # Versions in the order of arrival.
    version, ordered = 0, []
    for side, rows in portions:
        if side == 2:
            version += 1
            rows = rows.set_column(2, schema.field("version"), pa.array([version]))
        ordered.append(Portion(side, rows))
    return ordered


def must_and_may(plan: Standing, portions: Sequence[Portion]) -> dict[str, pa.Table]:
    """Results with a flag: whether they are there however the input is cut.

    A change counts from the start of its micro-batch, which may have begun any time before it came.
    """
    lives: dict[int, list[tuple[int, float, tuple[float, ...]]]] = {
        query: [(-1, float("inf"), ends)] for query, ends in enumerate(plan.queries)
    }
    for at, (side, rows) in enumerate(portions):
        for change in rows.to_pylist() if side == 2 else []:
            mine = lives.setdefault(change["query"], [])
            if mine and mine[-1][1] == float("inf"):
                mine[-1] = (mine[-1][0], at, mine[-1][2])
            if change["op"] == "set":
                mine.append((at, float("inf"), tuple(change[name] for name in SHAPES[plan.shape].bounds)))
    found = []
    for query, mine in lives.items():
        for came, went, ends in mine:
            for left_at, left in rows_of(portions, 0):
                for right_at, right in rows_of(portions, 1):
                    when = max(left_at, right_at)
                    if when < went and wanted(plan, ends, left, right):
                        sure = came < when and went == float("inf")
                        row = {"query": query, **right, **left}
                        found.append({name: row[name] for name in plan.names} | {"sure": sure})
    return {RESULTS: pa.Table.from_pylist(found, schema=schema_of(plan).append(pa.field("sure", pa.bool_())))}


def agree(plan: Standing, got: dict[str, pa.Table], want: dict[str, pa.Table]) -> None:
    def bag(rows: list[dict[str, Any]]) -> Counter[str]:
        return Counter(repr([row[name] for name in plan.names]) for row in rows)

    seen, listed = bag(got[RESULTS].to_pylist()), want[RESULTS].to_pylist()
    missing = bag([row for row in listed if row["sure"]]) - seen
    surplus = seen - bag(listed)
    assert not missing, f"results that must be there are not: {missing}"
    assert not surplus, f"results that no cut explains: {surplus}"
    # A removal of what does not stand depends on the cut as well.
    assert set(got[SET_ASIDE].column("reason").to_pylist()) <= {"no such query stands"}


register(
    Case(
        "standing queries that come and go",
        StandingJoin,
        plans=plans(False),
        make=make,
        inputs=with_changes,
        twin=must_and_may,
        budget=lambda plan: BUDGET,
        cut_free=False,
        agree=agree,
        bulk_rows=400,
        bulk_portion=20,
        allowance=64 << 10,
    )
)
