"""The slow, obvious judge: the table is a dictionary, and all queries are asked again after each update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

#: A change as a subscriber sees it: which update, which partition, which range, and the answer from then on.
Fact = tuple[Any, Any, Any, Any, Any]


def is_value(value: Any) -> bool:
    return value is not None and value == value


def answer(agg: str, ys: Sequence[Any]) -> Any:
    """The query's answer over the ys in a range."""
    if agg == "count":
        return len(ys)
    if agg == "distinct":
        return frozenset(ys)
    if not ys:
        return None
    if agg == "avg":
        return sum(ys) / len(ys)
    return {"min": min, "max": max, "sum": sum}[agg](ys)


@dataclass
class Table:
    """What the updates so far left."""

    rows: dict[Any, tuple[Any, Any, Any, Any]] = field(default_factory=dict)

    def take(self, update: dict[str, Any]) -> bool:
        """Apply an update; false if it is to be set aside."""
        key = (update.get("part"), update["key"])
        if not is_value(update["key"]) or ("part" in update and update["part"] is None) or update["at"] is None:
            return False
        known = self.rows.get(key)
        if known is not None and update["at"] <= known[3]:
            return False
        if update["gone"]:
            return self.rows.pop(key, None) is not None
        if not is_value(update["x"]) or not is_value(update.get("y", 0)):
            return False
        self.rows[key] = (update.get("part"), update["x"], update.get("y", 1), update["at"])
        return True

    def ys(self, part: Any, x1: Any, x2: Any) -> list[Any]:
        return [y for p, x, y, _ in self.rows.values() if p == part and x1 <= x <= x2]


def ranges(points: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    yield from ((x1, x2) for x1 in points for x2 in points if x1 <= x2)


def changes(
    agg: str, updates: Iterable[dict[str, Any]], points: Sequence[Any], parts: Sequence[Any]
) -> tuple[list[Fact], int]:
    """Every change of every subscription's answer, and how many updates were set aside."""
    table, facts, aside = Table(), [], 0
    before = {(p, *r): answer(agg, []) for p in parts for r in ranges(points)}
    for update in updates:
        if not table.take(update):
            aside += 1
            continue
        for (p, x1, x2), was in before.items():
            now = answer(agg, table.ys(p, x1, x2))
            if now != was:
                facts.append((update["at"], p, x1, x2, now))
                before[p, x1, x2] = now
    return facts, aside


def concerns(message: dict[str, Any], x1: Any, x2: Any) -> bool:
    """Whether a range lies in a message's rectangle."""
    left, right = message["outer_left"], message["outer_right"]
    return (
        (left is None or left < x1)
        and x1 <= message["inner_left"]
        and message["inner_right"] <= x2
        and (right is None or x2 < right)
    )


def heard(agg: str, messages: pa.Table, points: Sequence[Any], parts: Sequence[Any]) -> list[Fact]:
    """Every change that subscribers are told of by messages alone; at most one of each update for each subscriber."""
    facts: list[Fact] = []
    told: set[tuple[Any, ...]] = set()
    bags: dict[tuple[Any, ...], Counter[Any]] = {}
    known = {(p, *r): answer(agg, []) for p in parts for r in ranges(points)}
    for message in messages.sort_by([("slot", "ascending"), ("seq", "ascending")]).to_pylist():
        for subscriber, was in known.items():
            part, x1, x2 = subscriber
            if message.get("part") != part or not concerns(message, x1, x2):
                continue
            assert (message["at"], *subscriber) not in told, f"{subscriber} is told twice of update {message['at']}"
            told.add((message["at"], *subscriber))
            if agg in ("min", "max"):
                now = message["value"]
            else:
                bag = bags.setdefault(subscriber, Counter())
                bag.update([message["added"]] if message["added"] is not None else [])
                bag.subtract([message["removed"]] if message["removed"] is not None else [])
                assert min(bag.values(), default=0) >= 0, f"{subscriber} is told of more values gone than came"
                now = answer(agg, list(bag.elements()))
            if now == was:
                assert agg in ("sum", "avg"), f"{subscriber} is told for nothing: {message}"
                continue
            facts.append((message["at"], *subscriber, now))
            known[subscriber] = now
    return facts
