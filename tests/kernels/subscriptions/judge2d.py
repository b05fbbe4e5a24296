"""The slow, obvious judge of two-dimensional ranges: all queries are asked again after each update."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tests.kernels.subscriptions.judge import is_value, ranges

#: A change as a subscriber sees it: which update, which partition, which two ranges, and the answer from then on.
Fact = tuple[Any, ...]


def subscribers(first: Sequence[Any], second: Sequence[Any], parts: Sequence[Any]) -> list[tuple[Any, ...]]:
    spans = itertools.product(parts, ranges(first), ranges(second))
    return [(part, *one, *other) for part, one, other in spans]


def changes(
    agg: str, updates: Iterable[dict[str, Any]], first: Sequence[Any], second: Sequence[Any], parts: Sequence[Any]
) -> tuple[list[Fact], int]:
    """Every change of every subscription's answer, and how many updates were set aside."""
    rows: dict[Any, dict[str, Any]] = {}
    known: dict[tuple[Any, ...], Any] = dict.fromkeys(subscribers(first, second, parts))
    facts, aside = [], 0
    for update in updates:
        key = update.get("part"), update["key"]
        needed = ("key",) if update["gone"] else ("key", "x", "z", "y")
        stale = key in rows and update["at"] <= rows[key]["at"]
        if not all(is_value(update[name]) for name in needed) or stale or (update["gone"] and key not in rows):
            aside += 1
            continue
        rows.pop(key, None)
        if not update["gone"]:
            rows[key] = update
        for who, was in known.items():
            part, l1, u1, l2, u2 = who
            inside = [
                row["y"]
                for row in rows.values()
                if row.get("part") == part and l1 <= row["x"] <= u1 and l2 <= row["z"] <= u2
            ]
            now = {"min": min, "max": max}[agg](inside, default=None)
            if now != was:
                facts.append((update["at"], *who, now))
                known[who] = now
    return facts, aside


def concerns(message: dict[str, Any], l1: Any, u1: Any, l2: Any, u2: Any) -> bool:
    """Whether a range lies in a message's box."""
    for low, high, below, above in ((l1, u1, "left", "right"), (l2, u2, "bottom", "top")):
        outer_low, outer_high = message[f"outer_{below}"], message[f"outer_{above}"]
        if low > message[f"inner_{below}"] or (outer_low is not None and low <= outer_low):
            return False
        if high < message[f"inner_{above}"] or (outer_high is not None and high >= outer_high):
            return False
    return True


def heard(messages: pa.Table, first: Sequence[Any], second: Sequence[Any], parts: Sequence[Any]) -> list[Fact]:
    """Every change that subscribers are told of by messages alone; at most one of each update for each subscriber."""
    facts: list[Fact] = []
    known: dict[tuple[Any, ...], Any] = dict.fromkeys(subscribers(first, second, parts))
    told: set[tuple[Any, ...]] = set()
    for message in messages.sort_by([("slot", "ascending"), ("seq", "ascending")]).to_pylist():
        for who, was in known.items():
            if message.get("part") != who[0] or not concerns(message, *who[1:]):
                continue
            assert (message["at"], *who) not in told, f"{who} is told twice of update {message['at']}"
            assert message["value"] != was, f"{who} is told for nothing: {message}"
            told.add((message["at"], *who))
            facts.append((message["at"], *who, message["value"]))
            known[who] = message["value"]
    return facts
