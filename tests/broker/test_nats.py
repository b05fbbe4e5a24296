"""Over a real broker: every change once, with gateways and brokers killed, cells that split, batches that repeat."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker.gateway import Change, Subscriber
from penstock.broker.messages import Frame, Kind
from penstock.broker.publisher import Publisher, _continues
from penstock.broker.receiver import NatsGateway
from penstock.broker.server import NatsServer
from penstock.broker.subjects import stream_of
from penstock.broker.unicast import UnicastGateway, UnicastPublisher
from penstock.errors import BadOption, BrokerUnreachable
from tests.broker.world import World

pytestmark = pytest.mark.services
PARTS = pa.schema([("city", pa.string()), ("desk", pa.int64())])
HERE, ELSEWHERE = ("New York", 7), ("a.b", 7)


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer() as running:
        yield running


def divided(kind: Kind) -> Kind:
    """The same, with partitions."""
    return replace(kind, partition_by=PARTS)


def here(messages: pa.Table, values: tuple[object, ...] = HERE) -> pa.Table:
    """Messages of one partition."""
    for field, value in zip(PARTS, values, strict=True):
        messages = messages.append_column(field, pa.array([value] * messages.num_rows, field.type))
    return messages


async def heard(subscribers: list[Subscriber], want: list[list[object]], seconds: float = 120) -> list[list[object]]:
    """What subscribers are told, once it is as much as they should be told, and a little later."""
    got: list[list[object]] = [[] for _ in subscribers]
    until = asyncio.get_running_loop().time() + seconds
    late = False
    while not late and asyncio.get_running_loop().time() < until:
        late = sum(map(len, got)) >= sum(map(len, want))
        await asyncio.sleep(0.1)
        for mine, one in zip(got, subscribers, strict=True):
            mine += [change.value for change in one.take()]
    return got


def test_every_change_is_told_once_while_cells_split_and_newcomers_come(server: NatsServer):
    async def run() -> None:
        world = World(seed=1)
        publisher = Publisher(server.url, "split", world.kind, crowd=4)
        await publisher.open()
        gateways = [await NatsGateway(server.url, "split", f"g{n}").open() for n in range(2)]
        ranges = list(world.ranges())
        subscribers: list[Subscriber] = []
        for batch in range(6):
            share = ranges[batch::6]
            for n, ends in enumerate(share):
                subscribers.append(await gateways[n % 2].subscribe(*ends))
            await publisher.publish(batch, world.batch(40))
            if batch == 2:
                await asyncio.sleep(0.5)  # gateways say where it is crowded; the next batch finds split cells
        asked = [ends for batch in range(6) for ends in ranges[batch::6]]
        want = [world.answers(*ends) for ends in asked]
        assert await heard(subscribers, want) == want
        assert len(publisher.cells.unsplit) > 3
        assert len({place for g in gateways for place in g.desk.rooms}) > 3
        for each in (*gateways, publisher):
            await each.close()

    asyncio.run(run())


@pytest.mark.parametrize("way", ["S-CN", "CN", "S-UN"])
def test_each_way_of_delivery_tells_every_change_once_over_the_broker(server: NatsServer, way: str):
    async def run() -> None:
        world = World(seed=6, relaxed=way == "CN")
        publish, receive = (UnicastPublisher, UnicastGateway) if way == "S-UN" else (Publisher, NatsGateway)
        publisher = publish(server.url, f"way-{way}", world.kind, crowd=10)
        await publisher.open()
        gateways = [await receive(server.url, f"way-{way}", f"g{n}").open() for n in range(3)]
        ranges = list(world.ranges())
        subscribers: list[Subscriber] = []
        for n, gateway in enumerate(gateways):
            subscribers += await gateway.subscribe_all(ranges[n::3])
        await asyncio.sleep(0.3)
        for batch in range(3):
            await publisher.publish(batch, world.batch(50))
        want = [world.answers(*ends) for n in range(3) for ends in ranges[n::3]]
        assert await heard(subscribers, want) == want
        if way == "S-UN":
            with pytest.raises(BadOption, match="stay"):
                gateways[0].unsubscribe(subscribers[0])
        for each in (*gateways, publisher):
            await each.close()

    asyncio.run(run())


def test_a_cell_that_nobody_is_left_in_is_listened_to_no_longer(server: NatsServer):
    async def run() -> None:
        world = World(seed=8)
        publisher = Publisher(server.url, "left", divided(world.kind))
        await publisher.open()
        gateway = await NatsGateway(server.url, "left", "g").open()
        gone, stays = await gateway.subscribe_all([(0, 20), (3, 9)], partition=HERE)
        elsewhere = await gateway.subscribe(0, 20, partition=ELSEWHERE)
        await publisher.publish(0, here(world.batch(40)))
        known = world.answers(0, 20)
        assert await heard([gone], [known]) == [known]
        for one in (gone, elsewhere, elsewhere):
            gateway.unsubscribe(one)
        # Someone who is back at once misses nothing.
        back = await gateway.subscribe(0, 20, partition=HERE, after=gone.after, value=known[-1])
        await publisher.publish(1, here(world.batch(40)))
        more = world.answers(0, 20)[len(known) :]
        assert await heard([back, gone], [more, []]) == [more, []]
        for one in (back, stays):
            gateway.unsubscribe(one)
        async with asyncio.timeout(120):
            while gateway._heard:
                await asyncio.sleep(0.05)
        listening = [one.subject for one in gateway._client._subs.values() if one.subject.startswith("left.")]
        assert (listening, gateway.desk.rooms, len(gateway._locks)) == ([], {}, 0)
        await publisher.publish(2, here(world.batch(40)))
        again = await gateway.subscribe(0, 20, partition=HERE, after=back.after, value=(known + more)[-1])
        want = world.answers(0, 20)[len(known + more) :]
        assert await heard([again], [want]) == [want]
        for each in (gateway, publisher):
            await each.close()

    asyncio.run(run())


@pytest.mark.parametrize("two", [False, True])
def test_a_gateway_that_was_killed_catches_up(server: NatsServer, two: bool):
    async def run() -> None:
        world = World(seed=2, two=two)
        name = f"killed-{two}"
        publisher = Publisher(server.url, name, world.kind)
        await publisher.open()
        gateway = await NatsGateway(server.url, name, "g").open()
        ranges = list(world.ranges(5))
        subscribers = await gateway.subscribe_all(ranges)
        await publisher.publish(0, world.batch(50))
        await publisher._client.publish(f"{name}._.r", b"not ours")
        before = [world.answers(*ends) for ends in ranges]
        told = await heard(subscribers, before)
        assert told == before
        assert gateway.refused >= 1, "what is not a frame is counted, and left"
        await gateway.close()
        await publisher.publish(1, world.batch(50))
        # Its subscribers come back to another one, each with what it knows last.
        again = await NatsGateway(server.url, name, "g").open()
        back = [
            await again.subscribe(*ends, after=one.after, **({"value": known[-1] if known else None} if n % 2 else {}))
            for n, (ends, one, known) in enumerate(zip(ranges, subscribers, told, strict=True))
        ]
        await publisher.publish(2, world.batch(50))
        want = [world.answers(*ends)[len(known) :] for ends, known in zip(ranges, told, strict=True)]
        assert await heard(back, want) == want
        for each in (again, publisher):
            await each.close()

    asyncio.run(run())


def test_a_batch_that_comes_again_is_published_once(server: NatsServer):
    async def run() -> None:
        world = World(seed=3)
        batches = [world.batch(30), world.batch(30)]
        for first in (True, False):
            publisher = Publisher(server.url, "again", world.kind)
            await publisher.open()
            for number, messages in enumerate(batches):
                # As after a crash in the middle of the second batch: half of it is there already.
                part = messages.slice(0, messages.num_rows // 2) if first and number == 1 else messages
                await publisher.publish(number, part)
            stored = await publisher._stream.stream_info(stream_of("again"))
            frames = [
                Frame.from_bytes((await publisher._stream.get_msg(stream_of("again"), seq)).data)
                for seq in range(1, stored.state.messages + 1)
            ]
            await publisher.close()
        numbers = [int(row[0]) for frame in frames for row in frame.rows]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) == sum(messages.num_rows for messages in batches)

    asyncio.run(run())


def test_a_broker_that_is_down_is_waited_for_and_nothing_is_lost(tmp_path):
    async def run() -> None:
        broker = NatsServer(tmp_path).start()
        world = World(seed=4)
        publisher = Publisher(broker.url, "down", world.kind)
        await publisher.open()
        gateway = await NatsGateway(broker.url, "down", "g").open()
        ranges = list(world.ranges(5))
        subscribers = await gateway.subscribe_all(ranges)
        await publisher.publish(0, world.batch(40))
        broker.kill()
        said: list[str] = []
        waiting = asyncio.create_task(publisher.publish(1, world.batch(40), waiting=said.append))
        while not said:
            await asyncio.sleep(0.05)
        assert not waiting.done()
        assert "does not answer" in said[0]
        assert "Batch 1" in said[0]
        broker.start()
        await waiting
        await publisher.publish(2, world.batch(40))
        want = [world.answers(*ends) for ends in ranges]
        assert await heard(subscribers, want) == want
        broker.kill()
        with pytest.raises(BrokerUnreachable, match="same checkpoint"):
            await publisher.publish(3, world.batch(5), stopping=lambda: True)
        await publisher.close()
        await gateway.close()
        broker.stop()

    asyncio.run(run())


def test_what_the_broker_no_longer_has_is_to_be_read_again(server: NatsServer):
    async def run() -> None:
        world = World(seed=5)
        publisher = Publisher(server.url, "cut", world.kind)
        await publisher.open()
        for batch in range(3):
            await publisher.publish(batch, world.batch(30))
        await publisher._stream.purge_stream(stream_of("cut"), keep=1)
        gateway = await NatsGateway(server.url, "cut", "g").open()
        newcomer = await gateway.subscribe(0, 20)
        assert [change.reread for change in newcomer.take()] == [True]
        last = max(world.states)
        informed = await gateway.subscribe(0, 4, after=last, value=(world.answers(0, 4) or [None])[-1])
        known = len(world.answers(0, 4))
        await publisher.publish(3, world.batch(60))
        want = [world.answers(0, 4)[known:]]
        assert want[0]
        assert await heard([informed], want) == want
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_a_name_that_is_taken_by_another_kind_is_refused(server: NatsServer):
    async def run() -> None:
        kind = World().kind
        first = Publisher(server.url, "taken", kind)
        await first.open()
        await first.close()
        with pytest.raises(BadOption, match="another kind"):
            await Publisher(server.url, "taken", Kind("max", kind.x, kind.y)).open()
        with pytest.raises(BrokerUnreachable, match="Nobody publishes"):
            await NatsGateway(server.url, "nobody", "g").open(patience=0.2)

    asyncio.run(run())


@pytest.mark.parametrize("again", [False, True])
def test_a_broker_that_lost_its_store_is_noticed(tmp_path, again: bool):
    """A gateway was away for a batch that the broker then lost; the publisher lives on, or is started again, too."""

    async def run() -> None:
        broker = NatsServer(tmp_path / "store").start()
        world = World(seed=7)
        publisher = Publisher(broker.url, "lost", world.kind)
        await publisher.open()
        gateway = await NatsGateway(broker.url, "lost", "g").open()
        known = await gateway.subscribe(0, 20)
        await publisher.publish(0, world.batch(40))
        want = world.answers(0, 20)
        assert await heard([known], [want]) == [want]
        await gateway.close()
        await publisher.publish(1, world.batch(40))
        broker.kill()
        shutil.rmtree(tmp_path / "store")
        await asyncio.sleep(0.2)
        broker.start()
        if again:
            await publisher.close()
            publisher = Publisher(broker.url, "lost", world.kind)
        await publisher.publish(2, world.batch(40))
        gateway = await NatsGateway(broker.url, "lost", "g").open()
        back = await gateway.subscribe(0, 20, after=known.after, value=want[-1])
        assert [change.reread for change in back.take()] == [True]
        last = max(world.states)
        told = await gateway.subscribe(0, 4, after=last, value=world.answers(0, 4)[-1])
        before = len(world.answers(0, 4))
        await publisher.publish(3, world.batch(60))
        want = world.answers(0, 4)[before:]
        assert want
        assert await heard([told], [want]) == [want]
        await publisher.close()
        await gateway.close()
        broker.stop()

    asyncio.run(run())


@pytest.mark.parametrize("again", [False, True])
def test_a_lost_store_is_noticed_also_where_nothing_more_is_said(tmp_path, again: bool):
    """The next messages are of another partition. Only a publisher that lives on knows who missed something here."""

    async def run() -> None:
        broker = NatsServer(tmp_path / "store").start()
        world = World("count", seed=7)
        publisher = Publisher(broker.url, "still", divided(world.kind))
        await publisher.open()
        gateway = await NatsGateway(broker.url, "still", "g").open()
        inside = await gateway.subscribe(0, 20, partition=HERE)
        await publisher.publish(0, here(world.batch(40)))
        known, value = max(world.states), world.answers(0, 20)[-1]
        await publisher.publish(1, here(world.batch(40)))
        last, want = max(world.states), world.answers(0, 20)
        assert await heard([inside], [want]) == [want]
        broker.kill()
        shutil.rmtree(tmp_path / "store")
        broker.start()
        if again:
            await publisher.close()
            publisher = Publisher(broker.url, "still", divided(world.kind))
        await publisher.publish(2, here(world.batch(40), ELSEWHERE))
        other = await NatsGateway(broker.url, "still", "h").open()
        newcomer = await other.subscribe(0, 20, partition=HERE)
        assert [change.reread for change in newcomer.take()] == [True]
        if not again:
            back = await other.subscribe(0, 20, partition=HERE, after=known, value=value)
            assert [(change.seq, change.reread) for change in back.take()] == [(last, True)]
            await publisher.publish(3, here(world.batch(40)))
            async with asyncio.timeout(120):
                assert not any(change.reread for change in await inside.changes()), "it has heard everything"
        for each in (gateway, other, publisher):
            await each.close()
        broker.stop()

    asyncio.run(run())


def test_a_stream_that_begins_in_the_middle_of_any_slot_has_lost_something():
    def messages(*slots: tuple[int, int]) -> pa.Table:
        return pa.table({"slot": [slot for slot, _ in slots], "seq": [seq for _, seq in slots]})

    assert not _continues(0, messages((0, 0), (1, 0), (1, 1)), ["market"])
    assert _continues(3, messages((0, 0), (1, 7)), ["market"]), "the second slot had others before"
    assert _continues(3, messages((0, 0)), ["market"]), "a slot that says nothing now may have"
    assert not _continues(3, messages((0, 0)), []), "there is but one slot"


def test_a_flow_whose_first_batches_have_nothing_to_say_has_lost_nothing(server: NatsServer):
    """Its first message comes in a later batch, as after a lost store; nobody is told to read again."""

    async def run() -> None:
        world = World(seed=12)
        publisher = Publisher(server.url, "begins", divided(world.kind))
        await publisher.publish(0, here(world.batch(0)))
        gateway = await NatsGateway(server.url, "begins", "g").open()
        early = await gateway.subscribe(0, 20, partition=HERE)
        await publisher.close()
        publisher = Publisher(server.url, "begins", divided(world.kind))
        await publisher.publish(3, here(world.batch(30)))
        late = await gateway.subscribe(0, 20, partition=HERE)
        want = [world.answers(0, 20)] * 2
        assert await heard([early, late], want) == want
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_an_acknowledgement_that_never_came_is_let_go_of_quietly():
    async def run() -> None:
        said: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: said.append(what))
        publisher = Publisher("nats://127.0.0.1:1", "quiet", World().kind)
        publisher._gone.set()
        with pytest.raises(BrokerUnreachable):
            await publisher._acknowledged([asyncio.get_running_loop().create_future()])
        gc.collect()
        await asyncio.sleep(0)
        assert said == []

    asyncio.run(run())


def test_partitions_are_asked_for_by_their_values(server: NatsServer):
    async def run() -> None:
        world = World(seed=4)
        publisher = Publisher(server.url, "parts", divided(world.kind))
        await publisher.open()
        gateway = await NatsGateway(server.url, "parts", "g").open()
        inside, other = [await gateway.subscribe(0, 20, partition=part) for part in (HERE, ELSEWHERE)]
        for wrong, said in ((("New York", "7"), "'desk', which is of type int64"), ("New York", "divided by city")):
            with pytest.raises(BadOption, match=said):
                await gateway.subscribe(0, 20, partition=wrong)
        with pytest.raises(BadOption, match="divided by city"):
            await gateway.subscribe(0, 20)
        await publisher.publish(0, here(world.batch(40)))
        want = [world.answers(0, 20), []]
        assert await heard([inside, other], want) == want
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_a_partition_with_a_name_longer_than_a_subject_does_not_hold_up_the_others(server: NatsServer):
    async def run() -> None:
        world = World("count", seed=19)
        publisher = Publisher(server.url, "lengthy", divided(world.kind))
        names = [("é" * 5_000 + end, 7) for end in "ab"]
        for batch, name in enumerate((*names, HERE)):
            await publisher.publish(batch, here(world.batch(20), name), stopping=lambda: True)
        gateway = await NatsGateway(server.url, "lengthy", "g").open()
        told = [(await gateway.subscribe(0, 20, partition=name)).take() for name in (*names, HERE)]
        assert all(told)
        assert len({one[0].seq for one in told}) == 3, "each partition has its own messages"
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_someone_who_knows_more_than_was_published_keeps_nothing_from_others(server: NatsServer):
    async def run() -> None:
        world = World("count", seed=8)
        publisher = Publisher(server.url, "ahead", world.kind)
        await publisher.open()
        gateway = await NatsGateway(server.url, "ahead", "g").open()
        first, second = world.batch(20), world.batch(20)
        await publisher.publish(0, first)
        last = max(world.states)
        ahead = await gateway.subscribe(0, 20, after=last, value=world.answers(0, 20)[-1])
        newcomer = await gateway.subscribe(0, 20)
        await publisher.publish(1, second)
        await publisher.publish(2, world.batch(20))
        want = [world.answers(0, 20, after=last), world.answers(0, 20)]
        assert await heard([ahead, newcomer], want) == want
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_what_was_missed_and_is_nowhere_is_to_be_read_again(server: NatsServer):
    """The frame itself may be heard before the stream has it, when what came before has been let go."""

    async def run() -> None:
        world = World(seed=9)
        publisher = Publisher(server.url, "nowhere", world.kind)
        await publisher.open()
        gateway = await NatsGateway(server.url, "nowhere", "g").open()
        someone = await gateway.subscribe(0, 20)

        async def nothing(place: object, position: int) -> None:
            return None

        gateway._next = nothing  # type: ignore[method-assign, assignment]
        rows = world.kind.rows(world.batch(40))
        await gateway._take(("_", 0), Frame(5, rows[6:]))
        assert [change.reread for change in someone.take()] == [True]
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_another_checkpoint_does_not_publish_under_a_name_that_is_taken(server: NatsServer):
    """Its messages are numbered from 0 again: they would pass for what the broker has, and never be published."""

    async def run() -> None:
        first = Publisher(server.url, "owned", World().kind, owner="one")
        await first.publish(0, World(seed=1).batch(20))
        await first.close()
        with pytest.raises(BadOption, match="another checkpoint"):
            await Publisher(server.url, "owned", World().kind, owner="two").publish(0, World(seed=2).batch(10))
        again = Publisher(server.url, "owned", World().kind, owner="one")
        await again.open()
        await again.close()

    asyncio.run(run())


def test_a_gateway_follows_cells_that_begin_anew_after_the_store_is_lost(tmp_path):
    """The gateway lives on with cells that were split; the new publisher has one, or has split others."""

    async def run() -> None:
        broker = NatsServer(tmp_path / "store").start()
        world = World(seed=12)
        publisher = Publisher(broker.url, "anew", world.kind, crowd=4)
        await publisher.open()
        gateway = await NatsGateway(broker.url, "anew", "g").open()
        ranges = list(world.ranges())
        subscribers = await gateway.subscribe_all(ranges)
        await asyncio.sleep(0.5)
        await publisher.publish(0, world.batch(40))
        want = [world.answers(*ends) for ends in ranges]
        assert await heard(subscribers, want) == want
        assert len(gateway.desk.cells.unsplit) > 3
        await publisher.close()
        broker.kill()
        shutil.rmtree(tmp_path / "store")
        broker.start()
        publisher = Publisher(broker.url, "anew", world.kind, crowd=1_000_000)
        last = max(world.states)
        for batch in (1, 2):
            await publisher.publish(batch, world.batch(40))
        want = [world.answers(*ends, after=last) for ends in ranges]
        told: list[list[Change]] = [[] for _ in ranges]
        async with asyncio.timeout(120):
            # Those whose cell was silent before the loss cannot know that nothing was lost: they read again.
            while [[change.value for change in mine] for mine in told if not any(change.reread for change in mine)] != [
                answers for answers, mine in zip(want, told, strict=True) if not any(change.reread for change in mine)
            ]:
                await asyncio.sleep(0.05)
                for mine, one in zip(told, subscribers, strict=True):
                    mine += one.take()
        assert sum(map(len, told)) > 0
        assert len(gateway.desk.cells.unsplit) == 1
        await publisher.close()
        await gateway.close()
        broker.stop()

    asyncio.run(run())


@pytest.mark.parametrize("fails", ["_listen", "_read"])
def test_a_gateway_that_fails_while_it_follows_or_comes_back_tries_again(server: NatsServer, fails: str):
    """As where the broker goes away once more in the middle of it."""

    async def run() -> None:
        world, name = World(seed=13), f"again{fails}"
        publisher = Publisher(server.url, name, world.kind, crowd=4)
        await publisher.open()
        gateway = await NatsGateway(server.url, name, "g").open()
        ranges = list(world.ranges())
        subscribers = await gateway.subscribe_all(ranges)
        works = getattr(gateway, fails)
        # The client cancels what waits for an answer when its connection goes; that does not end the gateway.
        faults = [OSError("gone again"), asyncio.CancelledError(), OSError("gone again")]

        async def fail(*args: object) -> None:
            if faults and args[0] in gateway.desk.rooms:
                raise faults.pop()
            await works(*args)

        setattr(gateway, fails, fail)
        for batch in range(3):
            await asyncio.sleep(0.3)
            if batch == 1:
                # It may be connecting again at this very moment.
                await gateway._disconnect()
            await publisher.publish(batch, world.batch(20))
        want = [world.answers(*ends) for ends in ranges]
        assert await heard(subscribers, want) == want
        assert not faults
        assert len(gateway.desk.cells.unsplit) > 3
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_a_gateway_that_is_closed_while_it_connects_again_leaves_no_connection(server: NatsServer):
    """As where the client keeps the cancellation to itself, and another fault follows it or none."""

    async def run() -> None:
        publisher = Publisher(server.url, "closed", World().kind)
        await publisher.open()
        for fault in (None, OSError("gone again")):
            gateway = await NatsGateway(server.url, "closed", "g").open()
            connects, under_way = gateway._reconnect, asyncio.Event()

            async def keep(fault: OSError | None = fault, works: Any = connects, said: Any = under_way) -> None:
                said.set()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
                await works()
                if fault is not None:
                    raise fault

            gateway._reconnect = keep  # type: ignore[method-assign]
            gateway._gone.set()
            await under_way.wait()
            async with asyncio.timeout(120):
                await gateway.close()
            assert gateway._watch.done()
            assert gateway._watch.exception() is None
            assert gateway._client is None
        await publisher.close()

    asyncio.run(run())


def test_the_last_frame_is_read_if_it_was_dropped_or_could_not_be_taken(server: NatsServer):
    """No other frame follows that would say that something is missing."""

    async def run() -> None:
        world = World("count", seed=14)
        publisher = Publisher(server.url, "dropped", world.kind)
        await publisher.open()
        gateway = await NatsGateway(server.url, "dropped", "g").open()
        someone = await gateway.subscribe(0, 20)
        takes = gateway._take

        async def fail(*args: object) -> None:
            gateway._take = takes  # type: ignore[method-assign]
            raise TimeoutError

        gateway._take = fail  # type: ignore[method-assign]
        await publisher.publish(0, world.batch(40))
        want = [world.answers(0, 20)]
        assert await heard([someone], want) == want
        known = len(want[0])
        # The client has no room for another frame: what comes is dropped.
        (listening,) = gateway._heard.values()
        listening._pending_bytes_limit = 1
        await publisher.publish(1, world.batch(40))
        want = [world.answers(0, 20)[known:]]
        assert want[0]
        assert await heard([someone], want) == want
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_what_others_put_on_our_subjects_does_not_stop_a_publisher_that_starts_again(server: NatsServer):
    async def run() -> None:
        world = World(seed=15)
        for batch in range(3):
            publisher = Publisher(server.url, "others", world.kind)
            await publisher.publish(batch, world.batch(20))
            await publisher._stream.publish("others._.r", b"not ours")
            await publisher.close()
        gateway = await NatsGateway(server.url, "others", "g").open()
        newcomer = await gateway.subscribe(0, 20)
        back = await gateway.subscribe(0, 20, after=5)
        want = [world.answers(0, 20), world.answers(0, 20, after=5)]
        assert await heard([newcomer, back], want) == want
        await gateway.close()

    asyncio.run(run())


def test_a_broker_that_comes_back_without_its_newest_messages_is_noticed(server: NatsServer):
    """As after a power failure: what was acknowledged last was not on disk yet."""

    async def run() -> None:
        world = World(seed=16)
        publisher = Publisher(server.url, "power", world.kind)
        await publisher.publish(0, world.batch(20))
        known = max(world.states)
        value = world.answers(0, 20)[-1]
        await publisher.publish(1, world.batch(20))
        newest = await publisher._stream.get_last_msg(stream_of("power"), "power._.r")
        await publisher._stream.delete_msg(stream_of("power"), newest.seq)
        await publisher.close()
        await publisher.publish(2, world.batch(20))
        gateway = await NatsGateway(server.url, "power", "g").open()
        back = await gateway.subscribe(0, 20, after=known, value=value)
        assert [change.reread for change in back.take()] == [True]
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_a_newcomer_to_a_quiet_cell_whose_messages_are_gone_is_told_to_read(server: NatsServer):
    """The answer of an empty table would be wrong, and perhaps no message ever comes that says so."""

    async def run() -> None:
        world = World(seed=17)
        publisher = Publisher(server.url, "quiet", divided(world.kind))
        await publisher.publish(0, here(world.batch(20)))
        gateway = await NatsGateway(server.url, "quiet", "g").open()
        early = await gateway.subscribe(0, 20, partition=ELSEWHERE)
        await publisher._stream.purge_stream(stream_of("quiet"))
        newcomer = await gateway.subscribe(0, 20, partition=HERE)
        informed = await gateway.subscribe(
            0, 20, partition=HERE, after=max(world.states), value=world.answers(0, 20)[-1]
        )
        assert [[change.reread for change in one.take()] for one in (early, newcomer, informed)] == [[], [True], []]
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_who_missed_what_is_gone_from_a_quiet_cell_is_told_to_read(server: NatsServer):
    """The publisher says again which message of the cell was the last, while it has others to speak to."""

    async def run() -> None:
        world = World("count", seed=20)
        publisher = Publisher(server.url, "aged", divided(world.kind))
        await publisher.publish(0, here(world.batch(20)))
        known, value = max(world.states), world.answers(0, 20)[-1]
        await publisher.publish(1, here(world.batch(20)))
        last, now = max(world.states), world.answers(0, 20)[-1]
        await publisher._stream.purge_stream(stream_of("aged"))
        publisher.keep_seconds = 0.0
        await publisher.publish(2, here(world.batch(20), ELSEWHERE))
        gateway = await NatsGateway(server.url, "aged", "g").open()
        back, informed = [
            await gateway.subscribe(0, 20, partition=HERE, after=after, value=answer)
            for after, answer in ((known, value), (last, now))
        ]
        assert [(change.seq, change.reread) for change in back.take()] == [(last, True)]
        await publisher.publish(3, here(world.batch(20)))
        assert not any(change.reread for change in await informed.changes())
        await gateway.close()
        await publisher.close()

    asyncio.run(run())


def test_how_long_messages_are_kept_may_change_at_a_restart(server: NatsServer):
    """Those who were away are reminded by the time that the publisher knows: it is to be the broker's, too."""

    async def run() -> None:
        world = World(seed=22)
        for seconds in (3_600.0, 7_200.5, 60):
            publisher = Publisher(server.url, "kept", world.kind, keep_seconds=seconds, owner="us")
            await publisher.open()
            found = (await publisher._stream.stream_info(stream_of("kept"))).config
            assert (found.max_age, found.duplicate_window) == (seconds, min(seconds, 120))
            await publisher.close()
        other = Publisher(server.url, "kept", world.kind, owner="others")
        with pytest.raises(BadOption, match="another checkpoint"):
            await other.open()
        assert (await other._stream.stream_info(stream_of("kept"))).config.max_age == 60, "it is not theirs to change"
        await other.close()
        for nothing in (0, -5, float("inf"), "1 day", float("nan")):
            with pytest.raises(BadOption, match="keep_seconds="):
                Publisher(server.url, "kept", world.kind, keep_seconds=nothing)

    asyncio.run(run())


def test_catching_up_reads_what_is_missing_and_not_everything(server: NatsServer):
    async def run() -> None:
        world = World(seed=18)
        publisher = Publisher(server.url, "long", world.kind)
        for batch in range(40):
            await publisher.publish(batch, world.batch(3))
        gateway = await NatsGateway(server.url, "long", "g").open()
        asked, reads = [], gateway._next

        async def count(*args: object) -> object:
            asked.append(args)
            return await reads(*args)  # type: ignore[arg-type]

        gateway._next = count  # type: ignore[method-assign, assignment]
        after = sorted(world.states)[-3]
        known = world.answers(0, 20)[: -len(world.answers(0, 20, after=after)) or None]
        back = await gateway.subscribe(0, 20, after=after, value=known[-1])
        assert await heard([back], [world.answers(0, 20, after=after)]) == [world.answers(0, 20, after=after)]
        assert len(asked) < 12
        await gateway.close()
        await publisher.close()

    asyncio.run(run())
