"""The slow, obvious judge of select-joins: two dictionaries, joined again after each update for every subscription."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tests.kernels.subscriptions.judge import is_value, ranges

#: A change as a subscriber sees it: which update, its two ranges, what happened, and the two keys.
Fact = tuple[Any, ...]
#: Of each side: what tells a row apart, what is selected by.
NAMES = (("key", "x"), ("id", "z"))


def joined(tables: tuple[dict[Any, Any], dict[Any, Any]], spans: tuple[Any, ...]) -> dict[tuple[Any, Any], Any]:
    """A subscription's answer: the places of pairs, by the keys of their rows."""
    (a1, a2), (c1, c2) = spans
    return {
        (left["key"], right["id"], left.get("part")): (left["x"], right["z"])
        for left, right in itertools.product(tables[0].values(), tables[1].values())
        if left["who"] == right["who"]
        and left.get("part") == right.get("part")
        and a1 <= left["x"] <= a2
        and c1 <= right["z"] <= c2
    }


def changes(
    updates: Iterable[tuple[int, dict[str, Any]]], first: Sequence[Any], second: Sequence[Any]
) -> tuple[list[Fact], int]:
    """Every pair that every subscription gained, lost or saw changed, and how many updates were set aside."""
    tables: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
    asked = list(itertools.product(ranges(first), ranges(second)))
    known: dict[Any, dict[Any, Any]] = {spans: {} for spans in asked}
    facts, aside = [], 0
    for side, update in updates:
        key, x = NAMES[side]
        name, table = (update.get("part"), update[key]), tables[side]
        needed = (key,) if update["gone"] else (key, x, "who")
        stale = name in table and update["at"] <= table[name]["at"]
        if not all(is_value(update[one]) for one in needed) or stale or (update["gone"] and name not in table):
            aside += 1
            continue
        table.pop(name, None) if update["gone"] else table.update({name: update})
        for spans, was in known.items():
            now = known[spans] = joined(tables, spans)
            facts += [(update["at"], *spans, "gained", *pair) for pair in now.keys() - was.keys()]
            facts += [(update["at"], *spans, "lost", *pair) for pair in was.keys() - now.keys()]
            facts += [
                (update["at"], *spans, "changed", *pair) for pair in now.keys() & was.keys() if now[pair] != was[pair]
            ]
    return facts, aside


def heard(messages: pa.Table, first: Sequence[Any], second: Sequence[Any]) -> list[Fact]:
    """What subscribers make of messages, each looking at the four places of one alone."""
    facts: list[Fact] = []
    for spans in itertools.product(ranges(first), ranges(second)):
        (a1, a2), (c1, c2) = spans

        def inside(a: Any, c: Any, a1: Any = a1, a2: Any = a2, c1: Any = c1, c2: Any = c2) -> bool:
            return a is not None and a1 <= a <= a2 and c1 <= c <= c2

        for m in messages.to_pylist():
            was, now = inside(m["left_before"], m["right_before"]), inside(m["left_after"], m["right_after"])
            if was or now:
                what = "changed" if was and now else "gained" if now else "lost"
                facts.append((m["at"], *spans, what, m["left_key"], m["right_id"], m.get("part")))
    return facts
