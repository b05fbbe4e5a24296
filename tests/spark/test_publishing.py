"""From updates on Spark over NATS to subscribers: each change once, through restarts, repetitions and outages."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.broker.gateway import Subscriber
from penstock.broker.receiver import NatsGateway
from penstock.broker.server import NatsServer
from penstock.errors import BadOption
from tests.kernels.subscriptions import judge_pairs
from tests.kernels.subscriptions.judge import Table, changes, ranges
from tests.spark.conftest import FINITE, Desk
from tests.spark.test_subscriptions import updates

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.filterwarnings("ignore:Rows on channel")]

RANGES = [(float(a), float(b)) for a in range(-1, 10, 3) for b in range(a, 11, 2)]
PARTS = ["p", "q", "r"]


@pytest.fixture
def broker() -> Iterator[NatsServer]:
    with NatsServer() as running:
        yield running


def run(desk: Desk, stream: Any, broker: NatsServer) -> Any:
    flow = ps.Subscriptions(stream, x="x", y="y", key="key", order="at", partition_by="part", deleted="gone", slots=2)
    places = {"checkpoint": str(desk.folder / "ck"), "set_aside": str(desk.folder / "aside")}
    running = ps.publish(flow, to=broker.url, name="quotes", trigger=FINITE, crowd=10, **places)
    running.wait()
    return running


async def tell(gateway: NatsGateway, known: dict[tuple[Any, ...], tuple[int, list[Any]]]) -> None:
    """Subscribers come with the last message they know of, hear what is new, and go."""
    inside: dict[tuple[Any, ...], Subscriber] = {}
    for (part, *ends), (after, _) in known.items():
        inside[part, *ends] = await gateway.subscribe(*ends, partition=part, after=after)
    await asyncio.sleep(0.3)
    for who, subscriber in inside.items():
        told = subscriber.take()
        assert not any(change.reread for change in told)
        known[who] = (subscriber.after, [*known[who][1], *(change.value for change in told)])


def test_subscribers_are_told_through_spark_and_the_broker(desk: Desk, broker: NatsServer):
    """Two runs of the query; the last micro-batch of the first is repeated by the second; the gateway is new, too."""
    table = updates(300, seed=11)
    known: dict[tuple[Any, ...], tuple[int, list[Any]]] = {(p, *ends): (-1, []) for p in PARTS for ends in RANGES}

    async def listen(name: str) -> None:
        gateway = await NatsGateway(broker.url, "quotes", name).open()
        await tell(gateway, known)
        await gateway.close()

    stream = desk.stream(table.slice(0, 150), files=1)
    run(desk, stream, broker)
    asyncio.run(listen("first"))
    # As if the driver had been killed after the sink: the micro-batch was published and is not committed.
    commits = sorted((desk.folder / "ck" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    add(desk, table.slice(150), "009")
    partitions = desk.spark.conf.get("spark.sql.shuffle.partitions")
    desk.spark.conf.set("spark.sql.shuffle.partitions", "7")
    assert any("has 7 shuffle partitions" in note for note in run(desk, stream, broker).progress()["notes"])
    desk.spark.conf.set("spark.sql.shuffle.partitions", partitions)
    asyncio.run(listen("second"))
    _, aside = changes("min", table.to_pylist(), [], PARTS)
    assert sum(pq.read_metadata(file).num_rows for file in (desk.folder / "aside").glob("*.parquet")) == aside > 0
    want = wanted(table, known)
    assert {who: told for who, (_, told) in known.items()} == want
    assert sum(map(len, want.values())) > 200


Told = dict[tuple[Any, ...], list[tuple[int, Any]]]


class Process:
    """A gateway in a process of its own, killed after some changes; `told` grows by (message, answer)."""

    def __init__(self, broker: NatsServer, told: Told, lines: int) -> None:
        self._told = told
        command = [sys.executable, "-m", "tests.broker.gateway_process", broker.url, "quotes", str(lines)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        known = [[*who, changes[-1][0] if changes else -1] for who, changes in told.items()]
        assert self._process.stdin
        self._process.stdin.write(json.dumps(known).encode())
        self._process.stdin.close()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        whos = list(self._told)
        assert self._process.stdout
        for line in self._process.stdout:
            number, seq, value, reread = json.loads(line)
            assert not reread
            self._told[whos[number]].append((seq, value))

    def killed(self, seconds: float = 120) -> bool:
        """Wait for its end; whether it was SIGKILL."""
        return self._process.wait(seconds) == -signal.SIGKILL

    def close(self) -> None:
        """SIGKILL, if it lives; what it had said by then was told."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout
        self._process.stdout.close()


def test_subscribers_of_a_gateway_that_is_killed_are_told_by_the_next_one(desk: Desk, broker: NatsServer):
    """The query runs all along; gateways are killed between two changes of a micro-batch, or of what they catch up
    with, and micro-batches come while there is none.
    """
    table = updates(420, seed=21)
    told: Told = {(p, *ends): [] for p in PARTS for ends in RANGES}
    want = wanted(table, told)
    flow = ps.Subscriptions(
        desk.stream(table.slice(0, 60), files=1),
        x="x",
        y="y",
        key="key",
        order="at",
        partition_by="part",
        deleted="gone",
        slots=2,
    )
    places = {"checkpoint": str(desk.folder / "ck"), "set_aside": str(desk.folder / "aside")}
    running = ps.publish(flow, to=broker.url, name="quotes", trigger={"processingTime": "100 milliseconds"}, **places)
    try:
        for n, lines in enumerate((20, 1, 55), 1):
            with contextlib.closing(Process(broker, told, lines)) as gateway:
                add(desk, table.slice(120 * n - 60, 60), f"{2 * n:03}")
                assert gateway.killed()
            add(desk, table.slice(120 * n, 60), f"{2 * n + 1:03}")
        assert sum(map(len, told.values())) == 76
        with contextlib.closing(Process(broker, told, 1_000_000)):
            end = time.monotonic() + 120
            while sum(map(len, told.values())) < sum(map(len, want.values())) and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(0.5)
    finally:
        running.stop()
    assert {who: [value for _, value in changes] for who, changes in told.items()} == want


