"""The kernel of range subscriptions beyond conformance: bad updates, numbering, memory, types, many rows."""

from __future__ import annotations

from collections import Counter
from datetime import date
from math import inf, nan

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import MemoryTooSmall, StateDamaged, UnsupportedType
from penstock.kernels.contract import RESULTS, SET_ASIDE
from penstock.kernels.subscriptions.codes import check_ordered, decode, encode
from penstock.kernels.subscriptions.engine import AGGREGATES
from penstock.kernels.subscriptions.range_kernel import LEAST_MEMORY, Columns, RangeSubscriptions
from penstock.testing import Host
from penstock.testing.weigh import Scale, WeighingHost
from tests.kernels.subscriptions.judge import changes, heard

SCHEMA = pa.schema(
    [("key", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("at", pa.int64()), ("gone", pa.bool_())]
)
COLUMNS = Columns(x="x", y="y", key=("key",), order="at", deleted="gone")


def host(agg: str = "min", memory: int = 16 << 20, **options: object) -> Host:
    return Host(lambda: RangeSubscriptions(SCHEMA, COLUMNS, agg, memory=memory), **options)


def rows(*updates: tuple) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, update, strict=True)) for update in updates], schema=SCHEMA)


@pytest.mark.parametrize("agg", AGGREGATES)
def test_subscribers_always_know_the_answer(agg):
    """500 updates of 40 rows; every range of 12 points subscribes."""
    rng = np.random.default_rng(7)
    table = pa.table(
        {
            "key": rng.integers(0, 40, 500),
            "x": rng.integers(0, 12, 500).astype(float),
            "y": rng.integers(0, 9, 500).astype(float),
            "at": np.arange(500),
            "gone": rng.random(500) < 0.2,
        },
        schema=SCHEMA,
    )
    columns = COLUMNS if agg != "count" else Columns(x="x", key=("key",), order="at", deleted="gone")
    got = Host(lambda: RangeSubscriptions(SCHEMA, columns, agg, memory=16 << 20)).run(
        [table.slice(at, 77) for at in range(0, 500, 77)]
    )
    points = [float(x) for x in range(-1, 13)]
    updates = [row | ({"y": 1} if agg == "count" else {}) for row in table.to_pylist()]
    facts, aside = changes(agg, updates, points, [None])
    assert Counter(heard(agg, got[RESULTS], points, [None])) == Counter(facts)
    assert got[SET_ASIDE].num_rows == aside > 0
    assert len(facts) > 1_000


def test_the_judge_notices_a_message_that_is_missing_twice_or_too_wide():
    updates = rows(*((key, float(key), 10.0 - key, key, False) for key in range(6)))
    messages = host().run([updates])[RESULTS]
    points = [float(x) for x in range(-1, 7)]
    facts, _ = changes("min", updates.to_pylist(), points, [None])
    assert Counter(heard("min", messages, points, [None])) == Counter(facts)
    lost = pa.concat_tables([messages.slice(0, 2), messages.slice(3)])
    assert Counter(heard("min", lost, points, [None])) != Counter(facts)
    with pytest.raises(AssertionError, match="told twice"):
        heard("min", pa.concat_tables([messages, messages.slice(2, 1)]), points, [None])
    wide = messages.set_column(
        messages.schema.get_field_index("inner_left"), "inner_left", pa.array([6.0] * len(messages))
    )
    assert Counter(heard("min", wide, points, [None])) != Counter(facts)


def test_bad_updates_are_set_aside_and_change_nothing():
    desk = host()
    desk.step(rows((1, 5.0, 3.0, 10, False), (2, 6.0, 1.0, 11, None)))
    before = desk.rows[RESULTS]
    bad = {
        (None, 5.0, 3.0, 20, False): "NULL or NaN in key",
        (1, None, 3.0, 20, False): "NULL or NaN in x",
        (1, nan, 3.0, 20, False): "NULL or NaN in x",
        (1, 5.0, nan, 20, False): "NULL or NaN in y",
        (1, 5.0, 3.0, None, False): "NULL or NaN in at",
        (9, None, None, 20, True): "a deletion of a key that is not there",
        (1, 0.0, 0.0, 10, False): "not newer than what is known of its key",
        (1, None, None, 3, True): "not newer than what is known of its key",
    }
    got = desk.run([rows(*bad)])
    assert sorted(got[SET_ASIDE].column("reason").to_pylist()) == sorted(bad.values())
    assert desk.rows[RESULTS] == before
    assert "key=9" in " ".join(got[SET_ASIDE].column("raw").to_pylist())


def test_updates_of_one_batch_are_taken_in_their_order_not_in_that_of_arrival():
    early, late = (1, 5.0, 3.0, 1, False), (1, 5.0, 2.0, 2, False)
    for arrival in ((early, late), (late, early)):
        assert host().run([rows(*arrival)])[RESULTS].column("value").to_pylist() == [3.0, 2.0]


