"""The three ways of delivery over a real broker: the same updates, the same subscribers, the same changes told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Sample, Told, Turn

if TYPE_CHECKING:
    from benchmarks.subscriptions import Work
    from penstock.broker.delivery import WayName

SCN = "Penstock, S-CN over NATS"
SUN = "S-UN over NATS: the server tells each subscriber"
CN = "CN over NATS: gateways keep every value of every range"
#: How long those who are told wait, from the update on.
WAITS = tuple(
    Told(way, f"p{share}_ms", f"{share}% of the changes told within", "ms")
    for way in (SCN, SUN, CN)
    for share in (50, 99)
)
#: Updates in a batch, and gateways.
UPDATES, _GATEWAYS = 20, 4
#: Changes that were told of the same updates by whichever way was first: all must tell as many.
_TOLD: dict[tuple[int, int], int] = {}


def turn(turn: Turn, work: Work, way: WayName, batches: int) -> Sequence[Sample]:
    """From the update to those who are told."""
    return asyncio.run(_turn(turn, work, way, batches))


async def _turn(turn: Turn, work: Work, way: WayName, batches: int) -> list[Sample]:
    from penstock.broker.server import NatsServer

    with NatsServer() as server:
        office = _Office(server.url, work, way)
        await office.open()
        try:
            turn.say(f"{way}: {work.size.connected:,} subscribers")
            return await office.run(turn, batches)
        finally:
            await office.close()


class _Office:
    """A publisher, its gateways, and a task for each subscriber that waits."""

    def __init__(self, url: str, work: Work, way: WayName) -> None:
        from penstock.broker.messages import Kind
        from penstock.broker.publisher import Publisher
        from penstock.broker.unicast import UnicastPublisher

        self.url, self.work, self.way = url, work, way
        kind = Kind("min", pa.float64(), pa.float64(), relaxed=way == "CN")
        self.publisher = (UnicastPublisher if way == "S-UN" else Publisher)(url, "bench", kind)
        self.gateways: list[Any] = []
        self.listeners: list[asyncio.Task[None]] = []
        self.waits: list[float] = []
        self.sent: dict[int, float] = {}
        self.last_told = 0.0

    async def open(self) -> None:
        """Let all subscribers in, before there is a row."""
        from penstock.broker.receiver import NatsGateway
        from penstock.broker.unicast import UnicastGateway
        from penstock.kernels.subscriptions.codes import decode

        await self.publisher.open()
        kind = UnicastGateway if self.way == "S-UN" else NatsGateway
        self.gateways = [await kind(self.url, "bench", f"g{n}").open() for n in range(_GATEWAYS)]
        x1, x2 = (decode(ends[: self.work.size.connected], pa.float64()).to_pylist() for ends in self.work.ranges)
        ranges = list(zip(x1, x2, strict=True))
        for n, gateway in enumerate(self.gateways):
            # Whoever fills the table tells everybody of it; nobody is to be asked to read again for that.
            subscribers = await gateway.subscribe_all(ranges[n::_GATEWAYS], limit=100_000)
            self.listeners += [asyncio.create_task(self._listen(one)) for one in subscribers]
        # Until the publisher has heard where subscribers crowd, and gateways have followed.
        await asyncio.sleep(1)

    async def _listen(self, subscriber: Any) -> None:
        while True:
            changes = await subscriber.changes()
            self.last_told = time.perf_counter()
            self.waits.extend(self.last_told - self.sent[change.seq] for change in changes if change.seq in self.sent)

    async def run(self, turn: Turn, batches: int) -> list[Sample]:
        """Fill the table, uncounted; then one batch after another, each until everybody was told."""
        agg = "sum" if self.way == "CN" else "min"
        kernel = self.work.empty(agg)
        await self.publisher.publish(-1, self.work.fill(kernel))
        await self._everybody()
        samples, bytes_before = [], self.publisher.sent
        for number, (seconds, messages) in enumerate(self.work.steps(kernel, UPDATES, batches, warm=0)):
            began, before = time.perf_counter(), sum(gateway.desk.pushed for gateway in self.gateways)
            self.last_told = began
            self.sent |= dict.fromkeys(messages.column("seq").to_pylist(), began - seconds)
            await self.publisher.publish(number, messages)
            told = await self._everybody() - before
            samples.append(Sample(UPDATES, seconds + self.last_told - began, results=told))
        told = sum(sample.results or 0 for sample in samples)
        if _TOLD.setdefault((id(self.work), batches), told) != told:
            raise AssertionError(f"{self.way} told {told:,} changes, and not {_TOLD[id(self.work), batches]:,}.")
        found = np.array(self.waits or [0.0]) * 1_000
        spread = {f"p{q}_ms": float(np.percentile(found, q)) for q in (50, 99)}
        sent = (self.publisher.sent - bytes_before) / (UPDATES * batches)
        turn.say(
            f"{self.way}: {len(self.waits):,} changes told, median {spread['p50_ms']:.1f} ms, 99% within "
            f"{spread['p99_ms']:.1f} ms, {sent:,.0f} bytes an update to the broker"
        )
        cells = len(self.publisher.cells.unsplit)
        samples[-1].details.update(spread | {"changes": len(self.waits), "bytes": sent, "cells": cells})
        return samples

    async def _everybody(self) -> int:
        """Wait until every gateway knows the last message of each of its cells; how many changes were told so far."""
        while any(self._behind(gateway) for gateway in self.gateways):
            await asyncio.sleep(0.002)
        # Those who were told last have their turn.
        await asyncio.sleep(0.01)
        return sum(gateway.desk.pushed for gateway in self.gateways)

    def _behind(self, gateway: Any) -> bool:
        if self.way != "S-UN" and gateway.desk.cells.paths != self.publisher.cells.paths:
            return True
        for place, room in gateway.desk.rooms.items():
            path = gateway._subject(place).split(".", 2)[2]
            if room.last < self.publisher._last.get((place[0], path), -1):
                return True
        return False

    async def close(self) -> None:
        """Everybody leaves."""
        for listener in self.listeners:
            listener.cancel()
        for each in (*self.gateways, self.publisher):
            await each.close()
