"""Keeps a view within its promise: watches the logs, asks the planner, refreshes, answers.

One lock guards the view; a refresh of one table holds it, so a reader who comes while another refresh is under way
waits for that one, and then does the rest itself: of what had arrived when it came, and of nothing later. What waits
is kept so small that this fits the promise whenever a reader comes (`penstock.kernels.views.pace`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from penstock.errors import AnswerTimeTooShort, SourceLost
from penstock.kernels.views.naive import Naive
from penstock.kernels.views.online import AHEAD, Online
from penstock.kernels.views.pace import allowed, due
from penstock.kernels.views.planner import Planner
from penstock.kernels.views.simulate import Simulate
from penstock.plan.units import format_duration
from penstock.plan.view import ViewPlan
from penstock.spark.views.answer import Answer, moment
from penstock.spark.views.ledger import FULL, Times
from penstock.spark.views.logs import Waiting
from penstock.spark.views.maintain import Maintainer, Refreshed
from penstock.spark.views.store import Store

#: Changes that refreshes are tried with before the view is in use.
_TRIED = (1, 1000)
#: Rates are those of about the last so many seconds.
_MEMORY = 60.0
#: Seconds after which what failed is tried again, at the most.
_PATIENCE = 30.0


@dataclass(frozen=True)
class Progress:
    """How a view is doing."""

    version: int
    #: Changes of each table that wait, and how many came in a second, lately.
    waiting: Mapping[str, int]
    rates: Mapping[str, float]
    #: Seconds that refreshing what waits would take, and what is allowed.
    pending_cost: float
    bound: float
    #: Seconds of setup, and for each change, of each table.
    costs: Mapping[str, tuple[float, float]]
    #: Refreshes, and seconds spent in them, of each table.
    refreshes: Mapping[str, int]
    work: Mapping[str, float]
    changes: Mapping[str, int]
    set_aside: Mapping[str, int]
    reads: int
    reads_in_time: int
    slowest_read: float
    #: Whether the promise can be kept; if not, why, and what could be.
    promise_kept: bool
    promise: str


@dataclass(frozen=True)
class _Asked:
    """When a reader came, by both clocks, and the changes of each table that were there."""

    moment: float
    time: float
    there: Mapping[str, frozenset[str]]


class Service:
    """A view that is open."""

    def __init__(self, plan: ViewPlan, store: Store, maintainer: Maintainer) -> None:
        self._plan = plan
        self._store = store
        self._maintainer = maintainer
        self._tables = plan.changing()
        self._times = Times.load_from(store.place / "times.json", self._tables)
        self._planner = planner_of(plan)
        # Rates are watched for every planner, since the next look is a moment away for all of them.
        self._rates = Online(memory=_MEMORY)
        # What waits when the view is opened came at times that nobody knows: it is no part of any rate.
        self._seen = {name: {entry.name for entry in maintainer.waiting(name)} for name in self._tables}
        self._began = time.monotonic()
        self._lock = threading.RLock()
        #: Readers who wait for an answer that needs a refresh.
        self._readers: set[object] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._tidier: threading.Thread | None = None
        self._fault: Exception | None = None

    # -- opening and closing -------------------------------------------------------------------------------------

    def check_promise(self) -> None:
        """Measure what refreshes take, if that is not known, and refuse a promise that cannot be kept at all."""
        for table in self._tables:
            cost = self._times.refreshes[table]
            if not cost.recent and not cost.advance:
                cost.tried(self._maintainer.tried(table, _TRIED))
        least = self._times.least()
        if self._tables and least > self._plan.answer_within:
            asked, possible = (format_duration(round(s * 1e6)) for s in (self._plan.answer_within, least))
            raise AnswerTimeTooShort(
                f"answer_within={asked!r} is less than a refresh takes: {possible}.",
                why="; ".join(f"{t}: {self._times.refreshes[t].line(1):.2f} s" for t in self._tables)
                + " for one change.",
                do=f'Give at least answer_within="{possible}", or a faster session.',
            )

    def start(self, every: float | None = None) -> None:
        """Watch the logs in a thread, `every` so many seconds."""
        if self._thread is not None and self._thread.is_alive():
            return
        pause = every if every is not None else min(max(self._plan.answer_within / 20, 0.05), 1.0)
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, args=(pause,), name="penstock-view", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the refresh under way, and stop watching. Raises what the watching failed at, if it still does."""
        self._stop.set()
        for thread in (self._thread, self._tidier):
            if thread is not None:
                thread.join()
        self._thread = self._tidier = None
        with contextlib.suppress(OSError):  # on a full disk; losing them costs a calibration
            self._times.save(self._store.place / "times.json")
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def close(self) -> None:
        """Stop, and let others have the directory once the refresh under way is done, a reader's as well."""
        try:
            self.stop()
        finally:
            with self._lock:
                self._store.close()

    def _watch(self, pause: float) -> None:
        """Look again and again. What fails is tried again, ever more rarely: a file may be mended, a disk have room."""
        patience = pause
        while not self._stop.wait(patience):
            try:
                self.tick(ahead=pause)
                patience, self._fault = pause, None
            except Exception as fault:
                patience, self._fault = min(2 * patience, max(pause, _PATIENCE)), fault

    # -- maintenance -------------------------------------------------------------------------------------------

    def tick(self, ahead: float = 0.0) -> list[Refreshed]:
        """Refresh what must be refreshed now, if anything: when what waits, and what comes in the next `ahead` seconds
        and while it is refreshed, could not be refreshed within the promise.
        """
        with self._lock:
            waiting = self._look()
            pending = tuple(sum(entry.changes for entry in waiting[name]) for name in self._tables)
            costs, available = self._times.costs(self._tables), self._times.bound(self._plan.answer_within)
            rates = self._rates.rates or (0.0,) * len(pending)
            situation = due(pending, rates, costs, available, ahead, self._now())
            if situation is None:
                return []
            chosen = self._planner.choose(situation)
            names = [self._tables[number] for number in chosen if pending[number]]
        done: list[Refreshed] = []
        for name in names:
            # A reader refreshes everything: it waits for the table under way, not for the ones after it.
            if not self._readers:
                done += self._advance(name, waiting[name])
        return done

    def refresh(self, tables: tuple[str, ...] | None = None) -> list[Refreshed]:
        """Refresh all that waits now, of some tables or all."""
        with self._lock:
            waiting = self._look()
            done = [one for name in tables or self._tables for one in self._advance(name, waiting[name])]
            if tables is None:
                self._planner.refreshed(self._now())
            return done

    def _advance(self, table: str, entries: list[Waiting]) -> list[Refreshed]:
        with self._lock:
            self._store.check_held()
            # Others may have been faster, and what they took may be gone.
            wanted = {entry.name for entry in entries}
            left = [entry for entry in self._maintainer.waiting(table) if entry.name in wanted]
            done = self._maintainer.advance(table, left) if left else []
            for one in done:
                self._times.refreshed(table, one.changes, one.seconds)
            untidy = self._maintainer.untidy() if done else []
            if untidy and (self._tidier is None or not self._tidier.is_alive()):
                self._tidier = threading.Thread(target=self._tidy, args=(untidy,), name="penstock-view-tidy")
                self._tidier.start()
        return done

    def _tidy(self, tables: list[str]) -> None:
        """Make tables quick to read again, while refreshes and readers go on."""
        try:
            for table in tables:
                seconds = self._maintainer.tidy(table, self._lock)
                with self._lock:
                    self._times.tidied(table, seconds)
        except Exception as fault:
            self._fault = fault

    def _look(self) -> dict[str, list[Waiting]]:
        """What waits; tells the planner what is new."""
        waiting = {name: self._maintainer.waiting(name) for name in self._tables}
        new = []
        for name, entries in waiting.items():
            new.append(sum(entry.changes for entry in entries if entry.name not in self._seen[name]))
            self._seen[name] = {entry.name for entry in entries}
        now = self._now()
        self._rates.arrived(now, new)
        self._planner.arrived(now, new)
        return waiting

    def _now(self) -> float:
        return time.monotonic() - self._began

    # -- reading -----------------------------------------------------------------------------------------------

    def read(self, max_staleness: float | None = None) -> Answer:
        """Refresh what must be, and answer."""
        self._store.check_held()
        asked = _Asked(
            time.monotonic(), time.time(), {name: frozenset(self._maintainer.names(name)) for name in self._tables}
        )
        if max_staleness is not None:
            quick = self._stale_answer(asked, max_staleness)
            if quick is not None:
                return quick
        # Each with a token of its own: a count that two change at once may never be none again.
        token = object()
        self._readers.add(token)
        try:
            return self._fresh_answer(asked, max_staleness)
        finally:
            self._readers.discard(token)

    def _fresh_answer(self, asked: _Asked, max_staleness: float | None) -> Answer:
        """Refresh everything that is too old for this reader, and answer."""
        with self._lock:
            waiting = self._look()
        refreshed: dict[str, int] = {}
        for name in self._tables:
            # What arrived while the reader waited for a refresh under way can wait: a refresh of it may be a whole one.
            owed = [entry for entry in waiting[name] if entry.name in asked.there[name]]
            if max_staleness is None or any(asked.time - entry.arrived > max_staleness for entry in owed):
                changes = sum(one.changes for one in self._advance(name, owed))
                refreshed |= {name: changes} if changes else {}
        with self._lock:
            if max_staleness is None:
                self._planner.refreshed(self._now())
            return self._answer(asked, refreshed)

    def _stale_answer(self, asked: _Asked, allowed: float) -> Answer | None:
        """The last version, without waiting for a refresh under way, if it is fresh enough."""
        manifest = self._maintainer.manifest
        oldest = [entry.arrived for name in self._tables for entry in self._maintainer.peek(manifest, name)]
        if oldest and asked.time - min(oldest) > allowed:
            return None
        return self._answer(asked, {})

    def _answer(self, asked: _Asked, refreshed: Mapping[str, int]) -> Answer:
        manifest = self._maintainer.manifest
        # Held before anything else is done: refreshes that go on meanwhile would remove the files of an old version.
        with self._store.lease(manifest.version):
            missing: dict[str, int] = {}
            as_of = asked.time
            for name in self._tables:
                for entry in self._maintainer.peek(manifest, name):
                    if entry.name in asked.there[name]:
                        missing[name] = missing.get(name, 0) + entry.changes
                        as_of = min(as_of, entry.arrived)
            frame = self._maintainer.answer(manifest)
            took, promised = time.monotonic() - asked.moment, self._plan.answer_within
            self._times.answered(took, promised)
            read_out = partial(self._times.read_out, took, promised)
            answer = Answer(frame, manifest.version, missing, moment(as_of), took, refreshed, read_out)
            return answer.keep(self._store)

    # -- telling -----------------------------------------------------------------------------------------------

    def progress(self, failed: Mapping[str, str] = MappingProxyType({})) -> Progress:
        """How the view is doing now; `failed` says what stopped streams of changes, by their tables."""
        manifest = self._maintainer.manifest
        waiting, fault = dict.fromkeys(self._tables, 0), self._fault
        for name in self._tables:
            try:
                waiting[name] = sum(entry.changes for entry in self._maintainer.peek(manifest, name))
            except SourceLost as lost:
                fault = lost
        rates = dict(zip(self._tables, self._rates.rates or (0.0,) * len(self._tables), strict=True))
        costs = self._times.costs(self._tables)
        load = self._times.load(rates, self._plan.answer_within)
        pending = sum(cost(n) for cost, n in zip(costs, waiting.values(), strict=True))
        kept, said = self._promise(load, rates, fault)
        if failed:
            stopped = " ".join(f"The stream of changes of {name} failed: {why}" for name, why in failed.items())
            kept, said = False, stopped if kept else f"{stopped} {said}"
        times = self._times
        return Progress(
            version=manifest.version,
            waiting=waiting,
            rates=rates,
            pending_cost=pending,
            bound=allowed(list(waiting.values()), list(rates.values()), costs, times.bound(self._plan.answer_within)),
            costs={name: (cost.setup, cost.each) for name, cost in zip(self._tables, costs, strict=True)},
            refreshes=dict(times.actions),
            work=dict(times.work),
            changes={name: manifest.tables[name].changes for name in self._tables},
            set_aside={name: manifest.tables[name].aside for name in self._tables},
            reads=times.reads,
            reads_in_time=times.reads - times.late,
            slowest_read=times.slowest,
            promise_kept=kept,
            promise=said,
        )

    def _promise(self, load: float, rates: Mapping[str, float], fault: Exception | None) -> tuple[bool, str]:
        promised = format_duration(round(self._plan.answer_within * 1e6))
        if fault is not None:
            return False, f"What waits cannot be brought in: {fault}"
        least = self._times.least()
        if least > self._plan.answer_within:
            possible = format_duration(round(least * 1e6))
            return False, f"Answers within {promised} are not possible: a refresh alone takes {possible}."
        if load > FULL:
            could = ", ".join(f"{name}: {rate * FULL / load:,.0f} a second" for name, rate in rates.items())
            now = ", ".join(f"{name}: {rate:,.0f}" for name, rate in rates.items())
            return False, (
                f"Changes arrive too fast to answer within {promised}: refreshing needs {load:.0%} of the time "
                f"at {now} a second. It could be kept at {could}."
            )
        return True, f"Answers within {promised}: refreshing needs {load:.0%} of the time."


def planner_of(plan: ViewPlan) -> Planner:
    """The planner that a plan names."""
    if plan.planner == "simulate":
        return Simulate(plan.reads_every, steps=200)
    return Naive() if plan.planner == "naive" else Online(memory=_MEMORY, ahead=AHEAD)
