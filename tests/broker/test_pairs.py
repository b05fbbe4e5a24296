"""Subscribers of a join: every pair that came, went or moved is told once to those in whose ranges it was or is."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker.cells import CellMap, adapt
from penstock.broker.delivery import ByCell
from penstock.broker.gateway import Gateway, Subscriber
from penstock.broker.messages import Frame, Kind
from penstock.broker.pairs import KEYS
from penstock.broker.publisher import Publisher
from penstock.broker.receiver import NatsGateway
from penstock.broker.server import NatsServer
from penstock.errors import BadFrame, BadOption
from penstock.kernels.contract import RESULTS
from penstock.testing import Host
from tests.kernels.subscriptions.judge import ranges
from tests.kernels.subscriptions.judge_pairs import changes
from tests.kernels.subscriptions.test_select_join import kernel, updates

POINTS = ([0, 2, 4], [1.0, 3.0])
ASKED = [(*one, *other) for one, other in itertools.product(ranges(POINTS[0]), ranges(POINTS[1]))]
NAMES = ["left_key", "right_id"]


class World:
    """Two tables that change, what is said of it in batches, and what each subscriber should have been told so far."""

    def __init__(self) -> None:
        self.host, self.said = Host(kernel), []
        self.kind = Kind.of_pairs(self.host.kernel.channels[RESULTS], NAMES)

    def batch(self) -> pa.Table:
        number = len(self.said)
        self.said.append(updates(number % 2, 30, 30 * number, 15, 6, 0.2, number))
        emitted = self.host.step(self.said[-1])
        schema = self.host.kernel.channels[RESULTS]
        return pa.Table.from_batches([one.rows for one in emitted if one.channel == RESULTS], schema=schema)

    def facts(self) -> list[Counter[Any]]:
        rows = [(side, row) for side, part in self.said for row in part.to_pylist()]
        found: dict[Any, Counter[Any]] = {ends: Counter() for ends in ASKED}
        for _, (a1, a2), (c1, c2), what, key, number, _ in changes(rows, *POINTS)[0]:
            found[a1, a2, c1, c2][what.replace("changed", "moved"), key, number] += 1
        return list(found.values())


def told(subscribers: list[Subscriber]) -> list[Counter[Any]]:
    found = []
    for (a1, a2, c1, c2), one in zip(ASKED, subscribers, strict=True):
        heard: Counter[Any] = Counter()
        for change in one.take():
            assert not change.reread
            pair = change.value
            inside = [p is not None and a1 <= p[0] <= a2 and c1 <= p[1] <= c2 for p in (pair.before, pair.after)]
            assert pair.what == {(True, False): "lost", (False, True): "gained", (True, True): "moved"}[tuple(inside)]
            heard[pair.what, pair.left["key"], pair.right["id"]] += 1
        found.append(heard)
    return found


def test_each_pair_is_told_once_while_cells_are_split():
    world, cells = World(), CellMap()
    gateway = Gateway(world.kind, cells)
    subscribers = [gateway.subscriber(*ends, limit=10_000) for ends in ASKED]
    gateway.let_in(subscribers)
    x1, x2 = (np.array([getattr(one, end) for one in subscribers]) for end in ("x1", "x2"))
    for crowd in (1_000, 1_000, 9, 9, 4, 4):
        cells = CellMap.from_json(gateway.cells.to_json())
        adapt(cells, x1, x2, crowd)
        gateway.adopt(cells)
        messages = world.batch()
        keys = messages.select(NAMES)
        for parcel in ByCell(cells).parcels(world.kind.rows(messages)):
            rows = parcel.rows.copy()
            frame = Frame(-1, rows, keys.take(pa.array(rows[:, KEYS])))
            rows[:, KEYS] = np.arange(len(rows))
            for _ in range(2):
                gateway.take(("_", parcel.cell), Frame.from_bytes(frame.to_bytes()))
    assert len(gateway.rooms) > 3
    assert told(subscribers) == world.facts()
    assert sum(map(len, world.facts())) > 500


def test_a_kind_of_pairs_is_told_and_read_back_and_a_cut_frame_is_refused():
    kind = World().kind
    assert Kind.from_json(kind.to_json()) == kind
    good = Frame(3, np.zeros((2, 12), np.int64), pa.table({"left_key": ["a", "b"], "right_id": [1, 2]})).to_bytes()
    again = Frame.from_bytes(good)
    assert again.keys is not None
    assert again.keys.column("left_key").to_pylist() == ["a", "b"]
    for bad in (good[:60], good[:-30], good[:12] + b"\x03" + good[13:], good[:12] + b"\xff" * 8 + good[20:]):
        with pytest.raises(BadFrame):
            Frame.from_bytes(bad)


@pytest.mark.services
def test_each_pair_is_told_once_over_the_broker():
    """Cells split, a batch comes again after half of it was published, subscribers move to another gateway."""

    async def run(url: str) -> None:
        world = World()
        publisher = Publisher(url, "pairs", world.kind, crowd=6)
        await publisher.open()
        first = await NatsGateway(url, "pairs", "one").open()
        subscribers = await first.subscribe_all(ASKED, limit=10_000)
        await asyncio.sleep(0.5)
        for number in range(2):
            await publisher.publish(number, world.batch())
        half = world.batch()
        await publisher.publish(2, half.slice(0, half.num_rows // 2))
        await publisher.close()
        await asyncio.sleep(0.5)
        await first.close()
        before = told(subscribers)
        publisher = Publisher(url, "pairs", world.kind, crowd=6)
        await publisher.open()
        await publisher.publish(2, half)
        second = await NatsGateway(url, "pairs", "two").open()
        back = [
            await second.subscribe(*ends, after=one.after, limit=10_000)
            for ends, one in zip(ASKED, subscribers, strict=True)
        ]
        for number in (3, 4):
            await publisher.publish(number, world.batch())
        want, late = world.facts(), False
        async with asyncio.timeout(120):
            while not late:  # as much as they should be told, and what comes a little later
                late = sum(map(Counter.total, before)) >= sum(map(Counter.total, want))
                await asyncio.sleep(0.5)
                before = [one + other for one, other in zip(before, told(back), strict=True)]
        assert before == want
        assert len(publisher.cells.unsplit) > 3
        with pytest.raises(BadOption, match="no answer to know"):
            await second.subscribe(*ASKED[0], value=3)
        long = half.slice(0, 1).set_column(half.schema.get_field_index("left_key"), "left_key", [["x" * (1 << 21)]])
        seq = long.schema.get_field_index("seq")
        with pytest.raises(BadOption, match="shorter keys"):
            await publisher.publish(9, long.set_column(seq, "seq", pa.array([10**6])))
        for each in (second, publisher):
            await each.close()

    with NatsServer() as server:
        asyncio.run(run(server.url))
