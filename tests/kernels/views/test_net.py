"""What changes come to, against applying them one by one."""

import math
from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.views import net
from penstock.testing import bag

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.string())])
rows = st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.one_of(st.none(), st.sampled_from("ab")))
names = st.sampled_from(["insert", "DELETE", "update_preimage", "update_postimage", "update", "what", None])
changes = st.lists(st.tuples(names, rows), max_size=12)
tables = st.lists(rows, max_size=5)
DOES = ("insert", "DELETE", "update", "update_postimage")
#: Updates of keys, beside each other as those of one statement are.
images = st.tuples(rows, rows).map(lambda pair: [("update_preimage", pair[0]), ("update_postimage", pair[1])])
many_images = st.lists(st.one_of(images, changes.map(lambda log: log[:1])), max_size=8).map(
    lambda logs: [*chain.from_iterable(logs)]
)


def arrow(found):
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], SCHEMA)


def codes(found):
    return net.operations(pa.chunked_array([[name for name, _ in found]], pa.string()))


@given(tables, changes)
def test_a_bag_is_as_if_changes_came_one_by_one(table, log):
    have, aside = Counter(table), []
    for name, row in log:
        if name in ("insert", "update_postimage"):
            have[row] += 1
        elif name in ("DELETE", "update_preimage") and have[row]:
            have[row] -= 1
        else:
            aside.append(row)

    def held(asked):
        assert len(bag(asked)) == asked.num_rows
        return np.array([table.count(tuple(row.values())) for row in asked.to_pylist()], np.int64)

    found = net.net_bag(arrow([row for _, row in log]), codes(log), held)
    assert not set(bag(found.removed)) & set(bag(found.added)), "a row that enters and leaves does neither"
    assert bag(arrow(table)) - bag(found.removed) + bag(found.added) == +bag(arrow(have.elements()))
    assert not bag(found.removed) - bag(arrow(table))
    assert bag(found.aside.select(SCHEMA.names)) == bag(arrow(aside))
    assert found.aside[net.REASON].null_count == 0


@given(st.dictionaries(st.integers(0, 2), st.sampled_from("ab")), st.one_of(changes, many_images))
def test_a_keyed_table_is_as_if_changes_came_one_by_one(table, log):
    have, aside = dict(table), []
    # Updates that change the key, by their old images.
    moves = {
        at
        for at, ((name, (k, _)), (then, (other, _))) in enumerate(pairwise(log))
        if (name, then) == ("update_preimage", "update_postimage") and (k != other or k is None)
    }

    def is_left(k, after, freed):
        """Whether the next change of a key is an update that gives its row another one, which is free by then."""
        later = [n for n in range(after, len(log)) if log[n][1][0] == k and (log[n][0] in DOES or n in moves)]
        if not later or later[0] not in moves:
            return False
        other = log[later[0] + 1][1][0]
        return other is not None and (other not in have or other == freed or is_left(other, later[0] + 2, freed))

    leaving = {}  # rows whose key was given to another already, by the update that is to come
    for at, (name, (k, x)) in enumerate(log):
        if at in moves:
            other, new = log[at + 1][1]
            fits = None not in (k, other) and (at in leaving or k in have)
            if fits and other in have:
                coming = next((n for n in moves if n > at and log[n][1][0] == other), None)
                fits = is_left(other, at + 2, k if at not in leaving else None)
                leaving |= {coming: None} if fits else {}
            if at not in leaving and fits:
                del have[k]
            if fits:
                have[other] = new
            else:
                # By then its key is another row's: it goes, and what came between has the key it should have had.
                aside += [log[at + 1][1]] if at in leaving else [log[at][1], log[at + 1][1]]
            continue
        if at - 1 in moves or (name == "update_preimage" and k is not None):
            continue
        there = k in have
        if k is None or name in ("what", None) or there == (name == "insert"):
            aside.append((k, x))
        elif name == "DELETE":
            del have[k]
        else:
            have[k] = x

    def held(asked):
        wanted = asked["k"].to_pylist()
        assert len(set(wanted)) == len(wanted)
        return arrow([(k, x) for k, x in table.items() if k in wanted])

    found = net.net_keyed(arrow([row for _, row in log]), codes(log), ["k"], held)
    before = bag(arrow(table.items()))
    assert not bag(found.removed) - before
    assert before - bag(found.removed) + bag(found.added) == bag(arrow(have.items()))
    assert bag(found.aside.select(SCHEMA.names)) == bag(arrow(aside))


def test_reasons():
    log = [("delete", (1, "a")), ("update", (1, "a")), ("merge", (1, "a"))]
    found = net.net_bag(arrow([row for _, row in log]), codes(log), lambda asked: np.zeros(asked.num_rows, np.int64))
    assert found.aside[net.REASON].to_pylist() == [
        "no such row",
        "an update in one change needs a key",
        "unknown operation",
    ]
    log = [("insert", (1, "a")), ("delete", (2, "a")), ("delete", (None, "a"))]
    found = net.net_keyed(arrow([row for _, row in log]), codes(log), ["k"], lambda asked: arrow([(1, "z")]))
    assert found.aside[net.REASON].to_pylist() == ["the key is there already", "no such row", "the key is NULL"]
    table = pa.table({"reason": ["mine"]})
    found = net.net_bag(table, np.array([1]), lambda asked: np.zeros(1, np.int64))
    assert found.aside.column_names == ["reason", "_reason"]


