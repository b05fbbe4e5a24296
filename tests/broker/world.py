"""A table that changes at random, its messages, and what every subscriber should hear."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.broker.messages import Kind
from penstock.kernels.contract import RESULTS
from penstock.kernels.subscriptions.range_kernel import Columns, RangeSubscriptions
from penstock.testing import Host
from tests.kernels.subscriptions.judge import Table, answer

SCHEMA = pa.schema([*((name, pa.int64()) for name in ("key", "x", "z", "y", "at")), ("gone", pa.bool_())])


@dataclass
class World:
    """Updates in batches; `heard` is what a subscriber who listens all the time is told: (seq, answer)."""

    agg: str = "min"
    relaxed: bool = False
    seed: int = 0
    keys: int = 25
    width: int = 20
    at: int = 0
    #: Whether ranges are of two columns.
    two: bool = False
    rows: Table = field(default_factory=Table)
    #: The table after each message's update, by the message's number.
    states: dict[int, list[tuple[Any, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        y = None if self.agg == "count" else "y"
        columns = Columns(x="x", y=y, key=("key",), order="at", deleted="gone", x2="z" if self.two else None)
        agg = "sum" if self.relaxed else self.agg
        self.host = Host(lambda: RangeSubscriptions(SCHEMA, columns, agg, memory=16 << 20))
        second = pa.int64() if self.two else None
        self.kind = Kind(self.agg, pa.int64(), pa.int64() if y else pa.int8(), self.relaxed, second)

    def batch(self, count: int) -> pa.Table:
        """The messages of some updates."""
        updates = [
            {
                "key": int(self._rng.integers(0, self.keys)),
                "x": int(self._rng.integers(0, self.width)),
                "z": int(self._rng.integers(0, 5)) if self.two else 0,
                "y": int(self._rng.integers(0, 9)),
                "at": self.at + n,
                "gone": bool(self._rng.random() < 0.2),
            }
            for n in range(count)
        ]
        self.at += count
        emitted = self.host.step(pa.Table.from_pylist(updates, schema=SCHEMA))
        messages = pa.Table.from_batches(
            [e.rows for e in emitted if e.channel == RESULTS], schema=self.host.kernel.channels[RESULTS]
        )
        numbers: dict[int, list[int]] = {}
        for message in messages.to_pylist():
            numbers.setdefault(message["at"], []).append(message["seq"])
        for update in updates:
            seen = update | {"x": (update["x"], update["z"])}
            self.rows.take(seen if self.agg != "count" else seen | {"y": 1})
            for seq in numbers.get(update["at"], []):
                self.states[seq] = [(x, y) for _, x, y, _ in self.rows.rows.values()]
        return messages

    def answers(self, x1: int, x2: int, low: int = 0, high: int = 5, after: int = -1) -> list[Any]:
        """The answers that a subscriber to a range is told one after another."""
        was, out = answer(self.agg, []), []
        for seq in sorted(self.states):
            now = answer(self.agg, [y for (x, z), y in self.states[seq] if x1 <= x <= x2 and low <= z <= high])
            if now != was and seq > after:
                out.append(now)
            was = now
        return out

    def ranges(self, step: int = 3) -> Iterator[tuple[int, ...]]:
        """Ranges to subscribe to."""
        second = [(0, 4), (1, 2), (3, 3)] if self.two else [()]
        for a in range(-1, self.width, step):
            yield from ((a, b, *more) for b in range(a, self.width + 1, step) for more in second)
