"""`Subscriptions` beside what one would do otherwise: tell each subscriber, relay each update, ask each query again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import streams
from benchmarks.harness import Benchmark, Contestant, Limit, Ratio, Sample, Say, Turn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.kernels.subscriptions.range_kernel import RangeSubscriptions

I64 = npt.NDArray[np.int64]
SCN = "Penstock, S-CN"
SUN = "S-UN: a kd-tree of subscriptions, each told"
CN = "CN: every update to every range around it"
AGAIN = "each query asked again"
SPARK = "Penstock, Subscriptions on Spark"
NATS = "Penstock, S-CN over NATS"
SCHEMA = pa.schema([("key", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("at", pa.int64())])
#: Micro-batches of a Spark query that are not counted: the table is filled, workers start, code is compiled.
WARM = 6
#: Updates in a batch that goes over NATS.
_NATS_BATCH = 20


@dataclass(frozen=True)
class Size:
    """How much work it is."""

    rows: int
    subscriptions: int
    batch: int
    connected: int


def benchmarks(quick: bool) -> list[Benchmark]:
    """The kernel against its peers, the same on Spark, and delivery over a broker."""
    size = Size(2_000, 5_000, 1_000, 200) if quick else Size(100_000, 1_000_000, 20_000, 10_000)
    # Fewer rows, so that each update tells many.
    work, few = Work(size), Work(replace(size, rows=1_000))
    about = f"{size.rows:,} rows, {size.subscriptions:,} subscriptions, batches of {size.batch:,} updates"
    return [
        Benchmark(
            "subscriptions/kernel",
            f"{about}, processor seconds of one core, to the last message that leaves the server",
            lambda: [
                Contestant(SCN, work.scn),
                Contestant(SUN, work.sun),
                Contestant(CN, work.cn),
                Contestant(AGAIN, work.again),
            ],
            ratios=(Ratio(SCN, SUN), Ratio(SCN, CN), Ratio(SCN, AGAIN)),
            limits=(Limit(SCN, rate=100_000),),
        ),
        Benchmark(
            "subscriptions/spark",
            f"{size.rows:,} rows, micro-batches of {5 * size.batch:,} updates through Spark, messages discarded",
            lambda: [Contestant(SPARK, lambda turn: spark_turn(turn, size, 2 if quick else 6))],
            limits=(Limit(SPARK, rate=20_000),),
            setup=_with_session,
        ),
        Benchmark(
            "subscriptions/nats",
            f"1,000 rows, {size.connected:,} subscribers that wait at 4 gateways, batches of 20 updates over NATS on "
            "loopback, from the update to the last who is told",
            lambda: [Contestant(NATS, lambda turn: nats_turn(turn, few, 20 if quick else 100))],
        ),
    ]


@contextmanager
def _with_session(say: Say) -> Iterator[None]:
    say("starting Spark")
    streams.session()
    yield


class Work:
    """A table, its updates, and those who subscribe; drawn as in the chapter's Table 5.1."""

    def __init__(self, size: Size) -> None:
        self.size = size

    @cached_property
    def ranges(self) -> tuple[I64, I64]:
        """x1 and x2 of subscriptions, as codes."""
        from penstock.kernels.subscriptions.codes import encode

        rng = np.random.default_rng(1)
        middle = rng.normal(5_000, 1_500, self.size.subscriptions)
        half = np.abs(rng.normal(1_000, 1_000, self.size.subscriptions)) / 2
        return encode(pa.array(middle - half))[0], encode(pa.array(middle + half))[0]

    def updates(self, number: int, count: int) -> pa.Table:
        """A batch of updates: any row, up or down to any place; one in 200 to the bottom, and back. Batch 0 fills."""
        rng = np.random.default_rng(1_000 + number)
        keys = np.arange(count) if number == 0 else rng.integers(0, self.size.rows, count)
        spikes = np.flatnonzero(rng.random(max(count - 1, 0)) < 0.005) if number else np.zeros(0, np.int64)
        keys[spikes + 1] = keys[spikes]
        # A row stays where it is: its x follows from its key.
        x = np.modf(keys * 0.6180339887498949)[0] * 10_000
        y = rng.uniform(1, 10_000, count)
        y[spikes] = rng.random(len(spikes))
        at = number * 10_000_000 + np.arange(count)
        return pa.table([keys, x, y, at], schema=SCHEMA)

    def kernel(self, agg: str = "min") -> RangeSubscriptions:
        """With the table filled."""
        from penstock.kernels.contract import Batch, Portion
        from penstock.kernels.subscriptions.range_kernel import Columns, RangeSubscriptions

        columns = Columns(x="x", y="y", key=("key",), order="at")
        kernel = RangeSubscriptions(SCHEMA, columns, agg, memory=512 << 20)  # type: ignore[arg-type]
        (rows,) = self.updates(0, self.size.rows).combine_chunks().to_batches()
        list(kernel.step(Batch([Portion(0, rows)]), 0))
        kernel.changes()
        return kernel

    def _steps(self, kernel: RangeSubscriptions, count: int, batches: int) -> Iterator[tuple[float, pa.Table]]:
        """Seconds and messages of steps, each with what a host stores after it."""
        from penstock.kernels.contract import RESULTS, Batch, Portion

        for number in range(1, batches + 2):
            (rows,) = self.updates(number, count).combine_chunks().to_batches()
            began = time.process_time()
            emitted = [e.rows for e in kernel.step(Batch([Portion(0, rows)]), 0) if e.channel == RESULTS]
            kernel.changes()
            kernel.head()
            if number > 1:
                yield time.process_time() - began, pa.Table.from_batches(emitted)

    def scn(self, turn: Turn) -> Sequence[Sample]:
        """The server of S-CN: messages, and nobody known."""
        count = self.size.batch
        found = list(self._steps(self.kernel(), count, 5))
        turn.say(f"{sum(m.num_rows for _, m in found) / count / len(found):.2f} messages an update")
        return [Sample(count, seconds, details={"messages": m.num_rows / count}) for seconds, m in found]

    def sun(self, turn: Turn) -> Sequence[Sample]:
        """The same, and then all whom each message concerns."""
        kind, server = self._kind(), self._server
        samples, count = [], max(self.size.batch // 10, 100)
        for seconds, messages in self._steps(self.kernel(), count, 3):
            rows = kind.rows(messages)
            began = time.process_time()
            told = sum(len(parcel.rows) for parcel in server.parcels(rows))
            samples.append(Sample(count, seconds + time.process_time() - began, details={"messages": told / count}))
        return samples

    def cn(self, turn: Turn) -> Sequence[Sample]:
        """Every update, to every subscription whose range it falls into."""
        from penstock.broker.messages import Kind

        kind, server = Kind("sum", pa.float64(), pa.float64()), self._server
        samples, count = [], max(self.size.batch // 400, 20)
        for seconds, messages in self._steps(self.kernel("sum"), count, 2):
            rows = kind.rows(messages)
            began = time.process_time()
            told = len(server.find(rows))
            samples.append(Sample(count, seconds + time.process_time() - began, details={"messages": told / count}))
        return samples

    def again(self, turn: Turn) -> Sequence[Sample]:
        """Every subscription's query asked of the A2B-tree after every update."""
        kernel = self.kernel()
        x1, x2 = self.ranges
        tree, samples = kernel._engine.tree, []
        ask_all(tree.nodes, x1[:10], x2[:10])
        for seconds, _ in self._steps(kernel, 1, 3):
            began = time.process_time()
            ask_all(tree.nodes, x1, x2)
            samples.append(Sample(1, seconds + time.process_time() - began))
        return samples

    @cached_property
    def _server(self) -> Any:
        from penstock.broker.delivery import Unicast

        gateway = np.random.default_rng(2).integers(0, 1_000, self.size.subscriptions)
        return Unicast([str(n) for n in range(1_000)], gateway, *self.ranges)

    def _kind(self) -> Any:
        from penstock.broker.messages import Kind

        return Kind("min", pa.float64(), pa.float64())


def ask_all(nodes: Any, x1: I64, x2: I64) -> int:
    """The least y of every range."""
    from benchmarks.asking import ask

    return int(ask(nodes, x1, x2))


def updates_on_spark(size: Size) -> DataFrame:
    """The same kind of updates as a stream: every key in turn, so that the table is full after the first batches."""
    numbers = streams.numbers(5 * size.batch)
    return numbers.selectExpr(
        f"value % {size.rows} AS key",
        f"((value % {size.rows}) * 0.6180339887498949D % 1) * 10000 AS x",
        "CAST(pmod(xxhash64(value), 10000000) AS DOUBLE) / 1000 AS y",
        "value AS at",
    )


def spark_turn(turn: Turn, size: Size, counted: int) -> Sequence[Sample]:
    """Updates in, messages out, through a query of its own."""
    import penstock as ps

    flow = ps.Subscriptions(updates_on_spark(size), x="x", y="y", key="key", order="at", memory="1GB")
    with streams.scratch() as place:
        query = streams.discard(flow.results, place / "checkpoint")
        reports = streams.batches_of(query, WARM + counted, turn)
    return streams.samples(reports, 5 * size.batch, WARM)


def nats_turn(turn: Turn, work: Work, batches: int) -> Sequence[Sample]:
    """From the update to those who are told."""
    return asyncio.run(_over_nats(turn, work, batches))


async def _over_nats(turn: Turn, work: Work, batches: int) -> list[Sample]:
    from penstock.broker.publisher import Publisher
    from penstock.broker.receiver import NatsGateway
    from penstock.broker.server import NatsServer
    from penstock.kernels.subscriptions.codes import decode

    with NatsServer() as server:
        publisher = Publisher(server.url, "bench", work._kind(), crowd=500)
        await publisher.open()
        gateways = [await NatsGateway(server.url, "bench", f"g{n}").open() for n in range(4)]
        x1, x2 = (decode(ends[: work.size.connected], pa.float64()).to_pylist() for ends in work.ranges)
        ranges = list(zip(x1, x2, strict=True))
        waits: list[float] = []
        sent: dict[int, float] = {}

        async def listen(subscriber: Any) -> None:
            while True:
                changes = await subscriber.changes()
                now = time.perf_counter()
                waits.extend(now - sent[change.seq] for change in changes if change.seq in sent)

        turn.say(f"{len(ranges):,} subscribers")
        listeners = []
        for n, gateway in enumerate(gateways):
            subscribers = await gateway.subscribe_all(ranges[n::4])
            listeners += [asyncio.create_task(listen(one)) for one in subscribers]
        await publisher.publish(-2, work.kernel().channels["results"].empty_table())
        samples, kernel = [], work.kernel()
        await asyncio.sleep(1)
        for number, (seconds, messages) in enumerate(work._steps(kernel, _NATS_BATCH, batches)):
            began = time.perf_counter()
            told = sum(gateway.desk.pushed for gateway in gateways)
            sent |= dict.fromkeys(messages.column("seq").to_pylist(), began - seconds)
            await publisher.publish(number, messages)
            before = -1
            while (now := sum(gateway.desk.pushed for gateway in gateways)) != before:
                before = now
                await asyncio.sleep(0.005)
            took = seconds + time.perf_counter() - began - 0.005
            samples.append(Sample(_NATS_BATCH, took, details={"told": now - told}))
        for listener in listeners:
            listener.cancel()
        for each in (*gateways, publisher):
            await each.close()
    found = np.array(waits or [0.0]) * 1_000
    spread = {f"p{q}_ms": float(np.percentile(found, q)) for q in (50, 99)}
    turn.say(f"{len(waits):,} changes told, median {spread['p50_ms']:.1f} ms, 99% within {spread['p99_ms']:.1f} ms")
    samples[-1].details.update(spread | {"changes": len(waits), "cells": len(publisher.cells.unsplit)})
    return samples[len(samples) // 5 :]