def wanted(table: pa.Table, subscribers: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[Any]]:
    """The answers that each is told of, one after another."""
    facts, _ = changes("min", table.to_pylist(), sorted({end for ends in RANGES for end in ends}), PARTS)
    want: dict[tuple[Any, ...], list[Any]] = {who: [] for who in subscribers}
    for _, part, x1, x2, now in facts:
        if (part, x1, x2) in want:
            want[part, x1, x2].append(now)
    return want


def add(desk: Desk, rows: pa.Table, name: str) -> None:
    desk.stream(rows, files=1, name=name)
    (desk.folder / name / "000.parquet").rename(desk.folder / "stream" / f"{name}.parquet")


def test_a_query_waits_for_a_broker_that_is_down_and_says_so(desk: Desk):
    """Here with ranges of two columns."""
    broker, table, rows = NatsServer(desk.folder / "nats"), updates(50, seed=1), Table()
    flow = ps.Subscriptions(desk.stream(table, files=1), x=("x", "at"), y="y", key="key", order="at")
    for update in table.drop("part").to_pylist():
        rows.take(update | {"gone": False})
    early = [y for _, _, y, at in rows.rows.values() if at <= 25]

    async def told() -> list[Any]:
        gateway = await NatsGateway(broker.url, "down", "g").open()
        subscriber = await gateway.subscribe(-1e9, 1e9, 0, 25)
        await gateway.close()
        return [change.value for change in subscriber.take()]

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        running = ps.publish(flow, to=broker.url, name="down", checkpoint=str(desk.folder / "ck"), trigger=FINITE)
        while not running._waiting:
            assert not running.wait(0.1)
        assert any("nothing is lost" in note for note in running.progress()["notes"])
        with broker:
            assert running.wait(120)
            assert asyncio.run(told())[-1] == min(early)
    assert any("does not answer" in str(one.message) for one in said)
    assert running.publisher.frames == 1


def test_only_subscriptions_are_published(desk: Desk):
    from penstock.plan.passthrough import PassThroughPlan
    from penstock.spark.runtime import run as run_plan
    from penstock.spark.schema import arrow_schema

    stream = desk.stream(updates(0, seed=1))
    flow = run_plan(PassThroughPlan.checked(arrow_schema(stream), key=("key",), slots=1), [stream])
    with pytest.raises(BadOption, match="Subscriptions"):
        ps.publish(flow, to="nats://127.0.0.1:1", name="x", checkpoint=str(desk.folder / "ck"))


@pytest.mark.parametrize("place", ["", "ck", "ck/messages", "."])
def test_what_is_set_aside_has_a_directory_of_its_own(desk: Desk, place: str):
    flow = ps.Subscriptions(desk.stream(updates(0, seed=1)), x="x", y="y", key="key", order="at")
    with pytest.raises(BadOption, match=r"lies in the directory|is not a path"):
        ps.publish(
            flow,
            to="nats://127.0.0.1:1",
            name="x",
            checkpoint=str(desk.folder / "ck"),
            set_aside=place and str(desk.folder / place),
        )
    assert not (desk.folder / "ck").exists()


def test_pairs_of_a_join_reach_their_subscribers(desk: Desk, broker: NatsServer):
    spans = ([0.0, 4.0, 9.0], [2.0, 7.0])
    left, right = (updates(80, seed=seed, keys=9).drop_columns(["part", "y", "note"]) for seed in (1, 2))
    whos = [pa.array(np.random.default_rng(seed).integers(0, 3, 80)) for seed in (1, 2)]
    left = left.append_column("who", whos[0])
    right = right.append_column("who", whos[1]).rename_columns({"x": "z", "key": "id"})
    other = ps.Joined(stream=desk.stream(right, files=1, name="other"), x="z", key="id", order="at", deleted="gone")
    flow = ps.Subscriptions(
        desk.stream(left, files=1), x="x", key="key", order="at", deleted="gone", join=other, on="who"
    )
    ps.publish(flow, to=broker.url, name="pairs", checkpoint=str(desk.folder / "ck"), trigger=FINITE).wait()

    async def told() -> list[Any]:
        gateway = await NatsGateway(broker.url, "pairs", "g").open()
        found = []
        for one, two in itertools.product(ranges(spans[0]), ranges(spans[1])):
            subscriber = await gateway.subscribe(*one, *two, limit=10_000)
            found += [(one, two, c.value.what, c.value.left["key"], c.value.right["id"]) for c in subscriber.take()]
        await gateway.close()
        return found

    rows = [(side, row) for side, table in enumerate((left, right)) for row in table.to_pylist()]
    facts, _ = judge_pairs.changes(sorted(rows, key=lambda one: (one[1]["at"], one[0])), *spans)
    want = Counter((one, two, what.replace("changed", "moved"), *pair[:2]) for _, one, two, what, *pair in facts)
    assert Counter(asyncio.run(told())) == want
    assert sum(want.values()) > 300
