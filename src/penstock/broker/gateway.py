"""A gateway: holds subscribers, takes the frames of their cells, checks the rectangles, and pushes.

Knows no broker: whatever carries frames hands them to `take`, which says where something is missing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.broker.answers import Answers, pairs_of, within
from penstock.broker.cells import CellMap
from penstock.broker.messages import LEAST, MOST, SEQ, Frame, Kind
from penstock.broker.pairs import IS, WAS, Pair, seen, shown
from penstock.errors import BadOption

I64 = npt.NDArray[np.int64]
_WHAT: dict[int, Literal["gained", "lost", "moved"]] = {IS: "gained", WAS: "lost", IS | WAS: "moved"}
#: A cell of a partition's plane.
Place = tuple[str, int]


class Change(NamedTuple):
    """One thing a subscriber is told: the answer from message `seq` on. With `reread`, changes before were dropped."""

    seq: int
    value: Any
    reread: bool = False


@dataclass
class Subscriber:
    """Someone who waits for an answer to change.

    Guarantees
        Every change is in the queue once, in order. A subscriber who lets `limit` of them wait loses these, and is told
        once to read the answer again; nobody else waits for it: `test_a_slow_subscriber_is_told_to_read_again`.
    """

    partition: str
    x1: int
    x2: int
    limit: int = 1_000
    #: Changes up to this message are known already.
    after: int = -1
    #: The range of the second column, if there is one.
    low: int = LEAST
    high: int = MOST
    _waiting: deque[Change] = field(default_factory=deque)
    _reread: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def push(self, change: Change) -> None:
        """Have a change wait to be read."""
        if change.seq <= self.after:
            return
        self.after = change.seq
        if len(self._waiting) >= self.limit or self._reread:
            self._waiting.clear()
            self._reread = True
            change = change._replace(reread=True)
        self._waiting.append(change)
        self._news.set()

    def take(self) -> list[Change]:
        """What waits."""
        changes = list(self._waiting)
        self._waiting.clear()
        self._reread = False
        self._news.clear()
        return changes

    async def changes(self) -> list[Change]:
        """What waits, once something does."""
        await self._news.wait()
        return self.take()


@dataclass
class Room:
    """The subscribers of one cell, side by side."""

    answers: Answers
    #: The last message that all of them know of.
    last: int = -1
    #: x1, x2, and the range of the second column, each of all subscribers.
    ends: I64 = field(default_factory=lambda: np.empty((4, 0), np.int64))
    #: The last message that each of them knew of when it came, or when someone came who knew less.
    known: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    subscribers: list[Subscriber] = field(default_factory=list)
    #: Numbers of subscribers in the order of x1, their x1 and their x2; None until they are asked for.
    _by_x1: tuple[I64, I64, I64] | None = None

    def add(self, new: Sequence[Subscriber], answers: Answers, known: int | I64 = -1) -> None:
        """Let subscribers in who know of messages up to `known`, all of them or each."""
        ends = np.array([(one.x1, one.x2, one.low, one.high) for one in new], np.int64).reshape(-1, 4)
        # Each kind of end side by side, for compiled code to walk.
        self.ends = np.concatenate([self.ends, ends.T.copy()], axis=1)
        inside, come = self.knows, np.broadcast_to(known, len(new))
        self.known = np.concatenate([inside, come])
        if len(new):
            self.last = min(self.last, int(come.min())) if len(inside) else int(come.min())
        self.subscribers += new
        self.answers.extend(answers)
        self._by_x1 = None

    @property
    def knows(self) -> I64:
        """The last message that each of them knows of."""
        return np.maximum(self.known, self.last)

    def remove(self, *gone: Subscriber) -> None:
        """Let some go."""
        names = {id(one) for one in gone}
        kept = [at for at, one in enumerate(self.subscribers) if id(one) not in names]
        self.ends, self.known = self.ends.take(kept, axis=1), self.known.take(kept)
        self.subscribers = [self.subscribers[at] for at in kept]
        self.answers = self.answers.take(kept)
        self._by_x1 = None

    def concerned(self, rows: I64) -> I64:
        """(message, subscriber) for every subscriber in a message's rectangle of the first column."""
        if self._by_x1 is None:
            order = np.argsort(self.ends[0], kind="stable")
            self._by_x1 = order, self.ends[0][order], self.ends[1][order]
        return pairs_of(rows, *self._by_x1)

    def tell(self, frame: Frame) -> int:
        """Apply messages that are not known yet; how many changes were pushed."""
        rows = frame.rows[frame.rows[:, SEQ] > self.last]
        if not len(rows):
            return 0
        pairs = within(rows, self.concerned(rows), *self.ends[2:])
        return self.apply(rows, pairs[rows[pairs[:, 0], SEQ] > self.known[pairs[:, 1]]])

    def apply(self, rows: I64, pairs: I64) -> int:
        """Apply messages to the subscribers they concern, given as (message, subscriber)."""
        pushed = 0
        for m, s, value in self.answers.changes(rows, pairs):
            self.subscribers[s].push(Change(m, value))
            pushed += 1
        self.last = int(rows[-1, SEQ])
        return pushed


