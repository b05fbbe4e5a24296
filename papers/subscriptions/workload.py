"""The chapter's workload (Table 5.1): rows that walk at random, with spikes; subscriptions that crowd in the middle.

The chapter does not say how long a step of the walk is, nor what became of ranges whose normally distributed length is
below zero. Both are set here so that the numbers come out that it prints. A step is drawn between minus and plus `step`
times the domain, and the ends of the domain throw it back. The messages that leave S-CN's server depend on it, not on
who subscribes: 1.1 an update at a hundredth of the domain, 1.6 at three tenths, 2.07 at the whole of it, and Table 5.3
has 2.08; so the domain it is. A length below zero is drawn again: ranges are then a tenth longer on average than if the
sign were dropped, and S-UN tells so many more, as Tables 5.2 and 5.3 have it. Normal distributions are given by their
standard deviation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.broker.messages import (
    FLAGS,
    HAS_LEFT,
    HAS_RIGHT,
    HAS_VALUE,
    INNER_LEFT,
    INNER_RIGHT,
    LEFT,
    RIGHT,
    SEQ,
    VALUE,
    WIDTH,
)
from penstock.kernels.subscriptions import mar
from penstock.kernels.subscriptions.engine import Engine

I64 = npt.NDArray[np.int64]
#: The domain [0, 10,000], in thousandths: the kernel's numbers are whole.
UNIT = 1_000
DOMAIN = 10_000 * UNIT
BOTH = mar.HAS_OLD | mar.HAS_NEW


@dataclass(frozen=True)
class Subscriptions:
    """Ranges: where their middle is, and how long they are."""

    count: int
    middle: tuple[float, float] = (5_000, 1_500)
    length: tuple[float, float] = (1_000, 1_000)

    def draw(self, seed: int = 1) -> tuple[I64, I64]:
        """x1 and x2 of each."""
        rng = np.random.default_rng(seed)
        middle = rng.normal(*self.middle, self.count)
        length = rng.normal(*self.length, self.count)
        while (below := length < 0).any():
            length[below] = rng.normal(*self.length, int(below.sum()))
        half = length / 2
        ends = (np.clip(end, 0, 10_000) * UNIT for end in (middle - half, middle + half))
        x1, x2 = (end.astype(np.int64) for end in ends)
        return x1, x2


@dataclass(frozen=True)
class Walk:
    """A table and its updates. `ignorable` is the share of updates of rows that lie above another one at their x.

    `spikes` is the share of events that begin a spike (Table 5.1: 0.5%), `step` the longest step as a share of the
    domain.
    """

    rows: int
    events: int
    spikes: float = 0.005
    step: float = 1.0
    ignorable: float = 0.0
    seed: int = 0

    def draw(self) -> tuple[I64, I64]:
        """The table as (group, x, y), and events as the kernel takes them."""
        rng = np.random.default_rng(self.seed)
        x = rng.permutation(np.unique(rng.integers(0, DOMAIN, 2 * self.rows)))[: self.rows]
        y = rng.integers(1, DOMAIN, self.rows)
        hidden = self.rows // 2 if self.ignorable else 0
        if hidden:
            # The first rows lie above one of the others, for good.
            x[:hidden] = x[hidden : 2 * hidden]
            y[:hidden] = DOMAIN + rng.integers(1, DOMAIN, hidden)
        table = np.stack([np.zeros(self.rows, np.int64), x, y], axis=1)
        return table, self._walk(rng, x, y.copy(), hidden)

    def _walk(self, rng: np.random.Generator, x: I64, y: I64, hidden: int) -> I64:
        events = np.zeros((self.events, mar.EVENT_WIDTH), np.int64)
        events[:, mar.HAS] = BOTH
        # Of a spike the way down counts; the way back is an event that follows it.
        spike = rng.random(self.events) < self.spikes
        quiet = rng.random(self.events) < self.ignorable
        step = rng.uniform(-self.step, self.step, self.events)
        draw = rng.random(self.events)
        number = 0
        while number < self.events:
            who = int(draw[number] * hidden) if quiet[number] else hidden + int(draw[number] * (self.rows - hidden))
            old = y[who]
            if spike[number] and number + 1 < self.events:
                events[number, 2:] = x[who], old, x[who], 0
                events[number + 1, 2:] = x[who], 0, x[who], old
                number += 2
                continue
            low, high = (DOMAIN + 1, 2 * DOMAIN) if quiet[number] else (1, DOMAIN)
            moved = old + int(step[number] * DOMAIN)
            y[who] = 2 * low - moved if moved < low else 2 * high - moved if moved > high else moved
            events[number, 2:] = x[who], old, x[who], y[who]
            number += 1
        return events


def engine_of(table: I64, agg: str = "min") -> Engine:
    """A server that knows the table."""
    engine = Engine(agg)  # type: ignore[arg-type]
    engine.tree.extend(table if agg == "min" else table[:0])
    return engine


def as_rows(messages: I64) -> I64:
    """A server's messages as they travel; the number of the event instead of the message's."""
    out = np.zeros((len(messages), WIDTH), np.int64)
    out[:, SEQ] = messages[:, mar.EVENT]
    out[:, VALUE] = messages[:, mar.VALUE]
    out[:, FLAGS] = (
        HAS_VALUE * messages[:, mar.HAS_VALUE]
        + HAS_LEFT * messages[:, mar.HAS_LEFT]
        + HAS_RIGHT * messages[:, mar.HAS_RIGHT]
    )
    for ours, theirs in ((INNER_LEFT, mar.INNER_LEFT), (INNER_RIGHT, mar.INNER_RIGHT)):
        out[:, ours] = messages[:, theirs]
    out[:, LEFT], out[:, RIGHT] = messages[:, mar.LEFT], messages[:, mar.RIGHT]
    return out


def messages_of(engine: Engine, events: I64) -> I64:
    """All messages of some events, as they travel."""
    found = [as_rows(piece) for piece in engine.apply(events)]
    return np.concatenate(found) if found else np.zeros((0, WIDTH), np.int64)
