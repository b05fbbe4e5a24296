"""Select-join subscriptions beyond conformance: keys that are let go, memory, what is full, damaged state."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import MemoryTooSmall, StateDamaged
from penstock.kernels.contract import RESULTS, SET_ASIDE, Portion
from penstock.kernels.subscriptions.intake import Columns
from penstock.kernels.subscriptions.select_join import LEAST_MEMORY, SelectJoinSubscriptions
from penstock.testing import Host
from penstock.testing.weigh import Scale, WeighingHost
from tests.kernels.subscriptions.judge_pairs import changes, heard

REST = [("who", pa.int64()), ("at", pa.int64()), ("gone", pa.bool_())]
SCHEMAS = (
    pa.schema([("key", pa.string()), ("x", pa.int64()), *REST]),
    pa.schema([("id", pa.int64()), ("z", pa.float64()), *REST]),
)
COLUMNS = (
    Columns("x", ("key",), "at", deleted="gone", on=("who",)),
    Columns("z", ("id",), "at", deleted="gone", on=("who",)),
)


def kernel(memory: int = 16 << 20) -> SelectJoinSubscriptions:
    return SelectJoinSubscriptions(SCHEMAS, COLUMNS, memory=memory)


def updates(side: int, count: int, begin: int, keys: int, whos: int, gone: float, seed: int) -> Portion:
    rng = np.random.default_rng(seed)
    key = rng.integers(0, keys, count)
    columns = [
        pa.array([f"key {k} " * 3 for k in key]) if side == 0 else key,
        rng.integers(0, 6, count) if side == 0 else rng.integers(0, 6, count).astype(float),
        rng.integers(0, whos, count),
        begin + np.arange(count),
        rng.random(count) < gone,
    ]
    return Portion(side, pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=SCHEMAS[side]))


@pytest.mark.parametrize("restart", [False, True])
def test_pairs_stay_right_while_rows_come_go_and_are_let_go(restart):
    """Hundreds of keys come and go, so that keys are put together anew and join values are forgotten."""
    desk = Host(kernel, restart_every_step=restart)
    steps = [updates(n % 2, 70, 70 * n, 50, 25, 0.9 if n % 4 > 1 else 0.05, n) for n in range(14)]
    for step in steps:
        desk.step(step)
    rows = [(side, row) for side, part in steps for row in part.to_pylist()]
    facts, aside = changes(rows, [0, 4], [1.0])
    got = desk.results()
    assert Counter(heard(got[RESULTS], [0, 4], [1.0])) == Counter(facts)
    assert got[SET_ASIDE].num_rows == aside > 0
    assert got[RESULTS].column("seq").to_pylist() == list(range(got[RESULTS].num_rows))
    for keys, table in zip(desk.kernel._keys, desk.kernel._tables, strict=True):
        assert keys.rows <= 2 * table.live + 64
        assert keys.next > keys.rows, "some were let go"


def test_a_restored_kernel_numbers_its_messages_as_the_first_would_have():
    steps = [updates(n % 2, 40, 40 * n, 30, 3, 0.2, n) for n in range(8)]
    one, other = Host(kernel), Host(kernel, restart_every_step=True)
    for step in steps:
        one.step(step)
        other.step(step)
    assert one.results()[RESULTS].equals(other.results()[RESULTS])
    assert one.rows[RESULTS] > 1_000


def test_memory_is_never_above_the_budget_where_all_rows_are_partners_of_one():
    budget = LEAST_MEMORY
    make = lambda: kernel(budget)  # noqa: E731
    desk = WeighingHost(make, budget=budget, scale=Scale([make()]), allowance=64 << 10)
    for n in range(12):
        desk.step(updates(0, 400, 1_000 * n, 4_000, 1, 0.1, n))
        desk.step(updates(1, 1, 1_000 * n + 500, 2, 1, 0.0, n))
    aside = desk.results()[SET_ASIDE].column("reason").to_pylist()
    assert any("full" in reason for reason in aside)
    assert desk.rows[RESULTS] > 1_000
    assert desk.peak <= budget


def test_bad_updates_are_set_aside_and_change_nothing():
    desk = Host(kernel)
    good = {"key": "a", "x": 1, "who": 7, "at": 5, "gone": False}
    bad = {
        "NULL or NaN in key": good | {"key": None},
        "NULL or NaN in x": good | {"x": None, "at": 6},
        "NULL or NaN in who": good | {"who": None, "at": 6},
        "NULL or NaN in at": good | {"at": None},
        "not newer than what is known of its key": good | {"x": 9},
        "a deletion of a key that is not there": good | {"key": "b", "gone": True},
    }
    desk.step(pa.Table.from_pylist([good], schema=SCHEMAS[0]))
    desk.step(pa.Table.from_pylist(list(bad.values()), schema=SCHEMAS[0]))
    theirs = pa.Table.from_pylist([{"id": 1, "z": 0.5, "who": 7, "at": 9, "gone": None}], schema=SCHEMAS[1])
    desk.step(Portion(1, theirs.to_batches()[0]))
    assert sorted(desk.results()[SET_ASIDE].column("reason").to_pylist()) == sorted(bad)
    (pair,) = desk.results()[RESULTS].to_pylist()
    assert (pair["left_key"], pair["left_after"], pair["right_id"], pair["right_after"]) == ("a", 1, 1, 0.5)
    assert pair["left_before"] is pair["right_before"] is None


def test_too_little_memory_and_damaged_state_are_refused():
    with pytest.raises(MemoryTooSmall):
        kernel(1_000)
    with pytest.raises(MemoryTooSmall, match="maxFilesPerTrigger"):
        Host(lambda: kernel(LEAST_MEMORY)).step(updates(0, 20_000, 0, 10, 1, 0.0, 0))
    for head in (b"{", b'{"seq": 1, "next": [1], "keys": [1, 1]}'):
        with pytest.raises(StateDamaged):
            kernel().restore(head, {})
