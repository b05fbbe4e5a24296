"""Views on TPC-H: the work that keeping a promise costs, by planner, beside recomputing and beside refreshing at once.

A turn is a run in real time. Changes of a large table and of a small one arrive every half second, readers come at
random, one at a time, and each is answered with everything that had arrived. A sample is a whole run: how many changes
were brought in, and how many seconds of refreshing that took, so that contestants are compared by changes for each
second of work. How long readers waited, until they had the rows, is in the details, and said at the end of each turn;
every turn's last answer is compared with DuckDB's.

Readers need many changes brought in whatever the planner does, so the more of them come the less there is to save; and
the share of readers in time says little if they are few. In `views/run` they are as rare as the paper's, some ten
promises apart; in `views/readers` there are about fifty, a few seconds apart. Both count all work, readers' too.

What is beside the planners is reckoned from a few timings, not run for five minutes: the query over the whole tables by
Spark SQL, as often as readers came (changes are not even applied to the tables); and a refresh of what one half second
brought, as often as there were half seconds, which may be more work than there is time.

What is promised is a multiple of what one refresh of the small table takes, which looks through the large one whatever
the number of its changes; and changes of the large table come so fast that bringing them in, without the setup of each
refresh, needs a fifth of the time. Both are measured at the start, and the same for all.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import penstock as ps
from benchmarks import data, views_costs
from benchmarks.harness import Benchmark, Contestant, Ratio, Sample, Say, Share, Turn
from benchmarks.streams import scratch
from benchmarks.views_world import EVERY, KEYS, LARGE, SMALL, SQL, TABLES, Arrivals
from papers.views.tpch import generate
from penstock.kernels.views.online import Online
from penstock.spark.views.ledger import Times
from penstock.spark.views.service import planner_of

ONLINE, NAIVE, SIMULATE = "Penstock, online", "Penstock, naive", "Penstock, simulate"
RECOMPUTE, AT_ONCE = "recomputed on every read", "refreshed on every change"
#: Promises, as multiples of a refresh of the small table; the first is that of runs with one promise.
PROMISES = (4.0, 3.0, 6.0, 9.0)
#: Timings from which the cost of what is beside the planners is reckoned.
TIMED = 6


@dataclass(frozen=True)
class Setting:
    """Scale of TPC-H, length of a run, seconds between an answer and the next reader on average."""

    scale: float = 1.0
    seconds: float = 300.0
    reads_every: float = 30.0
    #: Changes of the small table a second: so few that their number does not matter beside the look through the large
    #: one (a hundred a second would: each has 600 lines). And the share of the time that changes of the large one need:
    #: enough that something must be done between two readers, and little enough for all of it to be brought in.
    small_rate: int = 10
    large_share: float = 0.2
    #: Changes of the large table a second, at the least and at the most, whatever was measured.
    large_rates: tuple[int, int] = (5_000, 30_000)
    #: Rounds of refreshes before anything is counted, in threes: Java compiles for a minute or two, and whoever came
    #: first would pay for it.
    learning: int = 60


QUICK = Setting(scale=0.05, seconds=10.0, reads_every=4.0, small_rate=10, large_rates=(1_000, 2_000), learning=15)


class Bench:
    """One view for all turns, so that all find the same session, the same tables, and the same knowledge of costs."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.flat = 0.0
        self.reads = round(setting.seconds / setting.reads_every)

    @contextmanager
    def open(self, say: Say) -> Iterator[None]:
        """Make the data, start Spark, make the view."""
        make = lambda place: generate(place, self.setting.scale, TABLES)  # noqa: E731
        base = data.cached("tpch", {"scale": self.setting.scale, "tables": TABLES}, make, say)
        with ExitStack() as stack:
            self.base = base
            self.spark = spark = ps.session("penstock-bench-views", cores=2)
            stack.callback(spark.stop)
            place = stack.enter_context(scratch())
            rates = {LARGE: self.setting.large_rates[0], SMALL: self.setting.small_rate}
            self.arrivals = Arrivals(place / "changes", base, rates, seed=0)
            tables: dict[str, Any] = {name: base / f"{name}.parquet" for name in TABLES}
            for name, key in KEYS.items():
                tables[name] = ps.Changing(tables[name], place / "changes" / name, key=key)
            # An hour is promised while costs are learnt.
            self.view = stack.enter_context(
                ps.View(SQL, tables=tables, at=place / "view", answer_within="1 hour", spark=spark)
            )
            self.service = self.view._opened.service
            yield

    @contextmanager
    def setup(self, say: Say) -> Iterator[None]:
        """Open the view, and learn what refreshes cost: Spark is slow at first."""
        with self.open(say):
            say("learning what refreshes cost")
            rates, least = self.arrivals.rates, self.setting.large_rates[0]
            for number in range(self.setting.learning):
                rates[LARGE] = least * (2, 20, 40)[number % 3]
                self.arrivals.make(EVERY * 2)
                self.arrivals.give(2)
                self.view.read().to_arrow()
            # The middle of the last three of each size.
            large, small = (list(self.service._times.refreshes[name].recent)[-9:] for name in (LARGE, SMALL))
            self.flat = float(np.median([seconds for _, seconds in small]))
            (few, quick), (many, slow) = (np.median(large[place::3], axis=0) for place in (0, 2))
            each = max((slow - quick) / (many - few), 1e-9)
            rates[LARGE] = int(np.clip(self.setting.large_share / each, *self.setting.large_rates)) // 1000 * 1000
            say(
                f"a refresh of {SMALL} takes {self.flat:.2f} s, of {few:,.0f} changes of {LARGE} {quick:.2f} s, of "
                f"{many:,.0f} {slow:.2f} s; changes a second: {rates}"
            )
            yield

    def contestants(self, promises: Sequence[float]) -> list[Contestant]:
        """Planners with each promise, and what one does without them."""
        kinds = [(ONLINE, "online"), (NAIVE, "naive")] + [(SIMULATE, "simulate")] * (len(promises) > 1)
        found = [
            Contestant(at(name, promise, promises), lambda turn, p=planner, m=promise: self._run(turn, p, m))
            for promise in promises
            for name, planner in kinds
        ]
        beside = [Contestant(AT_ONCE, self._at_once), Contestant(RECOMPUTE, self._recomputed)]
        return found + beside * (len(promises) == 1)

    def _run(self, turn: Turn, planner: str, multiple: float) -> list[Sample]:
        promise = multiple * self.flat
        seconds = self.setting.seconds if not turn.warming else 5.0
        self.arrivals.make(seconds)
        self._begin(planner, promise)
        writer = threading.Thread(target=self.arrivals.run, args=(seconds,), daemon=True)
        spent, before = views_costs.busy(), sum(self.view.progress().changes.values())
        writer.start()
        self.view.start()
        waits, expected = self._readers(seconds, random.Random(turn.round))
        writer.join()
        self.service.stop()
        answer = self.view.read().to_arrow()
        spent = views_costs.busy() - spent
        said = self.view.progress()
        if sorted(tuple(row.values()) for row in answer.to_pylist()) != self.arrivals.judge():
            raise AssertionError("the view is not what its query gives")
        work = sum(said.work.values())
        self.reads = len(waits)
        in_time = sum(wait <= promise for wait in waits)
        details = {
            "promise": promise,
            "multiple": multiple,
            "reads": len(waits),
            "in time": in_time,
            "waits": [round(wait, 3) for wait in waits],
            "expected": [round(wait, 3) for wait in expected],
            "refreshes": dict(said.refreshes),
            "work": {name: round(seconds, 3) for name, seconds in said.work.items()},
            "rates": dict(self.arrivals.rates),
            "costs": {name: tuple(cost) for name, cost in said.costs.items()},
        }
        turn.say(
            f"{work:.1f} s of work, {spent:.0f} processor seconds, {in_time} of {len(waits)} reads within "
            f"{promise:.2f} s, slowest {max(waits, default=0.0):.2f} s, {said.refreshes}"
        )
        return [Sample(sum(said.changes.values()) - before, work, busy=spent, details=details)]

    def _begin(self, planner: str, promise: float) -> None:
        """Nothing waits, nothing is counted yet; what is known of costs stays known."""
        service = self.service
        self.view.refresh()
        plan = replace(service._plan, planner=planner, answer_within=promise, reads_every=self.setting.reads_every)
        service._plan, service._planner = plan, planner_of(plan)
        service._times = Times(service._times.refreshes, service._times.reading)
        service._rates = Online(memory=60.0)

    def _readers(self, seconds: float, draw: random.Random) -> tuple[list[float], list[float]]:
        """What each waited, and what the view would have said when it came: refreshing what waits, and reading.

        They come at random, the next one some time after the last was answered. Nobody knows how far a refresh is that
        is under way, so that a reader who comes during one may be answered sooner than that, or later.
        """
        waits, expected, end = [], [], time.monotonic() + seconds
        while (due := time.monotonic() + draw.expovariate(1 / self.setting.reads_every)) < end:
            time.sleep(max(0.0, due - time.monotonic()))
            expected.append(self.view.progress().pending_cost + self.service._times.reads_in)
            asked = time.monotonic()
            self.view.read().to_arrow()
            waits.append(time.monotonic() - asked)
        return waits, expected

    def _at_once(self, turn: Turn) -> list[Sample]:
        """What arrives is brought in at once: a few half seconds of it, reckoned for all."""
        self._begin("naive", self.flat)
        self.arrivals.make(EVERY * TIMED)
        for _ in range(TIMED):
            self.arrivals.give()
            self.view.refresh()
        self.service.stop()
        each = sum(self.view.progress().work.values()) / TIMED
        return self._reckoned(turn, each, round(self.setting.seconds / EVERY), "half seconds of changes")

    def _recomputed(self, turn: Turn) -> list[Sample]:
        """The query over the tables' first files, with nothing to look up and nothing to keep, as often as was read."""
        for name in TABLES:
            self.spark.read.parquet(str(self.base / f"{name}.parquet")).createOrReplaceTempView(name)
        times = []
        for _ in range(TIMED):
            began = time.monotonic()
            self.spark.sql(SQL).toArrow()
            times.append(time.monotonic() - began)
        return self._reckoned(turn, float(np.median(times)), max(self.reads, 1), "reads")

    def _reckoned(self, turn: Turn, each: float, count: int, of: str) -> list[Sample]:
        turn.say(f"{each:.2f} s each, {TIMED} times; for {count:,} {of} {each * count:.0f} s of work")
        changes = round(sum(self.arrivals.rates.values()) * self.setting.seconds)
        return [Sample(changes, each * count, details={"each": each, "timed": TIMED, "count": count})]


