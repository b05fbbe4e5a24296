"""Standing queries by every strategy, beside what people would use instead: range joins of each batch with the queries.

The queries are *clustered*: 30 places that many of them look at, each with its own extent and its own range on the
other side, which one event in ten falls into. However many there are, an event is answered by some twelve to fifteen of
them (by three of a hundred): what grows is what is registered, not what is affected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import streams
from benchmarks.harness import Benchmark, Contestant, Limit, Ratio, Sample, Say, Turn

if TYPE_CHECKING:
    from penstock.kernels.standing.query_set import QuerySet
    from penstock.kernels.standing.router import Router
    from penstock.kernels.standing.search import Rows

DOMAIN = 10_000.0
PLACES = 30
PARTNERS = 20
STRATEGIES = ("dynamic", "ssi", "hotspot", "select_first", "join_first", "join_first_scan", "naive")
#: As fast as another, but for what the turns of one and the same strategy differ by.
_AS_FAST = 0.97
DUCKDB, POLARS, SPARK = "DuckDB, range join", "Polars, join_where", "Spark, broadcast range join"


def ours(strategy: str) -> str:
    """The name of a contestant."""
    return f"Penstock, {strategy}"


def benchmarks(quick: bool) -> list[Benchmark]:
    """Rates over the number of queries, a mixed load, loading, changing, and all of it through Spark."""
    sizes = (100, 1_000) if quick else (100, 1_000, 10_000, 100_000, 1_000_000)
    held = 10_000 if quick else 100_000
    found = [_over(size, held, goal=20.0 if size == 1_000_000 else None) for size in sizes]
    many = 20_000 if quick else 1_000_000
    found.append(_growth((1_000, many), held))
    found += [_mixed(places, goal, quick) for places, goal in ((PLACES, 1.0), (250, 1.3))]
    upkeep = Upkeep(many)
    found.append(
        Benchmark(
            "standing/load",
            f"{many:,} queries from Parquet until the first row can be answered",
            lambda: [Contestant(ours("load"), upkeep.load)],
            limits=(Limit(ours("load"), seconds=10.0),),
            setup=upkeep.setup,
        )
    )
    found.append(
        Benchmark(
            "standing/change",
            f"one change to {many:,} queries, amortised over 20 micro-batches of 1,000, indexes laid out; per change",
            lambda: [
                Contestant(ours(f"change, {name}"), lambda turn, n=name: upkeep.change(turn, n))
                for name in ("ssi", "dynamic")
            ],
            limits=(Limit(ours("change, ssi"), seconds=1e-3), Limit(ours("change, dynamic"), seconds=1e-3)),
            setup=upkeep.setup,
        )
    )
    return [*found, *_through_spark(quick)]


def _over(size: int, held: int, goal: float | None) -> Benchmark:
    work = Clustered(size, held, again=4)
    fixed = [name for name in STRATEGIES if name not in ("dynamic", "naive")]
    peers = {DUCKDB: work.duckdb, POLARS: work.polars, SPARK: work.spark}
    return Benchmark(
        f"standing/select-{size}",
        f"{size:,} clustered select-join queries, {held:,} rows kept, {PARTNERS} partners a row; events/s",
        lambda: [
            *(Contestant(ours(name), lambda turn, n=name: work.turn(turn, n)) for name in STRATEGIES),
            *(Contestant(name, run) for name, run in peers.items()),
        ],
        ratios=(
            *(Ratio(ours("ssi"), peer, goal) for peer in peers),
            *(Ratio(ours("dynamic"), ours(name), _AS_FAST) for name in fixed),
        ),
        setup=work.setup,
    )


def _mixed(places: int, goal: float, quick: bool) -> Benchmark:
    """DYNAMIC beside the strategies it chooses from, and beside a router that knows what each kind of event costs."""
    work = Mixed(
        20_000 if quick else 200_000, 10_000 if quick else 100_000, places, time.process_time, 0.15 if quick else 0.5, 4
    )
    fixed = [ours(name) for name in STRATEGIES if name not in ("dynamic", "naive")]
    dynamic, oracle = ours("dynamic"), ours("oracle")
    return Benchmark(
        f"standing/mixed-{places}",
        f"{work.queries:,} queries, {places} places; uniform events, normal keys and ranges; events a processor second",
        lambda: [
            Contestant(ours(name), lambda turn, n=name: work.turn(turn, n))
            for name in ("dynamic", "oracle", *STRATEGIES[1:-1])
        ],
        ratios=(
            *(Ratio(dynamic, name, goal) for name in fixed),
            *(Ratio(oracle, name) for name in fixed[:2]),
            Ratio(dynamic, oracle),
        ),
        setup=work.setup,
    )


def _growth(sizes: tuple[int, int], held: int) -> Benchmark:
    """What remains of the rate when so many more queries are registered that nobody is answered by."""
    works = [Clustered(size, held) for size in sizes]
    few, many = (f"{ours('ssi')}, {size:,} queries" for size in sizes)

    @contextmanager
    def setup(say: Say) -> Iterator[None]:
        with works[0].setup(say), works[1].setup(say):
            yield

    return Benchmark(
        "standing/growth",
        f"the same groups and about the same answers of more queries; {held:,} rows kept, {PARTNERS} partners a row; "
        "events a processor second",
        lambda: [Contestant(few, works[0].steadily), Contestant(many, works[1].steadily)],
        ratios=(Ratio(many, few, 0.75),),
        setup=setup,
    )


@dataclass
class Work:
    """Queries, rows that are kept, and events that arrive on the left."""

    queries: int
    held: int
    places: int = PLACES
    #: What time is, how much of it a turn takes at least unless it runs out of events, and how often it is done again.
    clock: Callable[[], float] = time.perf_counter
    enough: float = 0.15
    again: int = 0

    def bounds(self, rng: np.random.Generator) -> Any:
        """The queries: own from, own to, across from, across to."""
        place = (rng.integers(0, self.places, self.queries) + 0.5) * DOMAIN / self.places
        far = rng.random(self.queries) < min(1.0, 200 / self.queries)
        most = DOMAIN / self.places / 2
        # The more there are, the nearer most of them end: as many of them as ever reach a partner.
        near = np.minimum(rng.exponential(20_000 / self.queries, (2, self.queries)), most)
        reach = np.where(far, rng.uniform(most / 8, most, (2, self.queries)), near)
        own = rng.uniform(0, DOMAIN, self.queries)
        return np.stack([own - 500, own + 500, place - reach[0], place + reach[1]], axis=1)

    def rows(self, rng: np.random.Generator) -> tuple[Any, Any]:
        """Keys and values of the rows that are kept."""
        return rng.integers(0, self.held // PARTNERS, self.held), rng.uniform(0, DOMAIN, self.held)

    def events(self, rng: np.random.Generator, count: int) -> tuple[Any, Any]:
        """Keys and own values of arriving rows."""
        return rng.integers(0, self.held // PARTNERS, count), rng.uniform(0, DOMAIN, count)

    @contextmanager
    def setup(self, say: Say) -> Iterator[None]:
        """Everything drawn, indexes made when first needed."""
        say("making queries and rows")
        rng = np.random.default_rng(self.queries)
        self._bounds = self.bounds(rng)
        self._keys, self._values = self.rows(rng)
        self._event_keys, self._event_values = self.events(rng, 50_000)
        order = np.lexsort((self._values, self._keys))
        self._keys, self._values = self._keys[order], self._values[order]
        self._sets: dict[str, tuple[QuerySet, Router | None]] = {}
        self._known: dict[int, int] = {}
        yield
        self._sets.clear()

    def turn(self, turn: Turn, strategy: str) -> Sequence[Sample]:
        """One batch with as many events as a turn has time for."""
        queries, router = self._set(strategy)
        queries.prepare()
        events, everything = 50, len(self._event_keys)
        pairs, seconds = self._timed(queries, router, events)
        if turn.warming:
            self._agree(events, pairs, strategy)
        while events < everything and seconds < self.enough / 2:
            events = min(everything, int(events * np.clip(self.enough / seconds, 2, 10)))
            _, seconds = self._timed(queries, router, events)
        again = 0 if turn.warming else self.again
        return [Sample(events, s) for s in (seconds, *(self._timed(queries, router, events)[1] for _ in range(again)))]

    def steadily(self, turn: Turn) -> Sequence[Sample]:
        """All events by SSI, a few times, in processor seconds: what else the machine does hardly matters."""
        queries, router = self._set("ssi")
        queries.prepare()
        samples = []
        for _ in range(1 if turn.warming else 5):
            began = time.process_time()
            pairs = self._answer(queries, router, slice(None))
            samples.append(Sample(len(self._event_keys), time.process_time() - began, results=pairs))
        return samples

    def _timed(self, queries: QuerySet, router: Router | None, events: int) -> tuple[int, float]:
        began = self.clock()
        pairs = self._answer(queries, router, slice(0, events))
        return pairs, self.clock() - began

    def _answer(self, queries: QuerySet, router: Router | None, batch: slice) -> int:
        rows = self._rows(batch)
        walk = (
            router.answers(0, rows, self._values)
            if router
            else queries.answers(queries.strategies[0], 0, rows, self._values)
        )
        return sum(int((runs[:, 3] - runs[:, 2]).sum()) for runs in walk)

    def _rows(self, batch: slice) -> Rows:
        from penstock.kernels.standing.search import Rows

        keys, own = self._event_keys[batch], self._event_values[batch]
        order = np.argsort(own)
        keys, own = keys[order], own[order]
        begin, end = np.searchsorted(self._keys, keys), np.searchsorted(self._keys, keys, side="right")
        return Rows(begin, end, np.zeros(len(own)), own)

    def _set(self, strategy: str) -> tuple[QuerySet, Router | None]:
        from penstock.kernels.standing.query_set import QuerySet
        from penstock.kernels.standing.query_table import Queries
        from penstock.kernels.standing.router import Router, walked
        from penstock.kernels.standing.shape import SelectJoin

        if strategy not in self._sets:
            shape = SelectJoin((("k",), ("k",)), (("a",), ("c",)))
            routed = {"dynamic": Router, "oracle": oracle()}.get(strategy)
            made = QuerySet(shape, walked("dynamic" if routed else strategy, own=True))  # type: ignore[arg-type]
            made.load(Queries(np.arange(len(self._bounds)), self._bounds))
            router = routed(made, coefficients()) if routed else None
            if router:
                router.load()
            if strategy == "oracle":
                router.measure(self._rows(slice(0, 20_000)), self._values)
            self._sets[strategy] = made, router
        return self._sets[strategy]

    def _agree(self, events: int, pairs: int, who: str) -> None:
        if self._known.setdefault(events, pairs) != pairs:
            raise RuntimeError(f"{who} finds {pairs} pairs where others find {self._known[events]}.")


class Clustered(Work):
    """The load of the rates, with the peers that can do it."""

    def _peer(self, turn: Turn, who: str, count: Callable[[pa.Table], int]) -> Sequence[Sample]:
        """One call, the larger the better for the peer, with as many events as it can answer in some seconds."""
        events = 50 if turn.warming else 500 if who == POLARS or self.queries <= 10_000 else 50
        batch = pa.table({"k": self._event_keys[:events], "a": self._event_values[:events]})
        began = time.perf_counter()
        pairs = count(batch)
        seconds = time.perf_counter() - began
        if events == 50:
            self._agree(events, pairs, who)
        return [Sample(events, seconds)]

    @cached_property
    def _tables(self) -> tuple[pa.Table, pa.Table]:
        names = ("own_from", "own_to", "across_from", "across_to")
        return pa.table({"k": self._keys, "c": self._values}), pa.table(dict(zip(names, self._bounds.T, strict=True)))

    def duckdb(self, turn: Turn) -> Sequence[Sample]:
        import duckdb

        if not hasattr(self, "_duck"):
            self._duck = duckdb.connect()
            self._duck.execute("SET threads = 2")
            for name, rows in zip(("s", "q"), self._tables, strict=True):
                self._duck.register("given", rows)
                self._duck.execute(f"CREATE TABLE {name} AS SELECT * FROM given")

        def count(batch: pa.Table) -> int:
            self._duck.register("r", batch)
            return self._duck.sql(
                "SELECT count(*) FROM r JOIN s USING (k) "
                "JOIN q ON a >= own_from AND a <= own_to AND c >= across_from AND c <= across_to"
            ).fetchall()[0][0]

        return self._peer(turn, DUCKDB, count)

    def polars(self, turn: Turn) -> Sequence[Sample]:
        import polars as pl

        held, asked = (pl.from_arrow(rows) for rows in self._tables)

        def count(batch: pa.Table) -> int:
            pairs = pl.from_arrow(batch).lazy().join(held.lazy(), on="k")
            col = pl.col
            met = pairs.join_where(
                asked.lazy(),
                col("a") >= col("own_from"),
                col("a") <= col("own_to"),
                col("c") >= col("across_from"),
                col("c") <= col("across_to"),
            )
            return int(met.select(pl.len()).collect().item())

        return self._peer(turn, POLARS, count)

    def spark(self, turn: Turn) -> Sequence[Sample]:
        from pyspark.sql import functions as fn

        session = streams.session()
        held, asked = (
            (session.createDataFrame(rows.to_pandas()).cache() for rows in self._tables)
            if not hasattr(self, "_frames")
            else self._frames
        )
        self._frames = held, asked

        def count(batch: pa.Table) -> int:
            pairs = session.createDataFrame(batch.to_pandas()).join(held, "k")
            wanted = (
                (fn.col("a") >= fn.col("own_from"))
                & (fn.col("a") <= fn.col("own_to"))
                & (fn.col("c") >= fn.col("across_from"))
                & (fn.col("c") <= fn.col("across_to"))
            )
            return pairs.join(fn.broadcast(asked), wanted).count()

        return self._peer(turn, SPARK, count)


class Mixed(Work):
    """Keys and ranges as Table 4.1 of 003 has them: events are uniform, kept rows' keys and the middles of own ranges
    normal. So an event may have no partner or fifty, and be wanted by no query or by tens of thousands.
    """

    def bounds(self, rng: np.random.Generator) -> Any:
        found = super().bounds(rng)
        middle, half = rng.normal(5_000, 1_000, self.queries), np.abs(rng.normal(1_000, 150, self.queries)) / 2
        found[:, 0], found[:, 1] = middle - half, middle + half
        return found

    def rows(self, rng: np.random.Generator) -> tuple[Any, Any]:
        keys = np.clip(np.rint(rng.normal(5_000, 1_000, self.held)), 0, 10_000).astype(np.int64)
        return keys, rng.uniform(0, DOMAIN, self.held)

    def events(self, rng: np.random.Generator, count: int) -> tuple[Any, Any]:
        return rng.integers(0, 10_001, count), rng.uniform(0, DOMAIN, count)


def oracle() -> type[Router]:
    """A router that sends every event where events of its kind were really answered the fastest: OPT of 003, §4.6.7."""
    from penstock.kernels.standing.router import Router
    from penstock.models.standing_cost import CHOICES

    class Oracle(Router):
        def _kind(self, side: int, rows: Rows) -> Any:
            few = np.log2(self.selected(side, rows.own[:, None])[:, 0] + 1).astype(np.int64)
            return 64 * np.log2(rows.end - rows.begin + 1).astype(np.int64) + few

        def measure(self, rows: Rows, values: Any) -> None:
            """Time some events of each kind by each strategy."""
            kinds = self._kind(0, rows)
            self._best = np.zeros(64 * 32, np.int64)
            for kind in np.unique(kinds):
                some = rows.some(np.flatnonzero(kinds == kind)[:200])
                self._best[kind] = int(np.argmin([self._seconds(name, some, values) for name in CHOICES]))

        def _seconds(self, name: str, rows: Rows, values: Any) -> float:
            few = rows.some(np.arange(min(4, len(rows.own))))
            a_row = min(self._once(name, few, values) for _ in range(2)) / len(few.own)
            if a_row * len(rows.own) > 0.02:
                return a_row
            return min(self._once(name, rows, values) for _ in range(3)) / len(rows.own)

        def _once(self, name: str, rows: Rows, values: Any) -> float:
            began = time.process_time()
            for _ in self.queries.answers(name, 0, rows, values):  # type: ignore[arg-type]
                pass
            return time.process_time() - began

        def for_all(self, side: int, rows: Rows, owns: Any) -> int:
            return -1

        def choose(self, side: int, rows: Rows, owns: Any = None) -> Any:
            return self._best[self._kind(side, rows)]

    return Oracle


class Upkeep:
    """Many queries: how long until they can be asked, and what one change costs."""

    def __init__(self, queries: int) -> None:
        self.queries = queries
        self._kernels: dict[str, Any] = {}

    @contextmanager
    def setup(self, say: Say) -> Iterator[None]:
        """The queries as Parquet."""
        say("writing queries")
        rng = np.random.default_rng(1)
        bounds = Clustered(self.queries, 1_000).bounds(rng)
        self._rng = rng
        names = ("left_a_from", "left_a_to", "right_c_from", "right_c_to")
        with streams.scratch() as place:
            self._path = place / "queries.parquet"
            pq.write_table(
                pa.table({"query": np.arange(self.queries), **dict(zip(names, bounds.T, strict=True))}), self._path
            )
            self._names = names
            yield
        self._kernels.clear()

    def load(self, turn: Turn) -> Sequence[Sample]:
        """From the file to a kernel that can answer, and its state as it would be stored."""
        began = time.perf_counter()
        self._fresh("dynamic")
        return [Sample(self.queries, time.perf_counter() - began)]

    def change(self, turn: Turn, strategy: str) -> Sequence[Sample]:
        """Micro-batches of 1,000 changes, half of them new queries and half old ones that go: enough of them that
        everything is laid out anew in between.
        """
        from penstock.kernels.contract import Batch, Portion

        kernel = self._kernels.get(strategy) or self._fresh(strategy)
        self._kernels[strategy] = kernel
        samples = []
        half = 500
        for number in range(20):
            version = 1_000 * turn.round + number + 1
            bounds = Clustered(half, 1_000).bounds(self._rng)
            old = self._rng.choice(self.queries, half, replace=False)
            columns = {
                "query": np.concatenate([self.queries + half * version + np.arange(half), old]),
                "op": ["set"] * half + ["remove"] * half,
                "version": np.full(2 * half, version),
                **{name: np.append(bounds[:, at], np.zeros(half)) for at, name in enumerate(self._names)},
            }
            began = time.perf_counter()
            for _ in kernel.step(Batch([Portion(2, pa.record_batch(columns))]), 0):
                pass
            kernel.changes()
            samples.append((time.perf_counter() - began) / (2 * half))
        return [Sample(1, float(np.mean(samples)))]

    def _fresh(self, strategy: str) -> Any:
        from penstock.kernels.contract import Batch
        from penstock.plan.standing_queries import StandingQueriesPlan, select_join

        schemas = (pa.schema([("k", pa.int64()), (name, pa.float64())]) for name in ("a", "c"))
        plan = StandingQueriesPlan.checked(
            *schemas,
            shape=select_join("k", left="a", right="c"),
            queries=str(self._path),
            memory="4GB",
            slots=1,
            keep=1_000,
            strategy=strategy,  # type: ignore[arg-type]
            output="counts",
        )
        kernel = plan.make(0)
        for _ in kernel.step(Batch([]), 0):
            pass
        kernel.changes()
        return kernel


def _through_spark(quick: bool) -> list[Benchmark]:
    queries, batch = (1_000, 5_000) if quick else (100_000, 100_000)
    found = []
    for output in ("counts", "factored"):
        name = f"Penstock, {output}"
        found.append(
            Benchmark(
                f"standing/spark-{output}",
                f"{queries:,} select-join queries, micro-batches of {batch:,} events, two slots, results discarded",
                lambda output=output, name=name: [
                    Contestant(name, lambda turn: _spark_turn(turn, queries, batch, output))
                ],
                limits=(Limit(name, rate=50_000.0),),
            )
        )
    return found


def _spark_turn(turn: Turn, queries: int, batch: int, output: str) -> Sequence[Sample]:
    """Events against rows of which a few come along in every micro-batch; the first three fill and warm."""
    import penstock as ps

    stream = streams.numbers(batch)
    mixed = "pmod(value * 2654435761, 1000003)"
    left = stream.selectExpr(f"{mixed} % 5000 as k", f"cast({mixed} * 7919 % 1000000 as double) / 100 as a")
    right = streams.numbers(batch // 10).selectExpr(
        "pmod(value * 40503, 5000) as k", f"cast({mixed} * 104729 % 1000000 as double) / 100 as c"
    )
    bounds = Clustered(queries, 100_000).bounds(np.random.default_rng(3))
    with streams.scratch() as place:
        path: Path = place / "queries.parquet"
        names = ("left_a_from", "left_a_to", "right_c_from", "right_c_to")
        pq.write_table(pa.table({"query": np.arange(queries), **dict(zip(names, bounds.T, strict=True))}), path)
        flow = ps.StandingQueries(
            left,
            right,
            shape=ps.select_join("k", left="a", right="c"),
            queries=str(path),
            keep=batch,
            memory="2GB",
            output=output,  # type: ignore[arg-type]
            slots=streams.CORES,
        )
        reports = streams.batches_of(streams.discard(flow.results, place / "checkpoint"), 8, turn)
    return streams.samples(reports, batch + batch // 10, 4)


def coefficients() -> Any:
    """The router's model, fitted once in this process."""
    global _FITTED  # noqa: PLW0603
    from penstock.kernels.standing.calibrate import calibrate

    if _FITTED is None:
        _FITTED = calibrate()
    return _FITTED


_FITTED: Any = None