def test_an_old_and_a_new_image_belong_together_in_one_file_only():
    """What a log means does not depend on which of its files are taken together."""
    log = [("update_preimage", (1, "a")), ("update_postimage", (2, "b"))]
    changes, held = arrow([row for _, row in log]), lambda asked: arrow([(k, "a") for k in asked["k"].to_pylist()])
    together = net.net_keyed(changes, codes(log), ["k"], lambda asked: arrow([(1, "a")]))
    assert (bag(together.removed), bag(together.added)) == (bag(arrow([(1, "a")])), bag(arrow([(2, "b")])))
    apart = net.net_keyed(changes, codes(log), ["k"], held, ends=[1, 2])
    assert (bag(apart.removed), bag(apart.added)) == (bag(arrow([(2, "a")])), bag(arrow([(2, "b")])))


def test_a_statement_may_give_rows_the_keys_of_others():
    """As k = k + 1 does, and a swap: a row has its key before the one that had it has lost it."""
    table = {1: "a", 2: "b", 3: "c"}

    def after(*moves, ends=()):
        log = [
            change
            for old, new in moves
            for change in (("update_preimage", (old, "-")), ("update_postimage", (new, table[old])))
        ]
        found = net.net_keyed(
            arrow([row for _, row in log]),
            codes(log),
            ["k"],
            lambda asked: arrow([(k, table[k]) for k in asked["k"].to_pylist() if k in table]),
            ends,
        )
        left = bag(arrow(table.items())) - bag(found.removed) + bag(found.added)
        return dict(left.elements()), found.aside.num_rows

    assert after((1, 2), (2, 3), (3, 4)) == ({2: "a", 3: "b", 4: "c"}, 0)
    assert after((3, 4), (2, 3), (1, 2)) == ({2: "a", 3: "b", 4: "c"}, 0)
    assert after((1, 2), (2, 1)) == ({1: "b", 2: "a", 3: "c"}, 0)
    # Two files are two statements, which no database would have accepted: neither is done, nor any half of it.
    assert after((1, 2), (2, 1), ends=(2, 4)) == (table, 4)


def test_an_update_that_changes_the_key_is_done_as_a_whole_or_not_at_all():
    table = {1: "a", 2: "b"}

    def after(*moves):
        log = [change for old, new in moves for change in (("-u", (old, "-")), ("+u", (new, "z")))]
        held = lambda asked: arrow([(k, table[k]) for k in asked["k"].to_pylist() if k in table])  # noqa: E731
        found = net.net_keyed(arrow([row for _, row in log]), codes(log), ["k"], held)
        left = bag(arrow(table.items())) - bag(found.removed) + bag(found.added)
        return dict(left.elements()), found.aside[net.REASON].to_pylist()

    assert after((7, 8)) == (table, ["no such row"] * 2)
    assert after((1, 2)) == (table, ["the key is there already"] * 2)
    assert after((1, None)) == after((None, 3)) == (table, ["the key is NULL"] * 2)
    # What follows from one that is refused is refused as well.
    assert after((7, 8), (8, 9)) == (table, ["no such row"] * 4)
    assert after((1, 2), (2, 1)) == ({1: "z", 2: "z"}, [])
    assert after((1, 5), (2, 1), (5, 2)) == ({1: "z", 2: "z"}, [])


def test_long_statements_take_no_longer_for_being_refused():
    """Each update of the chain depends on all after it, of which the last cannot be."""
    count = 20_000
    log = [change for k in range(count) for change in (("-u", (k, "-")), ("+u", (k + 1, "z")))]
    held = lambda asked: arrow([(k, "a") for k in asked["k"].to_pylist()])  # noqa: E731
    found = net.net_keyed(arrow([row for _, row in log]), codes(log), ["k"], held)
    assert (found.aside.num_rows, found.added.num_rows) == (2 * count, 0)
    found = net.net_keyed(arrow([row for _, row in log]), codes(log), ["k"], lambda asked: held(asked).slice(0, count))
    assert (found.aside.num_rows, found.added.num_rows) == (0, count)


def test_a_key_that_is_no_number_stays_the_same_key():
    nan = pa.table({"k": [math.nan, math.nan], "x": ["a", "b"]})
    log = np.array([net.BEFORE, net.AFTER])
    found = net.net_keyed(nan, log, ["k"], lambda asked: nan.slice(0, 0))
    assert found.aside[net.REASON].to_pylist() == ["no such row"]
    assert not found.added.num_rows


def test_a_key_that_the_table_holds_twice_leaves_as_a_whole():
    log = [("update", (1, "b"))]
    found = net.net_keyed(arrow([row for _, row in log]), codes(log), ["k"], lambda asked: arrow([(1, "a"), (1, "z")]))
    assert bag(found.removed) == bag(arrow([(1, "a"), (1, "z")]))
    assert bag(found.added) == bag(arrow([(1, "b")]))


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(12, 2), pa.date32(), pa.timestamp("us"), pa.bool_()])
def test_rows_of_any_flat_type_are_known_again(kind):
    values = pa.array([0, 1, None, 1], pa.int32())
    values = values.cast(pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else values.cast(kind)
    rows = pa.table({"v": values})
    found = net.net_bag(rows, np.array([0, 0, 1, 1]), lambda asked: np.ones(asked.num_rows, np.int64))
    assert bag(found.added) == bag(rows.slice(0, 1))
    assert bag(found.removed) == bag(rows.slice(2, 1))
    assert found.aside.num_rows == 0
