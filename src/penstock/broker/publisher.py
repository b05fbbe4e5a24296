"""Publishes messages to NATS so that each is there once, whatever was killed when.

A frame says which message of its cell came before it. A publisher that starts again reads the last frame of a cell from
the broker, and goes on after it: a micro-batch that comes again finds its messages there. Frames also carry an id by
batch, cell and position, by which JetStream drops what was sent twice while an acknowledgement was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.broker.cells import CellMap, adapt
from penstock.broker.delivery import ByCell
from penstock.broker.messages import SEQ, WIDTH, Frame, Kind
from penstock.broker.pairs import KEYS
from penstock.broker.subjects import bucket_of, check_name, crowd_subject, stream_of, subject, token
from penstock.errors import BadFrame, BadOption, BrokerUnreachable
from penstock.kernels.subscriptions.groups import distinct

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.api import PubAck
    from nats.js.kv import KeyValue

I64 = npt.NDArray[np.int64]
#: Messages in a frame: NATS takes a megabyte at once.
_FRAME_ROWS = 8_000
#: Bytes that are left to a frame's headers.
_HEADERS = 4_096
#: Frames on their way before acknowledgements are waited for.
_UNDER_WAY = 256
#: Seconds for which messages are kept, at the least and at the most.
_KEPT = 1.0, 1e9
#: Seconds between two attempts to reach a broker that is down.
_PAUSE = 1.0


class Publisher:
    """The one that publishes the messages of a flow.

    Guarantees
        `publish` returns when the broker has stored every message, each once for every cell that it touches: also if it
        was killed or the broker was down meanwhile, and the same batch came again:
        `test_a_batch_that_comes_again_is_published_once`. What a broker lost of what it had stored is not passed over:
        subscribers who did not hear it are told to read again: `test_a_broker_that_lost_its_store_is_noticed`, also in
        cells of which nothing more is said: `test_a_lost_store_is_noticed_also_where_nothing_more_is_said`. So are
        those who were away for longer than messages are kept, once anything is published:
        `test_who_missed_what_is_gone_from_a_quiet_cell_is_told_to_read`.
    State and cost
        The number of the last message of each cell; one frame for each cell that a batch touches, and one without
        messages, in half of `keep_seconds`, for each that this publisher has spoken to and none touched.

    Parameters
        crowd: a cell with more subscribers than this is split, between two batches, if one gateway has more than this
            there, or none in one of the parts. Among as many a gateway finds those
            whom a message concerns in the time that a frame takes.
        keep_seconds: how long the broker keeps messages for gateways that were away; another time at a restart counts
            from then on.
        owner: who numbers the messages. Under one name there is one owner for ever: another would begin again at 0,
            and its messages would pass for those that the broker has.
    """

    def __init__(
        self,
        url: str,
        name: str,
        kind: Kind,
        *,
        crowd: int = 10_000,
        keep_seconds: float = 86_400.0,
        owner: str = "",
    ) -> None:
        given: object = keep_seconds
        if not isinstance(given, int | float) or not _KEPT[0] <= given <= _KEPT[1]:
            raise BadOption(
                f"keep_seconds={keep_seconds!r} is no time to keep messages for.",
                do="Give a number of seconds, 1 at the least: 86_400 for a day.",
            )
        self.url, self.name, self.kind = url, check_name(name), kind
        self.crowd, self.keep_seconds, self.owner = crowd, keep_seconds, owner
        self.cells = CellMap()
        self._client: Client | None = None
        self._stream: JetStreamContext
        self._bucket: KeyValue
        self._last: dict[tuple[str, str], int] = {}
        #: The last message of each cell that the broker acknowledged to us.
        self._stored: dict[tuple[str, str], int] = {}
        #: When each cell was last spoken to, and when all were looked through for those that were not.
        self._spoken: dict[tuple[str, str], float] = {}
        self._reminded = time.monotonic()
        #: Whether the stream may be new, and whether it may have lost messages of cells of which it has none.
        self._fresh = self._lost = False
        self._crowds: dict[str, tuple[int, I64]] = {}
        self._crowds_moved = False
        self._gone = asyncio.Event()
        #: Frames that the broker acknowledged, and bytes of frames that were sent.
        self.frames = 0
        self.sent = 0

    async def open(self) -> None:
        """Connect, and make the stream and the bucket if they are not there."""
        import nats
        from nats.js.api import KeyValueConfig, StreamConfig
        from nats.js.errors import BucketNotFoundError, KeyNotFoundError, NotFoundError

        self._client = await nats.connect(
            self.url,
            connect_timeout=2,
            # Also the first connection is tried that often.
            max_reconnect_attempts=1,
            reconnect_time_wait=0.2,
            allow_reconnect=False,
            error_cb=_quiet,
            closed_cb=self._note_gone,
        )
        self._gone.clear()
        self._stream = self._client.jetstream(timeout=10, publish_async_max_pending=_UNDER_WAY)
        try:
            self._bucket = await self._stream.key_value(bucket_of(self.name))
        except (BucketNotFoundError, NotFoundError):
            self._bucket = await self._stream.create_key_value(KeyValueConfig(bucket=bucket_of(self.name)))
        try:
            found = await self._stream.stream_info(stream_of(self.name))
            stored, config = found.state, found.config
            self._fresh, self._lost = stored.last_seq == 0, stored.first_seq > 1
            with contextlib.suppress(KeyNotFoundError):
                self._fresh = self._fresh and not (await self._bucket.get("begun")).value
        except NotFoundError:
            self._fresh, self._lost = True, False
            await self._bucket.put("begun", b"")
            config = StreamConfig(
                name=stream_of(self.name), subjects=[f"{self.name}.>"], allow_direct=True, **self._keeping()
            )
            await self._stream.add_stream(config)
        try:
            said = json.loads((await self._bucket.get("kind")).value or b"{}")
            if Kind.from_json(said) != self.kind:
                raise BadOption(
                    f"{self.name!r} is taken by messages of another kind.", do="Publish these under another name."
                )
        except KeyNotFoundError:
            await self._bucket.put("kind", json.dumps(self.kind.to_json()).encode())
        await self._own()
        if not math.isclose(config.max_age or 0.0, self.keep_seconds, abs_tol=1e-6):
            # It was made with another time: those who were away are reminded by ours.
            await self._stream.update_stream(config, **self._keeping())
        try:
            self.cells = CellMap.from_json((await self._bucket.get("cells")).value or b"")
        except KeyNotFoundError:
            await self._bucket.put("cells", self.cells.to_json().encode())
        with contextlib.suppress(KeyNotFoundError):
            self._lost = bool((await self._bucket.get("lost")).value) or self._lost
        await self._client.subscribe(crowd_subject(self.name), cb=self._hear_crowd)
        self._last.clear()

    def _keeping(self) -> dict[str, Any]:
        """How long the broker is to keep messages, and to know their ids."""
        return {"max_age": self.keep_seconds, "duplicate_window": min(120.0, self.keep_seconds)}

    async def _own(self) -> None:
        """Make the name ours, or refuse to publish under another's."""
        from nats.js.errors import KeyNotFoundError

        try:
            owner = ((await self._bucket.get("owner")).value or b"").decode()
        except KeyNotFoundError:
            await self._bucket.put("owner", self.owner.encode())
            return
        if owner != self.owner:
            raise BadOption(
                f"{self.name!r} is taken by the messages of another checkpoint.",
                why="Messages are numbered by the checkpoint's query: these would pass for what was published before.",
                do="Publish under another name, or start again with the checkpoint that first had this one.",
            )

    async def _note_gone(self) -> None:
        self._gone.set()

    async def close(self) -> None:
        """Let go of the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def publish(
        self,
        batch: int,
        messages: pa.Table,
        *,
        waiting: Callable[[str], None] = lambda text: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Publish the messages of a micro-batch; waits while the broker is down, and says so to `waiting`.

        The first batch makes the stream even if it has nothing to say, and notes that it has begun: a later one that
        finds no such note knows that the stream was lost.
        """
        import nats.errors

        since: float | None = None
        while messages.num_rows or self._client is None:
            try:
                if self._client is None or self._gone.is_set():
                    await self._abandon()
                    await self.open()
                if self._fresh:
                    await self._begin(batch, messages)
                if messages.num_rows:
                    await self._follow_crowds()
                    await self._publish(batch, messages)
                return
            except (OSError, TimeoutError, nats.errors.Error, BrokerUnreachable) as fault:
                await self._abandon()
                since = since or time.monotonic()
                waiting(
                    f"The broker at {self.url} does not answer ({type(fault).__name__}). Batch {batch} has waited "
                    f"{time.monotonic() - since:.0f} s for it; nothing is lost: it goes out once the broker is back."
                )
                if stopping():
                    raise BrokerUnreachable(
                        f"Stopped while the broker at {self.url} was down.",
                        do="Start again with the same checkpoint: the batch comes again.",
                    ) from fault
                await asyncio.sleep(_PAUSE)

    async def _abandon(self) -> None:
        try:
            await self.close()
        except Exception:
            self._client = None

    async def _begin(self, batch: int, messages: pa.Table) -> None:
        """Note whether a stream without messages is one that begins, or one that lost what it had."""
        if messages.num_rows and _continues(batch, messages, self.kind.partition_by.names):
            # It begins in the middle: what came before was on another stream, which is gone.
            await self._bucket.put("lost", b"yes")
            self._lost = True
            await self._remind()
        elif messages.num_rows or batch == 0:
            await self._bucket.put("begun", b"yes")
        else:
            return
        self._fresh = False

    async def _remind(self, quiet: float = 0.0) -> None:
        """Say to every cell that was not spoken to for that long which of its messages was the last: whoever did not
        hear that one reads again, also where the broker has let go of it and nothing more is said.
        """
        now, nothing = time.monotonic(), np.zeros((0, WIDTH), np.int64)
        self._reminded = now
        for partition in {partition for partition, _ in self._stored}:
            for path in (self.cells.paths[cell] for cell in self.cells.unsplit):
                last = max(self._stored.get((partition, older), -1) for older in self._lineage(path))
                if last >= 0 and now - self._spoken.get((partition, path), -math.inf) >= quiet:
                    await self._stream.publish(subject(self.name, partition, path), Frame(last, nothing).to_bytes())
                    self._spoken[partition, path] = now

    async def _publish(self, batch: int, messages: pa.Table) -> None:
        acks: list[asyncio.Future[PubAck]] = []
        messages = messages.sort_by([("slot", "ascending"), ("seq", "ascending")])
        for partition, rows in _by_partition(messages, self.kind):
            for path, received in self._parcels(partition, rows):
                last = await self._last_of(partition, path)
                new = received[received[:, SEQ] > last]
                if self._lost and last < 0 and len(new):
                    # Nobody knows whether this cell had messages: whoever is not up to date shall read again.
                    last = int(new[0, SEQ]) - 1
                for frame, data in self._frames(last, new, messages):
                    last = int(frame.rows[-1, SEQ])
                    self.sent += len(data)
                    acks.append(
                        await self._stream.publish_async(
                            subject(self.name, partition, path),
                            data,
                            headers={"Nats-Msg-Id": f"{batch}.{partition}.{path}.{frame.after}"},
                        )
                    )
                self._last[partition, path] = last
                self._spoken[partition, path] = time.monotonic()
        if acks:
            await self._acknowledged(acks)
        self._stored |= self._last
        self.frames += len(acks)
        # Well before the broker lets go of the last that it has of a cell.
        if time.monotonic() - self._reminded >= self.keep_seconds / 4:
            await self._remind(self.keep_seconds / 2)

    def _frames(self, last: int, rows: I64, messages: pa.Table) -> Iterator[tuple[Frame, bytes]]:
        """Messages as frames that the broker takes at once, with the bytes of each; `last` came before them."""
        start, many = 0, _FRAME_ROWS
        while start < len(rows):
            part, keys = rows[start : start + many], None
            if self.kind.keys is not None:
                keys = messages.select(self.kind.keys.names).take(pa.array(part[:, KEYS])).cast(self.kind.keys)
                part = part.copy()
                part[:, KEYS] = np.arange(len(part))
            frame = Frame(last, part, keys)
            data = frame.to_bytes()
            most = self._client.max_payload - _HEADERS if self._client is not None else len(data)
            if len(data) > most and len(part) == 1:
                raise BadOption(
                    f"The keys of one pair take {len(data)} bytes, and the broker at {self.url} takes {most} at once.",
                    do="Give the tables shorter keys, or the broker a larger max_payload.",
                )
            if len(data) > most:
                many = max(1, len(part) // 2)
                continue
            yield frame, data
            start, last = start + len(part), int(part[-1, SEQ])

    async def _acknowledged(self, acks: list[asyncio.Future[PubAck]]) -> None:
        """Wait until the broker has stored everything; no longer than it is there."""
        stored: asyncio.Future[Any] = asyncio.gather(*acks)
        gone: asyncio.Future[Any] = asyncio.ensure_future(self._gone.wait())
        done, _ = await asyncio.wait({stored, gone}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if stored not in done:
            stored.cancel()
            await asyncio.gather(stored, return_exceptions=True)
            raise BrokerUnreachable("The broker went away before it had stored everything.")
        await stored

    def _parcels(self, partition: str, rows: I64) -> Iterator[tuple[str, I64]]:
        """Where messages go: the last part of a subject, and the rows."""
        for parcel in ByCell(self.cells).parcels(rows):
            yield self.cells.paths[parcel.cell], parcel.rows

    def _lineage(self, path: str) -> list[str]:
        """A cell, and those it was split off, nearest first."""
        return [path[:end] for end in range(len(path), 0, -1)]

    async def _last_of(self, partition: str, path: str) -> int:
        """The last message of a cell, or of the nearest one it was split off: that the broker has, or once had."""
        from nats.js.errors import NotFoundError

        if (partition, path) not in self._last:
            found = -1
            for older in self._lineage(path):
                if older != path and (partition, older) in self._last:
                    found = self._last[partition, older]
                    break
                try:
                    found = await self._newest(subject(self.name, partition, older))
                    break
                except NotFoundError:
                    continue
            # A broker may come back without what it last acknowledged: whoever did not hear that shall read again.
            had = (self._stored.get((partition, older), -1) for older in self._lineage(path))
            self._last[partition, path] = max(found, *had)
        return self._last[partition, path]

    async def _newest(self, where: str) -> int:
        """The last message on a subject. What somebody else published there is passed over."""
        from nats.js.errors import NotFoundError

        try:
            return Frame.from_bytes((await self._stream.get_last_msg(stream_of(self.name), where)).data or b"").end
        except BadFrame:
            found, position = -1, 1
        while True:
            try:
                stored = await self._stream.get_msg(stream_of(self.name), position, where, direct=True, next=True)
            except NotFoundError:
                if found < 0:
                    raise
                return found
            with contextlib.suppress(BadFrame):
                found = Frame.from_bytes(stored.data or b"").end
            position = (stored.seq or 0) + 1

    async def _hear_crowd(self, message: Msg) -> None:
        said = json.loads(message.data)
        self._crowds[said["gateway"]] = (said["count"], np.array(said["points"], np.int64).reshape(-1, 2))
        self._crowds_moved = True

    async def _follow_crowds(self) -> None:
        """Split cells where gateways say that subscribers crowd. Gateways can know of it before any message does."""
        total = sum(count for count, _ in self._crowds.values())
        if not self._crowds_moved or not total:
            return
        self._crowds_moved = False
        samples = [points for _, points in self._crowds.values()]
        sample, whose = np.concatenate(samples), np.repeat(np.arange(len(samples)), [len(points) for points in samples])
        # Gateways send a sample of their points: each stands for as many as were left out.
        share = max(1, int(self.crowd * len(sample) / total))
        if adapt(self.cells, sample[:, 0].copy(), sample[:, 1].copy(), share, whose):
            await self._bucket.put("cells", self.cells.to_json().encode())


def _continues(batch: int, messages: pa.Table, partition_by: Sequence[str]) -> bool:
    """Whether there were messages before these. Each slot numbers its own, and not all of them are in every batch."""
    firsts = messages.group_by("slot").aggregate([("seq", "min")]).column("seq_min").to_pylist()
    return max(firsts) > 0 or (batch > 0 and len(partition_by) > 0)


def _by_partition(messages: pa.Table, kind: Kind) -> list[tuple[str, I64]]:
    """The messages of each partition, in the order in which they are given."""
    rows = kind.rows(messages)
    if not kind.partition_by.names:
        return [(token([]), rows)]
    codes, combos = distinct([messages.column(name).combine_chunks() for name in kind.partition_by.names])
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(combos)))
    parts = zip(combos, np.split(rows[order], ends[:-1]), strict=True)
    return sorted(((token(combo), part) for combo, part in parts), key=lambda part: part[0])


async def _quiet(fault: Exception) -> None:
    """Faults of the connection are raised where it is used."""
