"""`join_table` beside Spark's own ways to join a stream with a table that does not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data, streams
from benchmarks.harness import Benchmark, Contestant, Ratio, Sample, Say, Turn
from benchmarks.judge import UNIFORM, Judge, Keys, orders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    import penstock as ps
    from penstock.tables import Table

MERGE = "Spark, stream-static, sort-merge"
HASH = "Spark, stream-static, shuffled hash"
BROADCAST = "Spark, foreachBatch, broadcast of the batch"
PLAIN = "Penstock, plain Parquet"
PREPARED = "Penstock, prepared table"
RATIOS = (
    Ratio(PLAIN, MERGE, 15),
    Ratio(PREPARED, MERGE, 15),
    Ratio(PLAIN, HASH),
    Ratio(PREPARED, HASH),
    Ratio(PLAIN, BROADCAST, 1.3),
    Ratio(PREPARED, BROADCAST, 2.5),
)


def benchmarks(quick: bool) -> list[Benchmark]:
    """The same join with results discarded, with results written as Parquet, and with small micro-batches."""
    size = QUICK if quick else FULL
    work, small = Work(size), Work(replace(size, batch=size.batch // 10))
    # All files of a turn are read back, and there are fewer micro-batches.
    written = Work(replace(size, turn=(min(2, size.turn[0]), min(4, size.turn[1]))))
    about = (
        f"table of {size.table:,} rows and 15 int64 columns, micro-batches of {size.batch:,} rows with uniform keys, "
        f'memory="{size.memory}", results '
    )
    return [
        Benchmark(
            "join_table/discard", about + "discarded", lambda: work.contestants(_Discard), RATIOS, (), work.setup
        ),
        Benchmark(
            "join_table/write",
            about + "written as Parquet",
            lambda: written.contestants(_Write),
            RATIOS,
            (),
            written.setup,
        ),
        Benchmark(
            "join_table/small",
            f"the same with micro-batches of {small.size.batch:,} rows, results discarded",
            lambda: small.contestants(_Discard),
            RATIOS,
            (),
            small.setup,
        ),
    ]


@dataclass(frozen=True)
class Size:
    """How much work it is."""

    table: int
    batch: int
    memory: str
    group_rows: int
    #: Micro-batches of one turn that warm up, and that are counted; the slow ones have fewer.
    turn: tuple[int, int]
    #: Bytes of a prepared table's page, if not the usual ones: what a small budget has room for.
    page: int | None = None


FULL = Size(10_000_000, 1_000_000, "64MB", 131_072, (20, 8))
QUICK = Size(500_000, 50_000, "16MB", 16_384, (1, 1))


class Work:
    """The table, plain and prepared, the stream, and the judge of results."""

    def __init__(self, size: Size, keys: Keys = UNIFORM, label: str = "") -> None:
        self.size = size
        self.keys = keys
        self.table = data.WideTable(size.table, group_rows=size.group_rows)
        self.path: Path
        self.prepared: Table | None = None
        self.no_prepared = ""
        #: Said after a contestant's name, where a benchmark has several works.
        self.label = label

    @contextmanager
    def setup(self, say: Say) -> Iterator[None]:
        """Make what is not there yet, and start the session."""
        say("looking for the table")
        self.path = self.table.get(say)
        self._prepare(say)
        say("starting Spark")
        streams.session()
        yield

    def _prepare(self, say: Say) -> None:
        import penstock as ps

        if not hasattr(ps, "prepare"):
            self.no_prepared = "penstock.prepare is not there"
            return

        def make(place: Path) -> None:
            ps.prepare(self.path, place / "table", key=self.table.key, page_bytes=page)

        page = self.size.page
        settings = asdict(self.table) | ({"page": page} if page else {})
        try:
            place = data.cached(f"prepared-{self.table.rows}", settings, make, say) / "table"
            self.prepared = ps.table(place, key=self.table.key)
        except ps.errors.PenstockError:
            # Written by another version of the layout.
            data.forget(f"prepared-{self.table.rows}", settings)
            place = data.cached(f"prepared-{self.table.rows}", settings, make, say) / "table"
            self.prepared = ps.table(place, key=self.table.key)

    @cached_property
    def judge(self) -> Judge:
        """Knows what comes out."""
        return Judge(self.table, self.path, self.size.batch, self.keys)

    def stream(self) -> DataFrame:
        """Orders."""
        return orders(streams.numbers(self.size.batch), self.table, self.keys)

    def static(self) -> DataFrame:
        """The table as Spark reads it."""
        return streams.session().read.parquet(str(self.path))

    def flow(self, prepared: bool) -> ps.Flow:
        """The join as Penstock does it."""
        import penstock as ps

        table = self.prepared if prepared else ps.table(self.path, key=self.table.key)
        flow = ps.join_table(self.stream(), table, on=self.table.key, memory=self.size.memory)
        if flow._plan.keeps_nothing:
            return flow
        # Rows of small micro-batches would wait for the scan to come round; here all are answered at once.
        return ps.join_table(
            self.stream(), table, on=self.table.key, memory=self.size.memory, pages_per_step=len(table.pages)
        )

    def contestants(self, sink: type[_Sink]) -> list[Contestant]:
        """All ways, with one kind of sink. Each warms up for some thirty seconds: a slow one has fewer batches."""
        key = self.table.key

        def merge() -> DataFrame:
            return self.stream().join(self.static().hint("merge"), key)

        def shuffled() -> DataFrame:
            # The stream's batch is the smaller side by far, so it is the one to build the hash table from.
            return self.stream().hint("shuffle_hash").join(self.static(), key)

        def broadcast(batch: DataFrame) -> DataFrame:
            from pyspark.sql import functions as fn

            return fn.broadcast(batch).join(self.static(), key)

        most_warm, most = self.size.turn

        def one(name: str, start: Callable[[_Sink], None], warm: int, counted: int, missing: str = "") -> Contestant:
            def run(turn: Turn) -> Sequence[Sample]:
                with streams.scratch() as place:
                    return sink(self, name, place, turn, min(warm, most_warm), min(counted, most)).run(start)

            return Contestant(f"{name}{self.label}", run, missing)

        return [
            one(MERGE, lambda at: at.frame(merge()), 2, 1),
            one(HASH, lambda at: at.frame(shuffled()), 2, 1),
            one(BROADCAST, lambda at: at.each(broadcast), 6, 4),
            one(PLAIN, lambda at: at.flow(self.flow(prepared=False)), 12, most),
            one(PREPARED, lambda at: at.flow(self.flow(prepared=True)), most_warm, most, self.no_prepared),
        ]


class _Sink:
    """One turn: starts a query over its results in one of three ways, and checks what came out."""

    def __init__(self, work: Work, name: str, place: Path, turn: Turn, warm: int, counted: int) -> None:
        self.work, self.name, self.place, self.turn = work, name, place, turn
        self.warm, self.count = warm, warm + counted
        self.checkpoint = place / "checkpoint"
        self.results = place / "results"
        self.query: Any = None
        self.stop: Callable[[], None] | None = None
        self.started: ps.Flow | None = None

    def run(self, start: Callable[[_Sink], None]) -> list[Sample]:
        """Start, wait for the micro-batches, check, and give their times."""
        start(self)
        reports = streams.batches_of(self.query, self.count, self.turn, self.stop)
        self.turn.say("checking results")
        self.check(reports)
        return streams.samples(reports, self.work.size.batch, self.warm)

    def each(self, joined: Callable[[DataFrame], DataFrame]) -> None:
        """Join and write each micro-batch in `foreachBatch`."""

        def write(batch: DataFrame, number: int) -> None:
            if number < self.count:
                self.write(joined(batch), number)

        stream = self.work.stream().writeStream.foreachBatch(write)
        self.query = stream.option("checkpointLocation", str(self.checkpoint)).start()

    def frame(self, results: DataFrame) -> None:
        """Start a query over a streaming DataFrame."""
        raise NotImplementedError

    def flow(self, flow: ps.Flow) -> None:
        """Start a Penstock flow."""
        raise NotImplementedError

    def write(self, results: DataFrame, number: int) -> None:
        """Write one micro-batch from inside `foreachBatch`."""
        raise NotImplementedError

    def check(self, reports: list[dict[str, Any]]) -> None:
        """Raise if results are not what they should be."""
        raise NotImplementedError


class _Discard(_Sink):
    """Every column of every result is produced, and then thrown away. Results are counted as they pass; in the first
    turn a checksum is made of them too.
    """

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.observed: dict[int, dict[str, Any]] = {}

    def frame(self, results: DataFrame) -> None:
        seen = self.work.judge.observe(results, self.turn.warming)
        self.query = streams.discard(
            results.observe("check", *(column.alias(name) for name, column in seen.items())), self.checkpoint
        )

    def flow(self, flow: ps.Flow) -> None:
        self.started = flow
        self.frame(flow.results)

    def write(self, results: DataFrame, number: int) -> None:
        from pyspark.sql import Observation

        seen = self.work.judge.observe(results, self.turn.warming)
        watch = Observation()
        results = results.observe(watch, *(column.alias(name) for name, column in seen.items()))
        results.write.format("noop").mode("append").save()
        self.observed[number] = watch.get

    def check(self, reports: list[dict[str, Any]]) -> None:
        for number, report in enumerate(reports):
            found = report.get("observedMetrics", {}).get("check") or self.observed[number]
            self.work.judge.check_batch(self.name, number, found)


class _Write(_Sink):
    """Results as Parquet files, by Spark's file sink, by a batch write in `foreachBatch`, or by `Flow.start`. The files
    are read back and compared after every turn.
    """

    def frame(self, results: DataFrame) -> None:
        writer = results.writeStream.format("parquet").option("path", str(self.results))
        self.query = writer.option("checkpointLocation", str(self.checkpoint)).start()

    def flow(self, flow: ps.Flow) -> None:
        self.started = flow
        running = flow.start(
            results=str(self.results), set_aside=str(self.place / "aside"), checkpoint=str(self.checkpoint)
        )
        self.query, self.stop = running.query, running.stop

    def write(self, results: DataFrame, number: int) -> None:
        results.write.mode("append").parquet(str(self.results))

    def check(self, reports: list[dict[str, Any]]) -> None:
        self.work.judge.check_files(self.name, self.results, len(reports))
