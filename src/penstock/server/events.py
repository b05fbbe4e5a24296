"""Results pushed as server-sent events: every client at its own pace, from one cache, and none that others wait for.

A client is an offset. Nothing is queued for it beyond what its connection takes: it asks for the page behind its
offset, and pages are kept, within a bound, for all who are at the same place. One who takes nothing for a while is
disconnected, and comes back with the id of the last event that it had.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.errors import PenstockError, UnknownQuery
from penstock.server.engine import Engine
from penstock.server.guard import Receive, Refused, Scope, Send, log, told
from penstock.server.limits import Limits
from penstock.server.reading import Offset, as_json
from penstock.server.serving import ABORT

# Time limits are `asyncio.timeout`: `wait_for` of Python 3.11 passes over a cancellation that comes together with what
# it waits for, as it does when a client hangs up, and the stream would go on for nobody.

#: Seconds between two signs of life on a stream without news.
HEARTBEAT = 15.0
_LOOK = 0.05
#: What an event takes in the cache beside its data, about.
_ENTRY = 500
#: Connections that are left for calls when all others follow.
_SPARE = 50


class Event(NamedTuple):
    """Encoded rows, and the offset behind them."""

    data: bytes
    next: Offset


class Hub:
    """What all who follow have in common: the cache, and the news that there is something new."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self.engine = engine
        self._limits = limits
        self._cache: OrderedDict[tuple[str, Offset | None], Event] = OrderedDict()
        self._cached = 0
        self._asked: dict[tuple[str, Offset | None], asyncio.Task[Event | None]] = {}
        self._news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.following = 0
        self.stalled = 0
        self.closing = False
        self.closed = asyncio.Event()

    def close(self) -> None:
        """End all streams: whoever follows comes back when the server does."""
        self.closing = True
        self.closed.set()

    async def rows(self, name: str, owner: str, after: Offset | None) -> AsyncIterator[bytes]:
        """Events with a query's rows from an offset on, for ever; `owner` tells it from others of the same name."""
        while not self.closing:
            seen = self.engine.generation
            event = await self._page(name, owner, after)
            if event is not None:
                after = event.next
                yield event.data
            elif seen == self.engine.generation:
                yield await self._wait(seen)

    async def progress(self, every: float) -> AsyncIterator[bytes]:
        """What `GET /progress` says, again and again."""
        while not self.closing:
            said = await run_in_threadpool(self.engine.progress)
            yield encode("progress", said)
            await asyncio.sleep(every)

    async def _wait(self, seen: int) -> bytes:
        """Wait for news since `seen`; a comment that says that the stream is alive, or nothing."""
        if self._looking is None or self._looking.done():
            self._news = asyncio.Event()  # the one before was set when nobody followed any more
            self._looking = asyncio.create_task(self._look(seen))
        try:
            async with asyncio.timeout(HEARTBEAT):
                await self._news.wait()
        except TimeoutError:
            return b": still here\n\n"
        return b""

    async def _look(self, seen: int) -> None:
        while self.following and not self.closing:
            await asyncio.sleep(_LOOK)
            if self.engine.generation != seen:
                seen = self.engine.generation
                news, self._news = self._news, asyncio.Event()
                news.set()
        self._news.set()

    async def _page(self, name: str, owner: str, after: Offset | None) -> Event | None:
        key = (owner, after)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        asked = self._asked.get(key)
        if asked is None:
            # A task of its own: who asked first may hang up while others wait for the same.
            asked = self._asked[key] = asyncio.create_task(self._make(key, name, owner, after))
            asked.add_done_callback(lambda task: task.cancelled() or task.exception())  # they may all be gone
        return await asyncio.shield(asked)

    async def _make(self, key: tuple[str, Offset | None], name: str, owner: str, after: Offset | None) -> Event | None:
        try:
            event = await run_in_threadpool(self._read, name, owner, after)
        finally:
            del self._asked[key]
        if event is not None and after is not None:  # where results begin changes when old ones go
            self._keep(key, event)
        return event

    def _read(self, name: str, owner: str, after: Offset | None) -> Event | None:
        if self.engine.owner(name) != owner:
            raise UnknownQuery(f"Query {name!r} was removed; there is another of its name now.")
        page = self.engine.results(name, after=after, limit=self._limits.event_rows)
        if not page.rows.num_rows:
            # Nothing to send; but batches that were looked through are not looked through again.
            return None if page.next == after else Event(b"", page.next)
        return Event(encode("rows", {"rows": as_json(page.rows)}, page.next.told(owner)), page.next)

    def _keep(self, key: tuple[str, Offset | None], event: Event) -> None:
        self._cache[key] = event
        self._cached += len(event.data) + _ENTRY
        while self._cached > self._limits.cached:
            _, old = self._cache.popitem(last=False)
            self._cached -= len(old.data) + _ENTRY

    def enter(self) -> None:
        """One more follows, if there is room."""
        if self.following >= max(1, self._limits.connections - _SPARE):
            raise Refused(503, "As many clients follow as may.", "Come back in a while.")
        self.following += 1


class EventStream(Response):
    """An answer that goes on; it ends when the client goes, takes nothing for too long, or the server stops."""

    media_type = "text/event-stream"

    def __init__(self, hub: Hub, events: Callable[[], AsyncIterator[bytes]], stall_seconds: float) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._hub = hub
        self._events = events
        self._stall = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until there is a reason to stop."""
        self._hub.enter()
        gone = asyncio.create_task(_gone(receive))
        closed = asyncio.create_task(self._hub.closed.wait())
        sending = asyncio.create_task(self._send(scope, send))
        try:
            await asyncio.wait({gone, closed, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._hub.following -= 1
            for task in (gone, closed, sending):
                task.cancel()
            *_, fault = await asyncio.gather(gone, closed, sending, return_exceptions=True)
            if isinstance(fault, Exception):
                log.error("a stream of events ended in an error", exc_info=fault)
        if sending.cancelled() and self._hub.closing:
            with contextlib.suppress(TimeoutError):  # one who takes nothing is cut off by the server itself
                async with asyncio.timeout(1):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for data in self._events():
                if data:
                    body = {"type": "http.response.body", "body": data, "more_body": True}
                    async with asyncio.timeout(self._stall):
                        await send(body)
        except TimeoutError:
            # What was sent waits in the system's buffers, and closing would wait for it.
            self._hub.stalled += 1
            scope.get(ABORT, lambda: None)()
            return
        except PenstockError as error:
            await send({"type": "http.response.body", "body": encode("failed", told(error)), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def encode(kind: str, said: Mapping[str, Any], id_: str | None = None) -> bytes:
    """One event. JSON has no line breaks, so the data is one line."""
    named = f"id: {id_}\n" if id_ is not None else ""
    return f"event: {kind}\n{named}data: {json.dumps(said, separators=(',', ':'))}\n\n".encode()