def at(name: str, promise: float, promises: Sequence[float] = PROMISES) -> str:
    """A contestant with a promise."""
    return name if len(promises) == 1 else f"{name}, {promise:g} ×"


def benchmarks(quick: bool) -> list[Benchmark]:
    """Five minutes for each planner with few and with many readers, two minutes, several promises, refreshes' costs."""
    long = QUICK if quick else Setting()
    found = []
    for name, setting, promises in (
        ("views/run", long, PROMISES[:1]),
        ("views/readers", replace(long, reads_every=min(long.reads_every, 5.0)), PROMISES[:1]),
        ("views/short", replace(long, seconds=min(long.seconds, 120.0)), PROMISES[:1]),
        ("views/promises", replace(long, seconds=min(long.seconds, 45.0)), PROMISES),
    ):
        bench = Bench(setting)
        ratios = [Ratio(at(ONLINE, p, promises), at(NAIVE, p, promises), goal=1 / 0.7) for p in promises]
        if len(promises) == 1:
            ratios += [Ratio(ONLINE, AT_ONCE), Ratio(ONLINE, RECOMPUTE)]
        shares = tuple(Share(at(ONLINE, p, promises), "in time", "reads", goal=0.99) for p in promises)
        about = f"changes for each second of refreshing, over {setting.seconds:.0f} s at scale {setting.scale}"
        contestants = lambda bench=bench, promises=promises: bench.contestants(promises)  # noqa: E731
        found.append(Benchmark(name, about, contestants, tuple(ratios), setup=bench.setup, shares=shares))
    return [*found, views_costs.benchmark(Bench(long), tuple(KEYS))]
