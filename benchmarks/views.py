"""Views on TPC-H: the work that keeping a promise costs, by planner, beside recomputing and beside refreshing at once.

A turn is a run in real time. Changes of PartSupp and Supplier arrive every half second, readers come at random, and
each is answered with everything that had arrived. A sample is a whole run: how many changes were brought in, and how
many seconds of refreshing that took, so that contestants are compared by changes for each second of work. How long
readers waited is in the details, and said at the end of each turn.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from benchmarks import data, views_costs
from benchmarks.harness import Benchmark, Contestant, Ratio, Sample, Say, Turn
from benchmarks.streams import scratch
from papers.views.tpch import generate
from penstock.plan.view import plain

SQL = (
    "SELECT MIN(ps_supplycost) AS least, COUNT(*) AS offers FROM partsupp PS, supplier S, nation N, region R "
    "WHERE s_suppkey = ps_suppkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey "
    "AND r_name = 'MIDDLE EAST'"
)
TABLES = ("partsupp", "supplier", "nation", "region")
KEYS = {"partsupp": ("ps_partkey", "ps_suppkey"), "supplier": ("s_suppkey",)}
ONLINE, NAIVE = "Penstock, online", "Penstock, naive"
RECOMPUTE, AT_ONCE = "recomputed on every read", "refreshed on every change"


@dataclass(frozen=True)
class Setting:
    """Scale of TPC-H, length of a run, changes a second, seconds between readers on average."""

    scale: float = 1.0
    seconds: float = 300.0
    # So many that something must be done between two readers, and few enough to be brought in at all.
    partsupp_rate: int = 5_000
    supplier_rate: int = 1_000
    reads_every: float = 30.0
    #: The promise, as a multiple of what refreshing everything takes: a reader may come during one refresh, and then
    #: needs another.
    slack: float = 2.0


QUICK = Setting(scale=0.05, seconds=15.0, partsupp_rate=400, supplier_rate=400, reads_every=8.0)


@dataclass
class Arrivals:
    """Files of changes, written as time goes by; `done` are those of the tables until now."""

    folder: Path
    tables: dict[str, pa.Table]
    setting: Setting
    seed: int
    count: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        for name in KEYS:
            (self.folder / name).mkdir(parents=True)

    def write(self, seconds: float) -> None:
        """Updates that come in so many seconds, one file for each table."""
        self.count += 1
        for name, rate in (("partsupp", self.setting.partsupp_rate), ("supplier", self.setting.supplier_rate)):
            rows = self.tables[name]
            count = min(rows.num_rows, max(1, int(rate * seconds)))
            some = rows.take(np.sort(self._rng.choice(rows.num_rows, count, replace=False)))
            column = "ps_supplycost" if name == "partsupp" else "s_nationkey"
            place = some.schema.get_field_index(column)
            drawn = self._rng.integers(100, 100_000, some.num_rows) if name == "partsupp" else None
            fresh = (
                pa.array(drawn, pa.int64()).cast(pa.decimal128(20, 0)).cast(pa.decimal128(15, 2))
                if drawn is not None
                else pa.array(self._rng.integers(0, 25, some.num_rows), some.schema.field(place).type)
            )
            changed = some.set_column(place, some.schema.field(place).name, fresh)
            changed = changed.append_column("_change_type", pa.array(["update"] * some.num_rows))
            path = self.folder / name / f"{self.count:06d}.parquet"
            pq.write_table(changed, path.with_name(f".{path.name}"))
            path.with_name(f".{path.name}").rename(path)


class Bench:
    """The data and the session that all turns share, and the promise: found once, the same for all."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.promise = 0.0

    @contextmanager
    def data(self, say: Say) -> Iterator[None]:
        """Make the data, start Spark."""
        make = lambda place: generate(place, self.setting.scale, TABLES)  # noqa: E731
        self.base = data.cached("tpch", {"scale": self.setting.scale, "tables": TABLES}, make, say)
        whole = {name: pq.read_table(self.base / f"{name}.parquet") for name in TABLES}
        self.tables = {name: rows.cast(plain(rows.schema, name)) for name, rows in whole.items()}
        self.spark = ps.session("penstock-bench-views", cores=2)
        try:
            yield
        finally:
            self.spark.stop()

    @contextmanager
    def setup(self, say: Say) -> Iterator[None]:
        """Make the data, start Spark, find what can be promised."""
        with self.data(say):
            say("finding what can be promised")
            with scratch() as place:
                arrivals = Arrivals(place / "changes", self.tables, self.setting, seed=0)
                with self.view(place, "naive", promise=3600.0) as view:
                    for _ in range(6):  # Spark is slow at first
                        arrivals.write(0.5)
                        view.read().to_arrow()
                    times = view._opened.service._times
                    usual = sum(float(np.median([s for _, s in list(c.recent)[-3:]])) for c in times.refreshes.values())
                    self.promise = round((usual + float(np.median(times.reading))) * self.setting.slack, 2)
            say(f"the promise is {self.promise} s")
            yield

    def contestants(self) -> Sequence[Contestant]:
        """Two planners, and what one does without them."""
        return [
            Contestant(ONLINE, lambda turn: self._run(turn, ONLINE, "online", _watched)),
            Contestant(NAIVE, lambda turn: self._run(turn, NAIVE, "naive", _watched)),
            Contestant(AT_ONCE, lambda turn: self._run(turn, AT_ONCE, "naive", _at_once)),
            Contestant(RECOMPUTE, lambda turn: self._run(turn, RECOMPUTE, "naive", _idle)),
        ]

    def view(self, place: Path, planner: str, promise: float | None = None) -> ps.View:
        tables: dict[str, Any] = {name: self.base / f"{name}.parquet" for name in TABLES}
        for name, key in KEYS.items():
            tables[name] = ps.Changing(tables[name], place / "changes" / name, key=key)
        within = f"{promise or self.promise} s"
        return ps.View(SQL, tables=tables, at=place / "view", answer_within=within, planner=planner, spark=self.spark)

    def _run(self, turn: Turn, name: str, planner: str, keep: Keeper) -> list[Sample]:
        seconds = self.setting.seconds if not turn.warming else min(self.setting.seconds, 5.0)
        with scratch() as place:
            arrivals = Arrivals(place / "changes", self.tables, self.setting, seed=turn.round)
            # Each view must know its costs before the clock runs: a minute is promised while it learns them.
            with self.view(place, planner, promise=max(60.0, self.promise)) as view:
                service = view._opened.service
                service._plan = replace(service._plan, answer_within=self.promise)
                whole = _Recomputed(view) if name == RECOMPUTE else None
                stop = threading.Event()
                keeper = threading.Thread(target=keep, args=(view, stop), daemon=True)
                keeper.start()
                waits = self._live(arrivals, seconds, random.Random(turn.round), whole.read if whole else view.read)
                stop.set()
                keeper.join()
                answer = (whole.read if whole else view.read)()
                if turn.warming:
                    self._check(arrivals, answer.to_arrow())
                said = view.progress()
                work = sum(said.work.values()) + (whole.work if whole else 0.0)
        in_time = sum(wait <= self.promise for wait in waits)
        details = {
            "reads": len(waits),
            "in_time": in_time,
            "slowest": max(waits, default=0.0),
            "promise": self.promise,
            "refreshes": dict(said.refreshes),
            "work": work,
        }
        turn.say(f"{work:.1f} s of work, {in_time} of {len(waits)} reads within {self.promise} s, {said.refreshes}")
        changes = sum(said.changes.values())
        return [Sample(changes, work, details=details)]

    def _live(self, arrivals: Arrivals, seconds: float, draw: random.Random, read: Callable[[], Any]) -> list[float]:
        """Changes every half second, and readers at random, one at a time."""
        began = time.monotonic()
        stop = threading.Event()

        def arrive() -> None:
            while not stop.is_set() and arrivals.count * 0.5 < seconds:
                arrivals.write(0.5)
                stop.wait(max(0.0, began + 0.5 * arrivals.count - time.monotonic()))

        writer = threading.Thread(target=arrive, daemon=True)
        writer.start()
        waits = []
        due = began + draw.expovariate(1 / self.setting.reads_every)
        while due < began + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            asked = time.monotonic()
            read().to_arrow()
            waits.append(time.monotonic() - asked)
            due = time.monotonic() + draw.expovariate(1 / self.setting.reads_every)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        stop.set()
        writer.join()
        return waits

    def _check(self, arrivals: Arrivals, got: pa.Table) -> None:
        """The answer is the query over the tables with all changes, as DuckDB has it."""
        with duckdb.connect() as connection:
            for name in TABLES:
                connection.register(f"{name}_base", self.tables[name])
                if name not in KEYS:
                    connection.execute(f"CREATE VIEW {name} AS FROM {name}_base")
                    continue
                files = f"read_parquet('{arrivals.folder / name}/*.parquet', filename = true)"
                key, on = ", ".join(KEYS[name]), " AND ".join(f"b.{k} = c.{k}" for k in KEYS[name])
                connection.execute(
                    f"CREATE TABLE {name} AS WITH c AS (SELECT * EXCLUDE (_change_type, filename) FROM {files} "
                    f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY filename DESC) = 1) "
                    f"SELECT * FROM c UNION ALL SELECT * FROM {name}_base b ANTI JOIN c ON {on}"
                )
            want = connection.sql(SQL).fetchall()
        have = [tuple(row.values()) for row in got.to_pylist()]
        if have != want:
            raise AssertionError(f"the view has {have}, and its query gives {want}")


