"""S-UN over NATS, for comparison: the publisher knows every subscriber, and each gateway has a subject of its own.

A gateway asks the publisher to take its subscribers in before it lets them in. They are told from then on; what was
before, they do not learn. A publisher that starts again knows nobody until gateways have asked again: a server that
keeps its subscribers safe is more than a yardstick needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from penstock.broker.delivery import Unicast
from penstock.broker.gateway import Room, Subscriber
from penstock.broker.messages import INNER_LEFT, SEQ, Frame
from penstock.broker.publisher import Publisher
from penstock.broker.receiver import UNKNOWN, NatsGateway
from penstock.errors import BadOption

if TYPE_CHECKING:
    from nats.aio.msg import Msg

I64 = npt.NDArray[np.int64]


def join_subject(name: str) -> str:
    """Where gateways ask for their subscribers to be taken in."""
    return f"penstock-join.{name}"


class UnicastPublisher(Publisher):
    """Publishes to each gateway what its subscribers are told, one message a subscriber."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.kind.x2 is not None:
            raise BadOption("S-UN has ranges of one column alone.", do="Publish ranges of two with Publisher.")
        self._known: dict[str, list[tuple[int, int, int, int]]] = {}
        self._gateways: list[str] = []
        self._index: dict[str, tuple[Unicast, I64]] = {}

    async def open(self) -> None:
        """Connect, and listen for gateways that ask."""
        await super().open()
        if self._client is not None:
            await self._client.subscribe(join_subject(self.name), cb=self._take_in)

    async def _take_in(self, message: Msg) -> None:
        said = json.loads(message.data)
        if said["gateway"] not in self._gateways:
            self._gateways.append(said["gateway"])
        gateway = self._gateways.index(said["gateway"])
        self._known.setdefault(said["partition"], []).extend((gateway, *one) for one in said["subscribers"])
        self._index.pop(said["partition"], None)
        await message.respond(b"in")

    def _parcels(self, partition: str, rows: I64) -> Iterator[tuple[str, I64]]:
        if partition not in self._known:
            return
        if partition not in self._index:
            known = np.array(self._known[partition], np.int64)
            server = Unicast(self._gateways, known[:, 0].copy(), known[:, 2].copy(), known[:, 3].copy())
            self._index[partition] = server, known[:, 1].copy()
        server, numbers = self._index[partition]
        for parcel in server.parcels(rows):
            told = parcel.rows.copy()
            # Whom it is for, in the place of a rectangle that nobody needs to look at.
            told[:, INNER_LEFT] = numbers[parcel.subscribers]
            yield f"g-{parcel.gateway}", told[np.argsort(told[:, SEQ], kind="stable")]

    def _lineage(self, path: str) -> list[str]:
        return [path]


class NumberedRoom(Room):
    """Subscribers who are told by number."""

    def tell(self, frame: Frame) -> int:
        """Apply messages that are not known yet."""
        rows = frame.rows[frame.rows[:, SEQ] > self.last]
        if not len(rows):
            return 0
        return self.apply(rows, np.stack([np.arange(len(rows)), rows[:, INNER_LEFT]], axis=1))


class UnicastGateway(NatsGateway):
    """A gateway whose subscribers the publisher knows."""

    async def subscribe_all(
        self,
        ranges: Sequence[tuple[Any, ...]],
        *,
        partition: Any = (),
        after: int = -1,
        value: Any = UNKNOWN,
        limit: int = 1_000,
    ) -> list[Subscriber]:
        """Let many in; they are told from now on."""
        there = self.desk.kind.partition(partition)
        new = [self.desk.subscriber(*ends, partition=there, after=after, limit=limit) for ends in ranges]
        place = (there, 0)
        async with self._lock(place):
            room = self.desk.rooms.setdefault(place, NumberedRoom(self.desk.answers(0)))
            await self._listen(place)
            numbered = [[n, one.x1, one.x2] for n, one in enumerate(new, start=len(room.subscribers))]
            answers = self.desk.answers(len(new))
            if value is not UNKNOWN:
                for at in range(len(new)):
                    answers.set(at, value)
            room.add(new, answers, room.last)
            if self._client is not None:
                said = {"gateway": self.id, "partition": there, "subscribers": numbered}
                await self._client.request(join_subject(self.name), json.dumps(said).encode(), timeout=10)
        return new

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Refused: the publisher knows subscribers by their number, which those who came later would lose."""
        raise BadOption("Subscribers of S-UN stay.", do="Use NatsGateway where they come and go.")

    async def _look(self) -> None:
        """There are no cells to follow."""

    def _subject(self, place: tuple[str, int]) -> str:
        return f"{self.name}.{place[0]}.g-{self.id}"