class PairRoom(Room):
    """Subscribers of a join, who are told of pairs."""

    def tell(self, frame: Frame) -> int:
        """Tell each pair to those in whose ranges it was or is."""
        rows = frame.rows[frame.rows[:, SEQ] > self.last]
        if not len(rows) or frame.keys is None:
            return 0
        concerned, saw = seen(rows, self.concerned(rows), self.ends)
        told = np.unique(concerned[:, 0])
        known = dict(zip(told.tolist(), shown(self.answers.kind, rows[told], frame.keys), strict=True))
        for (m, s), flags in zip(concerned.tolist(), saw.tolist(), strict=True):
            left, right, before, after = known[m]
            change = Pair(_WHAT[flags], left, right, before, after)
            self.subscribers[s].push(Change(int(rows[m, SEQ]), change))
        self.last = int(rows[-1, SEQ])
        return len(concerned)


class Gateway:
    """Holds subscribers by cell.

    Guarantees
        A subscriber is told of each change of its answer once, and of nothing else:
        `test_every_way_of_delivery_tells_each_change_once`.
    State and cost
        56 bytes and a few Python objects a subscriber; a message costs a comparison for each subscriber of its cell
        whose x1 is in the message's rectangle.
    """

    def __init__(self, kind: Kind, cells: CellMap | None = None) -> None:
        self.kind = kind
        self.cells = cells or CellMap()
        self.rooms: dict[Place, Room] = {}
        #: Changes pushed to subscribers.
        self.pushed = 0

    def subscriber(self, *ends: Any, partition: str = "_", after: int = -1, limit: int = 1_000) -> Subscriber:
        """A subscriber to a range (x1, x2), or to one of each of two columns (x1, x2, low, high); not yet let in.

        `after` is the last message it knows of.
        """
        columns = [self.kind.x] if self.kind.x2 is None else [self.kind.x, self.kind.x2]
        if len(ends) != 2 * len(columns):
            raise BadOption(
                f"{len(ends)} ends do not make {'a range' if len(columns) == 1 else 'two ranges'}.",
                do="Give x1 and x2; where ranges are of two columns, the ends of the second after them.",
            )
        codes = [self.kind.code(end, columns[at // 2], upper=at % 2 == 1) for at, end in enumerate(ends)]
        for at in range(0, len(codes), 2):
            if codes[at] > codes[at + 1]:
                raise BadOption(
                    f"The range from {ends[at]!r} to {ends[at + 1]!r} is empty.",
                    do="Give the lower end first: both ends belong to it.",
                )
        low, high = codes[2:] or (LEAST, MOST)
        return Subscriber(partition, codes[0], codes[1], limit, after, low, high)

    def place_of(self, subscriber: Subscriber) -> Place:
        """The cell of a subscriber."""
        return subscriber.partition, self.cells.cell_of(subscriber.x1, subscriber.x2)

    def answers(self, count: int) -> Answers:
        """What is known of subscriptions over an empty table."""
        known = Answers(self.kind)
        known.add(count)
        return known

    def room(self, place: Place) -> Room:
        """The room of a cell, opened if need be."""
        if place not in self.rooms:
            self.rooms[place] = self.new_room()
        return self.rooms[place]

    def new_room(self) -> Room:
        """A room with nobody inside."""
        return (Room if self.kind.keys is None else PairRoom)(self.answers(0))

    def let_in(self, subscribers: Iterable[Subscriber]) -> None:
        """Let subscribers in at the beginning, before any message."""
        by_place: dict[Place, list[Subscriber]] = {}
        for one in subscribers:
            by_place.setdefault(self.place_of(one), []).append(one)
        for place, group in by_place.items():
            self.room(place).add(group, self.answers(len(group)))

    def missing(self, place: Place, frame: Frame) -> bool:
        """Whether messages before this frame have not come."""
        return frame.after > self.room(place).last

    def take(self, place: Place, frame: Frame) -> int:
        """Take a frame that nothing is missing before; how many changes were pushed."""
        pushed = self.room(place).tell(frame)
        self.pushed += pushed
        return pushed

    def adopt(self, cells: CellMap) -> list[Place]:
        """Have everybody where this division has them; the places that are no more what they were."""
        before, self.cells = self.cells, cells
        # Splits go on from what there was. If not, a broker that lost its store has begun anew: all cells are others.
        extended = cells.extends(before)
        left = [place for place in self.rooms if not extended or cells.cells[place[1], 0] >= 0]
        for place, room in [(place, self.rooms.pop(place)) for place in left]:
            homes = cells.cells_of(room.ends[0], room.ends[1])
            for cell in np.unique(homes).tolist():
                members = np.flatnonzero(homes == cell).tolist()
                who = [room.subscribers[at] for at in members]
                self.room((place[0], cell)).add(who, room.answers.take(members), room.knows.take(members))
        return left

    def everyone(self) -> Iterator[Subscriber]:
        """All subscribers."""
        for room in self.rooms.values():
            yield from room.subscribers