Keeper = Callable[[ps.View, threading.Event], None]


def _watched(view: ps.View, stop: threading.Event) -> None:
    """As `view.start()` does."""
    view.start()
    stop.wait()


def _at_once(view: ps.View, stop: threading.Event) -> None:
    """Whatever arrives is brought in at once."""
    while not stop.wait(0.05):
        view.refresh()


def _idle(view: ps.View, stop: threading.Event) -> None:
    """Nothing is done until somebody asks."""


class _Recomputed:
    """The query over whole tables, for every reader; the tables take their changes in, the view does not."""

    def __init__(self, view: ps.View) -> None:
        self._maintainer = view._opened.service._maintainer
        self._answer = view._opened.service
        self.work = 0.0

    def read(self) -> Any:
        began = time.monotonic()
        made = self._maintainer
        step, made._refreshed = made._refreshed, lambda now, table, part, version: (now.state, False)
        try:
            for name in KEYS:
                made.advance(name)
        finally:
            made._refreshed = step
        state = made._write(made._deltas.whole(made.manifest.tables), made.manifest.version + 1)
        made.manifest = replace(made.manifest, version=made.manifest.version + 1, state=state)
        made._store.commit(made.manifest)
        answer = self._answer._answer(time.time(), {}, began)
        self.work += time.monotonic() - began
        return answer


def benchmarks(quick: bool) -> list[Benchmark]:
    """One: the work of a run."""
    bench = Bench(QUICK if quick else Setting())
    about = f"changes for each second of refreshing, over {bench.setting.seconds:.0f} s at scale {bench.setting.scale}"
    ratios = (Ratio(ONLINE, NAIVE, goal=1 / 0.7), Ratio(ONLINE, AT_ONCE), Ratio(ONLINE, RECOMPUTE))
    return [
        Benchmark("views", about, bench.contestants, ratios, setup=bench.setup),
        views_costs.benchmark(bench, tuple(KEYS)),
    ]
