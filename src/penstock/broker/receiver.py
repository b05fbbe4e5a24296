"""A gateway on NATS: listens to the cells of its subscribers, and reads from the stream what it did not hear.

Live frames come as plain messages, of the cells alone where someone is. Each says which message of its cell came
before; where that one was not heard, because the gateway was away or too slow, it is read from the stream. So a gateway
needs no memory of its own: subscribers who come back say the last message they know of.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from penstock.broker.cells import CellMap
from penstock.broker.gateway import Change, Gateway, Place, Room, Subscriber
from penstock.broker.messages import Frame, Kind
from penstock.broker.subjects import bucket_of, check_name, crowd_subject, stream_of, subject
from penstock.errors import BadFrame, BrokerUnreachable

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

#: Points that a gateway tells the publisher of, at the most.
_SAMPLE = 2_000
#: Seconds between two looks at the cells and at the crowd.
_LOOK = 0.2
#: Seconds after which the crowd is told again.
_REPEAT = 10.0
#: The answer of someone who knows none.
UNKNOWN = object()


class NatsGateway:
    """Holds subscribers on this side of a broker.

    Guarantees
        Subscribers are told of every change after the message they know, once; also if this gateway, or the broker, was
        away meanwhile: `test_a_gateway_that_was_killed_catches_up`. If the broker no longer has what they missed, they
        are told to read again.
    State and cost
        That of `Gateway`, and one subscription of the broker for each cell with a subscriber.
    """

    def __init__(self, url: str, name: str, gateway: str) -> None:
        self.url, self.name, self.id = url, check_name(name), check_name(gateway)
        self.desk: Gateway
        self._client: Client | None = None
        self._stream: JetStreamContext
        self._bucket: KeyValue
        self._heard: dict[Place, Subscription] = {}
        #: Those that someone has or waits for.
        self._locks: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()
        #: Held by whoever needs the division of the plane to stay as it is.
        self._division = asyncio.Lock()
        self._cells_seen = 0
        self._told = (0, 0.0)
        self._watch: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        #: Cells with someone who may have to be told what others there have heard.
        self._behind: set[Place] = set()
        #: Messages on our subjects that were no frames.
        self.refused = 0

    async def open(self, patience: float = 30.0) -> NatsGateway:
        """Connect, and wait for the publisher to have said what its messages are."""
        from nats.js.errors import BucketNotFoundError, KeyNotFoundError, NotFoundError

        await self._connect()
        until = asyncio.get_running_loop().time() + patience
        while True:
            try:
                self._bucket = await self._stream.key_value(bucket_of(self.name))
                kind = Kind.from_json(json.loads((await self._bucket.get("kind")).value or b"{}"))
                cells = await self._bucket.get("cells")
                break
            except (BucketNotFoundError, KeyNotFoundError, NotFoundError):
                if asyncio.get_running_loop().time() > until:
                    await self.close()
                    raise BrokerUnreachable(
                        f"Nobody publishes messages named {self.name!r} on {self.url}.", do="Start the publisher first."
                    ) from None
                await asyncio.sleep(0.1)
        self.desk = Gateway(kind, CellMap.from_json(cells.value or b""))
        self._cells_seen = cells.revision or 0
        self._watch = asyncio.create_task(self._look())
        return self

    async def close(self) -> None:
        """Leave; subscribers stay as they are, and may go to another gateway."""
        if self._watch is not None:
            self._watch.cancel()
            # It may be connecting again at this very moment.
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._disconnect()

    async def _connect(self) -> None:
        import nats

        async def quiet(fault: Exception) -> None:
            """The connection is made again. What was dropped, or not taken, is read: no frame may follow it."""
            self._behind.update(self._heard)

        async def gone() -> None:
            self._gone.set()

        # Connected again by ourselves: the client's own attempts cannot be ended for certain.
        self._client = await nats.connect(
            self.url,
            connect_timeout=2,
            max_reconnect_attempts=1,
            reconnect_time_wait=0.2,
            allow_reconnect=False,
            error_cb=quiet,
            closed_cb=gone,
        )
        self._gone.clear()
        self._stream = self._client.jetstream(timeout=10)

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()

    async def _reconnect(self) -> None:
        await self._disconnect()
        await self._connect()
        self._bucket = await self._stream.key_value(bucket_of(self.name))
        self._heard.clear()
        # The cells are asked for before anything is listened to: a broker that lost its store may have others.
        self._cells_seen = 0

    async def subscribe(
        self, *ends: Any, partition: Any = (), after: int = -1, value: Any = UNKNOWN, limit: int = 1_000
    ) -> Subscriber:
        """Let someone in who asks for a range (x1, x2), or for one of each of two columns (x1, x2, low, high).

        `partition` is the value of `partition_by`, a tuple of them where that names several columns. `after` is the
        last message it knows of, `value` its answer then (see `Answers.set`).

        Without a value all messages of its cell are read, and the changes after `after` are told.
        """
        return (await self.subscribe_all([ends], partition=partition, after=after, value=value, limit=limit))[0]

    async def subscribe_all(
        self,
        ranges: Sequence[tuple[Any, ...]],
        *,
        partition: Any = (),
        after: int = -1,
        value: Any = UNKNOWN,
        limit: int = 1_000,
    ) -> list[Subscriber]:
        """Let many in who know equally much."""
        there = self.desk.kind.partition(partition)
        new = [self.desk.subscriber(*ends, partition=there, after=after, limit=limit) for ends in ranges]
        async with self._division:
            by_place: dict[Place, list[Subscriber]] = {}
            for one in new:
                by_place.setdefault(self.desk.place_of(one), []).append(one)
            for place, group in by_place.items():
                async with self._lock(place):
                    await self._listen(place)
                    await self._admit(place, group, after, value)
        return new

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Let one go: it is told nothing more. A cell that nobody is left in is soon listened to no longer."""
        if (room := self.desk.rooms.get(self.desk.place_of(subscriber))) is not None:
            room.remove(subscriber)

    async def _admit(self, place: Place, group: list[Subscriber], after: int, value: Any) -> None:
        """Bring newcomers up to what their cell knows, then let them in. The cell is locked."""
        known, entry = self.desk.answers(len(group)), self.desk.new_room()
        if value is not UNKNOWN or self.desk.kind.keys is not None:
            entry.last = after
        if value is not UNKNOWN:
            for at in range(len(group)):
                known.set(at, value)
        entry.add(group, known, entry.last)
        await self._read(place, entry)
        if entry.last < 0 and await self._has_let_go():
            # The broker has nothing of this cell: perhaps it let go of all that the cell had.
            for one in group:
                one.push(Change(one.after + 1, None, reread=True))
            return
        room = self.desk.room(place)
        if room.subscribers and entry.last < room.last:
            # Those inside heard what the stream did not have yet; or one of them knows more than was ever published.
            self._behind.add(place)
        room.add(entry.subscribers, entry.answers, entry.last)

    async def _has_let_go(self) -> bool:
        """Whether the broker had messages that it has no longer."""
        from nats.js.errors import KeyNotFoundError

        if (await self._stream.stream_info(stream_of(self.name))).state.first_seq > 1:
            return True
        try:
            return bool((await self._bucket.get("lost")).value)
        except KeyNotFoundError:
            return False

    async def _listen(self, place: Place) -> None:
        if place in self._heard or self._client is None:
            return

        async def hear(message: Msg) -> None:
            async with self._lock(place):
                ours = place in self._heard and message.subject == self._subject(place)
                if ours and (frame := self._frame(message.data)) is not None:
                    await self._take(place, frame)

        self._heard[place] = await self._client.subscribe(self._subject(place), cb=hear)
        await self._client.flush()

    async def _leave_empty(self) -> None:
        """Stop listening to cells that nobody is left in: those inside went, or were told to read again."""
        async with self._division:
            for place in [place for place, room in self.desk.rooms.items() if not room.subscribers]:
                async with self._lock(place):
                    del self.desk.rooms[place]
                    if (heard := self._heard.pop(place, None)) is not None:
                        await heard.unsubscribe()

    async def _take(self, place: Place, frame: Frame) -> None:
        if self.desk.missing(place, frame):
            await self._read(place, self.desk.room(place))
        if self.desk.missing(place, frame):
            self._have_read_again(self.desk.room(place), frame)
        self.desk.take(place, frame)

    async def _catch_up(self, place: Place) -> None:
        async with self._lock(place):
            if place in self.desk.rooms:
                await self._read(place, self.desk.rooms[place])

    async def _read(self, place: Place, room: Room) -> None:
        """Tell a room what the stream has of its cell, and of those it was split off, beyond what the room knows."""
        for cell in self.desk.cells.lineage(place[1]):
            position = await self._begin((place[0], cell), room.last)
            while position and (stored := await self._next((place[0], cell), position)) is not None:
                position = stored[0] + 1
                frame = self._frame(stored[1])
                if frame is None:
                    continue
                if frame.after > room.last:
                    self._have_read_again(room, frame)
                self.desk.pushed += room.tell(frame)

    async def _begin(self, place: Place, last: int) -> int:
        """Where in the stream a cell's messages after number `last` begin, found by halving; 0 if there is none."""
        if last < 0:
            return 1
        newest = await self._next(place, None)
        if newest is None:
            return 0
        if (end := _end(newest[1])) is None:
            # Not ours: everything is looked at.
            return 1
        low, high = 1, newest[0] if end > last else 0
        while low < high:
            middle = (low + high) // 2
            found = await self._next(place, middle)
            while found is not None and found[0] < high and (end := _end(found[1])) is None:
                found = await self._next(place, found[0] + 1)
            if found is not None and found[0] < high and end is not None and end <= last:
                low = found[0] + 1
            else:
                high = middle
        return min(low, high)

    def _frame(self, data: bytes) -> Frame | None:
        """What came as a frame; what is none is counted, and left."""
        try:
            return Frame.from_bytes(data)
        except BadFrame:
            self.refused += 1
            return None

    def _have_read_again(self, room: Room, frame: Frame) -> None:
        """Messages before a frame are gone from the broker: those inside who need them read again, and come back."""
        behind = [room.subscribers[at] for at in np.flatnonzero(room.knows < frame.after)]
        for one in behind:
            one.push(Change(max(frame.begin, one.after + 1), None, reread=True))
        room.remove(*behind)
        room.last = frame.begin

    async def _next(self, place: Place, position: int | None) -> tuple[int, bytes] | None:
        """What the stream has of a cell from a position on, the first of it; without a position, the newest."""
        from nats.js.errors import NotFoundError

        try:
            found = await self._stream.get_msg(
                stream_of(self.name),
                seq=position,
                subject=self._subject(place),
                next=position is not None,
                direct=True,
            )
        except NotFoundError:
            return None
        return int(found.seq or 0), found.data or b""

    async def _look(self) -> None:
        """Follow splits of cells, leave those where nobody is, and tell the publisher where subscribers crowd."""
        task = asyncio.current_task()
        # The client may keep a cancellation to itself.
        while task is not None and not task.cancelling():
            await asyncio.sleep(_LOOK)
            try:
                if self._gone.is_set():
                    await self._reconnect()
                entry = await self._bucket.get("cells")
                if entry.revision != self._cells_seen:
                    await self._follow(CellMap.from_json(entry.value or b""))
                    self._cells_seen = entry.revision or 0
                for place in list(self._behind):
                    self._behind.discard(place)
                    await self._catch_up(place)
                await self._leave_empty()
                await self._tell_crowd()
            except (Exception, asyncio.CancelledError):
                # The broker is away, or went while it was asked, which may cancel what waited for its answer:
                # everything is tried again.
                self._gone.set()

    async def _follow(self, cells: CellMap) -> None:
        """Go where the division of the plane now has everybody, and listen there."""
        async with self._division:
            async with contextlib.AsyncExitStack() as nobody_reads:
                for place in list(self.desk.rooms):
                    await nobody_reads.enter_async_context(self._lock(place))
                left = [self._heard.pop(place, None) for place in self.desk.adopt(cells)]
            for place in [place for place in self.desk.rooms if place not in self._heard]:
                async with self._lock(place):
                    await self._listen(place)
                    # From here on everything is heard; what was said before, also to cells it was split off, is read.
                    await self._read(place, self.desk.room(place))
            for heard in left:
                if heard is not None:
                    await heard.unsubscribe()

    async def _tell_crowd(self) -> None:
        everyone, now = list(self.desk.everyone()), asyncio.get_running_loop().time()
        # Again from time to time: the publisher may be another by now.
        if self._client is None or (len(everyone) == self._told[0] and now < self._told[1] + _REPEAT):
            return
        points = [[one.x1, one.x2] for one in everyone[:: max(1, len(everyone) // _SAMPLE)]]
        said = {"gateway": self.id, "count": len(everyone), "points": points}
        await self._client.publish(crowd_subject(self.name), json.dumps(said).encode())
        self._told = (len(everyone), now)

    def _lock(self, place: Place) -> asyncio.Lock:
        return self._locks.setdefault(place, asyncio.Lock())

    def _subject(self, place: Place) -> str:
        return subject(self.name, place[0], self.desk.cells.paths[place[1]])


def _end(data: bytes) -> int | None:
    """The last message of a frame; None of what is no frame."""
    try:
        return Frame.from_bytes(data).end
    except BadFrame:
        return None
