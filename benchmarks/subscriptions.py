"""`Subscriptions` beside what one would do otherwise: tell each subscriber, relay each update, ask each query again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import streams, subscriptions_beyond
from benchmarks import subscriptions_nats as nats
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
SCHEMA = pa.schema([("key", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("at", pa.int64())])
#: Micro-batches of a Spark query that are not counted: the table is filled, workers start, code is compiled.
WARM = 6


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
    batches = 10 if quick else 40
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
            f"1,000 rows, {size.connected:,} subscribers that wait at 4 gateways, {batches} batches of {nats.UPDATES} "
            "updates over NATS on loopback, from the update to the last who is told",
            lambda: [
                Contestant(nats.SCN, lambda turn: nats.turn(turn, few, "S-CN", batches)),
                Contestant(nats.SUN, lambda turn: nats.turn(turn, few, "S-UN", batches)),
                Contestant(nats.CN, lambda turn: nats.turn(turn, few, "CN", batches)),
            ],
            ratios=(Ratio(nats.SCN, nats.SUN), Ratio(nats.SCN, nats.CN)),
            told=nats.WAITS,
        ),
        subscriptions_beyond.benchmark(quick),
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
        kernel = self.empty(agg)
        self.fill(kernel)
        return kernel

    def empty(self, agg: str = "min") -> RangeSubscriptions:
        """Without a row."""
        from penstock.kernels.subscriptions.range_kernel import Columns, RangeSubscriptions

        columns = Columns(x="x", y="y", key=("key",), order="at")
        return RangeSubscriptions(SCHEMA, columns, agg, memory=512 << 20)  # type: ignore[arg-type]

    def fill(self, kernel: RangeSubscriptions) -> pa.Table:
        """Fill an empty table; the messages."""
        from penstock.kernels.contract import RESULTS, Batch, Portion

        (rows,) = self.updates(0, self.size.rows).combine_chunks().to_batches()
        emitted = [e.rows for e in kernel.step(Batch([Portion(0, rows)]), 0) if e.channel == RESULTS]
        kernel.changes()
        return pa.Table.from_batches(emitted)

    def steps(
        self, kernel: RangeSubscriptions, count: int, batches: int, warm: int = 1
    ) -> Iterator[tuple[float, pa.Table]]:
        """Seconds and messages of steps, each with what a host stores after it, without the first `warm` ones."""
        from penstock.kernels.contract import RESULTS, Batch, Portion

        for number in range(1, batches + warm + 1):
            (rows,) = self.updates(number, count).combine_chunks().to_batches()
            began = time.process_time()
            emitted = [e.rows for e in kernel.step(Batch([Portion(0, rows)]), 0) if e.channel == RESULTS]
            kernel.changes()
            kernel.head()
            if number > warm:
                yield time.process_time() - began, pa.Table.from_batches(emitted)

    def scn(self, turn: Turn) -> Sequence[Sample]:
        """The server of S-CN: messages, and nobody known."""
        count = self.size.batch
        found = list(self.steps(self.kernel(), count, 5))
        turn.say(f"{sum(m.num_rows for _, m in found) / count / len(found):.2f} messages an update")
        return [Sample(count, seconds, details={"messages": m.num_rows / count}) for seconds, m in found]

    def sun(self, turn: Turn) -> Sequence[Sample]:
        """The same, and then all whom each message concerns."""
        kind, server = self.kind(), self._server
        samples, count = [], max(self.size.batch // 10, 100)
        for seconds, messages in self.steps(self.kernel(), count, 3):
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
        for seconds, messages in self.steps(self.kernel("sum"), count, 2):
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
        for seconds, _ in self.steps(kernel, 1, 3):
            began = time.process_time()
            ask_all(tree.nodes, x1, x2)
            samples.append(Sample(1, seconds + time.process_time() - began))
        return samples

    @cached_property
    def _server(self) -> Any:
        from penstock.broker.delivery import Unicast

        gateway = np.random.default_rng(2).integers(0, 1_000, self.size.subscriptions)
        return Unicast([str(n) for n in range(1_000)], gateway, *self.ranges)

    def kind(self) -> Any:
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