def test_messages_are_numbered_for_ever():
    desk = host(restart_every_step=True)
    for at in range(20):
        desk.step(rows((at % 3, float(at % 5), float(at % 7), at, False)))
    assert desk.results()[RESULTS].column("seq").to_pylist() == list(range(desk.rows[RESULTS]))
    assert desk.rows[RESULTS] > 20


def test_a_table_that_is_full_says_so_and_goes_on_with_the_rows_it_has():
    desk = host(memory=LEAST_MEMORY, budget=LEAST_MEMORY)
    room = int(LEAST_MEMORY / 2 * 0.75) // 640
    many = [(key, float(key % 100), float(key % 91), key, False) for key in range(room + 50)]
    for start in range(0, len(many), 500):
        desk.step(rows(*many[start : start + 500]))
    aside = desk.results()[SET_ASIDE]
    assert aside.num_rows == 50
    assert "full" in aside.column("reason")[0].as_py()
    desk.step(rows((0, None, None, 10**6, True), (10**7, 1.0, 1.0, 10**6 + 1, False)))
    assert desk.results()[SET_ASIDE].num_rows == 50
    assert desk.kernel.metrics()["table_rows"] == room


def test_memory_is_never_above_the_budget_while_the_table_grows_moves_and_shrinks():
    budget = 24 << 20
    make = lambda: RangeSubscriptions(SCHEMA, COLUMNS, "min", memory=budget)  # noqa: E731
    desk = WeighingHost(make, budget=budget, scale=Scale([make()]), allowance=64 << 10)
    rng = np.random.default_rng(3)
    for number in range(14):
        keys = rng.integers(0, 26_000, 6_000)
        values = rng.random((2, 6_000))
        at = number * 10_000 + np.arange(6_000)
        gone = rng.random(6_000) < (0.1 if number < 8 else 0.7)
        desk.step(pa.table([keys, *values, at, gone], schema=SCHEMA))
        if number % 5 == 4:
            desk.crash()
    assert 4 << 20 < desk.peak <= budget
    assert len(desk.store.chunks) <= 8, "the log of touched rows is merged"


def test_a_batch_too_large_for_its_part_of_the_memory_stops_with_advice():
    table = pa.table(
        [np.arange(40_000), *np.zeros((2, 40_000)), np.arange(40_000), np.zeros(40_000, bool)], schema=SCHEMA
    )
    with pytest.raises(MemoryTooSmall, match="maxFilesPerTrigger"):
        host(memory=LEAST_MEMORY).step(table)


def test_too_little_memory_is_refused():
    with pytest.raises(MemoryTooSmall):
        RangeSubscriptions(SCHEMA, COLUMNS, "min", memory=1_000)


def test_a_cut_chunk_is_refused():
    desk = host()
    desk.step(rows((1, 5.0, 3.0, 10, False)))
    (name,) = desk.store.chunks
    for damage in (b"12345678", b"123"):
        with pytest.raises(StateDamaged):
            RangeSubscriptions(SCHEMA, COLUMNS, "min", memory=16 << 20).restore(
                desk.store.head, {name: pa.py_buffer(damage)}
            )
    with pytest.raises(StateDamaged):
        RangeSubscriptions(SCHEMA, COLUMNS, "min", memory=16 << 20).restore(b"{", {})


ORDERED = {
    pa.int8(): [-128, 0, 127],
    pa.int64(): [-(2**63), -1, 2**63 - 1],
    pa.float32(): [-inf, -1.5, 0.0, 2.0, inf],
    pa.float64(): [-inf, -1e308, -5e-324, 0.0, 5e-324, 1.0, inf],
    pa.date32(): [date.min, date(1969, 12, 31), date.max],
    pa.timestamp("us", "UTC"): [-(2**62), 0, 2**62],
    pa.decimal128(18, 3): [-(10**14), -1, 0, 1, 10**14],
}


@pytest.mark.parametrize("kind", ORDERED, ids=str)
def test_codes_keep_the_order(kind):
    raw = ORDERED[kind]
    column = pa.array(raw, pa.int64()).view(kind) if pa.types.is_timestamp(kind) else pa.array(raw, kind)
    codes, able = encode(column)
    assert able.all()
    assert (np.diff(codes.astype(object)) > 0).all()
    assert decode(codes, kind).equals(column)
    sliced, able = encode(pa.concat_arrays([column, pa.nulls(1, kind)])[1:])
    assert list(sliced[:-1]) == list(codes[1:])
    assert list(able) == [True] * (len(raw) - 1) + [False]
    assert decode(sliced, kind, able).is_null().to_pylist() == [False] * (len(raw) - 1) + [True]


def test_types_without_an_order_are_refused():
    for kind in (pa.string(), pa.bool_(), pa.uint64(), pa.decimal128(19, 0)):
        with pytest.raises(UnsupportedType, match="no order"):
            check_ordered(kind, "x")
