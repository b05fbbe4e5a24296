"""Which rows go, beside sorting all of them; and what choosing takes."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.contract import Batch
from penstock.kernels.window.evict import Contest, ascending, decide
from penstock.kernels.window.heeb import Heeb
from penstock.kernels.window.prob import Prob
from penstock.kernels.window.side import ENTRY
from penstock.kernels.window.windows import TimeWindow
from tests.kernels.window.test_windowjoin import make, rows

SCORES = st.sampled_from([-np.inf, -2.5, -0.0, 0.0, 1e-300, 0.1, 3.0, np.inf])
ROWS = st.lists(st.tuples(SCORES, st.integers(-3, 3), st.integers(0, 800)), max_size=40)


def contest(side: int, rows: list[tuple[float, int, int]], at_once: int) -> Contest:
    """Rows given as (score, age, size in eighths of a byte)."""
    scores, ages, sizes = (np.array(one) for one in zip(*rows, strict=True)) if rows else (np.zeros(0),) * 3

    class Waiting:
        entry = ENTRY

        def __len__(self) -> int:
            return len(rows)

        def column(self, name: str) -> Any:
            return sizes.astype(np.int32)

    def waiting(_: int, __: Any, ___: Any, begin: int, end: int) -> Any:
        part = slice(begin, end)
        return SimpleNamespace(life=np.zeros(end - begin), age=ages[part].astype(np.int64), scores=scores[part])

    judgement = SimpleNamespace(waiting=waiting, scores=lambda candidates, step: candidates.scores.astype(np.float64))
    return Contest(side, Waiting(), judgement, None, 0, at_once)  # type: ignore[arg-type]


@given(ROWS, ROWS, st.floats(0.1, 8_000), st.integers(1, 9))
def test_the_lowest_go_then_the_oldest_then_the_first(left, right, free, at_once):
    sides = [contest(side, rows, at_once) for side, rows in enumerate((left, right))]
    decide(sides, free)
    want, freed = set(), 0.0
    order = sorted(
        (score, -age, side, place)
        for side, rows in enumerate((left, right))
        for place, (score, age, _) in enumerate(rows)
    )
    for _, _, side, place in order:
        if freed >= free:
            break
        want.add((side, place))
        freed += (left, right)[side][place][2] / 8 + ENTRY
    assert {(one.side, int(place)) for one in sides for place in np.flatnonzero(one.gone)} == want


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=20))
def test_ranks_are_in_the_order_of_scores(scores):
    found = np.array(scores)
    assert (ascending(found)[np.argsort(found, kind="stable")][:-1] <= np.sort(ascending(found))[1:]).all()
    assert (np.argsort(ascending(found), kind="stable") == np.argsort(found, kind="stable")).all()


@pytest.mark.parametrize("policy", [Prob(), Heeb()])
def test_a_kernel_that_evicts_keeps_its_budget_by_the_allocators_word(policy):
    budget = 8 << 20
    for _ in range(2):  # the first loads what is compiled
        kernel = None
        rng, held = np.random.default_rng(3), pa.total_allocated_bytes()
        kernel, seen, evicted = make(policy, TimeWindow(10**9, 10**9), budget=budget), 0.0, 0.0
        tracemalloc.start()
        for step in range(12):
            moments = np.arange(step * 5_000, (step + 1) * 5_000)
            batch = Batch([rows(side, rng.integers(0, 20_000, 5_000), moments) for side in (0, 1)], None)
            for _ in kernel.step(batch, step):
                pass
            del batch
            seen = max(seen, tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - held)
            evicted += kernel.metrics()["rows_evicted"]
            assert kernel.memory() <= budget
            kernel.changes()
        tracemalloc.stop()
    assert evicted > 10_000
    assert seen <= budget
