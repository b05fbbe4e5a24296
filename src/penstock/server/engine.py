"""Standing queries that are kept running: registered, grouped, answered, whatever is killed when. No HTTP in it.

Two things happen apart. Calls change the books, durably, and return. The keeper, a thread, makes what runs like what is
in the books: it starts and stops groups, tells them of new members, and looks for new results. So a call never waits
for Spark, many registrations become one change of a group, and after a crash the keeper just begins again.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import BadOption, LimitReached, NameTaken, PenstockError, UnknownQuery
from penstock.kernels.contract import RESULTS
from penstock.plan.pipeline.spec import Pipeline, Query
from penstock.plan.units import parse_duration
from penstock.server.books import Books, Entry
from penstock.server.committed import Committed, last_committed
from penstock.server.group import Group, told_error
from penstock.server.limits import Limits
from penstock.server.making import Made, Maker
from penstock.server.reading import Offset, Page, Reader, read_page
from penstock.server.telling import group_progress
from penstock.server.views import Views
from penstock.sql.shapes import RangeAggregate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("penstock.server")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
#: Seconds between two looks of the keeper.
_LOOK = 0.1
#: Rows times queries of a batch up to which results are counted for each query.
_COUNTED = 5_000_000


class Member:
    """A registered query and what it takes to read its results; `error` says why it cannot be answered."""

    def __init__(self, entry: Entry, made: Made | None, error: PenstockError | None = None) -> None:
        self.entry = entry
        self.made = made
        self.error = error
        #: Results of batches that were committed since the server started.
        self.rows: int | None = 0


class Engine:
    """All queries of one folder.

    Guarantees
        What a call has done is done: after a crash at any moment and a restart, every query that was registered is
        there, answers from the batch at which it was registered, and no result is lost or there twice:
        `tests/server/test_restart.py`.
        A query that cannot be answered touches no other: `test_a_failing_group_touches_no_other`.
    State and cost
        One file a query, one Spark query a group. Results are kept once for each group, as Parquet; reading them
        through a query's filter costs the reader.
    """

    #: Tests have groups that start no Spark.
    _kind_of_group: type[Group] = Group

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        *,
        limits: Limits | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.pipeline = pipeline
        self.began = time.time()
        #: Grows whenever there are new results, or the queries change.
        self.generation = 0
        self._trigger = trigger or _spark_trigger(pipeline.trigger)
        self._books = Books(pipeline.folder)
        self._maker = Maker(pipeline, spark)
        self._views = Views(pipeline, spark)
        self._members: dict[str, Member] = {}
        self._groups: dict[str, Group] = {}
        #: What each group says of itself.
        self._said: dict[str, dict[str, Any]] = {}
        self._readers: dict[int, Reader] = {}
        self._broken: dict[str, BaseException] = {}
        self._told: dict[str, set[int]] = {}
        self._counted: dict[str, int] = {}
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stopping = False
        self._keeper = threading.Thread(target=self._keep, name="penstock-keeper", daemon=True)
        try:
            self._load()
        except BaseException:
            self._books.close()
            raise

    def _load(self) -> None:
        """What is in the books."""
        self._said = self._books.groups()
        for entry in self._books.entries():
            made, error = None, None
            try:
                made = self._made(entry)
                if entry.group not in self._said or not made.fits(self._said[entry.group]):
                    raise BadOption(
                        f"Query {entry.name!r} would now be answered by another group than it was.",
                        why="A stream, a table or the way queries are understood has changed.",
                        do="Remove the query and register it again.",
                    )
            except PenstockError as fault:
                made, error = None, fault
            self._members[entry.name] = Member(entry, made, error)

    def start(self) -> Engine:
        """Begin to answer."""
        self._keeper.start()
        return self

    def stop_groups(self) -> None:
        """Finish the micro-batches under way, and start no others; results can still be read."""
        self._stopping = True
        self._wake.set()
        if self._keeper.is_alive():
            self._keeper.join(120)
        threads = [threading.Thread(target=group.stop) for group in self._groups.values()]
        threads += [threading.Thread(target=self._views.close)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        self.generation += 1

    def stop(self) -> None:
        """Stop, and let others have the folder."""
        self.stop_groups()
        self._books.close()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def register(self, name: str, text: str) -> dict[str, Any]:
        """A new query, from text. It is on disk when this returns, and answers from the next results on."""
        self._check_new(name, text)
        made = self._maker.text(text)
        return self._add(name, made, text=text)

    def agree(self, queries: Mapping[str, Query]) -> None:
        """Have those queries of a file registered, and those that it had before and has no more removed.

        One that is written differently now is another query: it begins anew.
        """
        with self._lock:
            for name, member in list(self._members.items()):
                entry, said = member.entry, queries.get(name)
                same = said is not None and (entry.text, entry.operator, entry.options) == (
                    said.sql,
                    said.operator,
                    dict(said.options),
                )
                if said is not None and not entry.from_file:
                    raise NameTaken(f"There is a query {name!r} that is not from this file.", do="Rename one of them.")
                if entry.from_file and not same:
                    self.remove(name)
        for name, said in queries.items():
            if name not in self._members:
                if said.sql is not None:
                    self._add(name, self._maker.text(said.sql), text=said.sql, from_file=True)
                else:
                    made = self._maker.operator(name, said.operator or "", dict(said.options))
                    self._add(name, made, operator=said.operator, options=dict(said.options), from_file=True)

    def _check_new(self, name: str, text: str) -> None:
        if not _NAME.fullmatch(name):
            raise BadOption(
                f"{name[:80]!r} is no name of a query.",
                do="Letters, digits and underscores, a letter first; at most 63.",
            )
        if len(text) > self.limits.text:
            raise LimitReached(f"The text of a query has at most {self.limits.text:,} characters.")

    def _add(self, name: str, made: Made, **said: Any) -> dict[str, Any]:
        with self._lock:
            if name in self._members:
                raise NameTaken(f"There is a query {name!r}.", do="Choose another name, or remove that one first.")
            if len(self._members) >= self.limits.queries:
                raise LimitReached(f"There are {len(self._members):,} queries, as many as may be.", do="Remove some.")
            id_ = self._group_for(made)
            if id_ is None:
                id_ = f"g{self._books.next_number('group')}"
                self._books.write_group(id_, made.said)
                self._said[id_] = made.said
            since = last_committed(self._books.folder / "groups" / id_ / RESULTS) + 1
            if made.kind == RangeAggregate.kind and (newest := self._newest_message(id_)) is not None:
                since, said = newest, {**said, "begins_with_answer": True}
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            entry = Entry(self._books.next_number("query"), name, id_, since, now, **said)
            self._members[name] = Member(self._books.write(entry), made)
            self._changed()
            return self._status(self._members[name])

    def remove(self, name: str) -> None:
        """Forget a query; its group goes with its last one."""
        with self._lock:
            member = self._member(name)
            self._books.remove(member.entry)
            del self._members[name]
            self._readers.pop(member.entry.number, None)
            self._changed()

    def pause(self, name: str) -> dict[str, Any]:
        """Show no results from here on until it is resumed; none is lost.

        A group whose queries all pause stands still.
        """
        with self._lock:
            member = self._member(name)
            if not member.entry.paused:
                group = self._groups.get(member.entry.group)
                until = group.committed.look() if group is not None else member.entry.since - 1
                member.entry = self._books.change(member.entry, paused=True, until=until)
                self._changed()
            return self._status(member)

    def resume(self, name: str) -> dict[str, Any]:
        """Go on where it was paused."""
        with self._lock:
            member = self._member(name)
            if member.entry.paused:
                member.entry = self._books.change(member.entry, paused=False, until=None)
                self._changed()
            return self._status(member)

    def queries(self) -> list[dict[str, Any]]:
        """All queries and how they are."""
        with self._lock:
            return [self._status(member) for member in self._members.values()]

    def status(self, name: str) -> dict[str, Any]:
        """One query and how it is."""
        with self._lock:
            return self._status(self._member(name))

    def explain(self, text: str) -> dict[str, Any]:
        """What a text would run, with whom it would share, and what that costs; nothing is registered."""
        if len(text) > self.limits.text:
            raise LimitReached(f"The text of a query has at most {self.limits.text:,} characters.")
        made = self._maker.text(text)
        with self._lock:
            id_ = self._group_for(made)
            mates = {
                m.entry.name: m.made for m in self._members.values() if m.entry.group == id_ and m.made is not None
            }
        return {
            "kind": made.kind,
            "operator": made.operator,
            "group": id_,
            "shares_with": sorted(mates),
            "columns": _columns(made.schema),
            "explanation": made.explain(mates),
        }

    def results(self, name: str, *, after: Offset | None = None, limit: int | None = None) -> Page:
        """A query's rows from an offset on; those that are there now."""
        with self._lock:
            member = self._member(name)
            entry, made, group = member.entry, member.made, self._groups.get(member.entry.group)
        if made is None:
            raise member.error or BadOption(f"Query {name!r} cannot be answered.")
        if made.is_view:
            raise BadOption(f"{name!r} is a view, which has an answer and no results.", do="Read it: /views/{name}.")
        count = min(limit or self.limits.rows, self.limits.rows)
        if group is None:
            return Page(made.schema.empty_table(), after or Offset(entry.since, 0), False)
        group.committed.look()
        return read_page(group.committed, self._reader(entry, made, group), after, count, entry.since, entry.until)

    def batches(self, name: str, first: int) -> Iterator[tuple[int, pa.Table]]:
        """A query's rows of every batch that is there, from `first` on; batches without rows, too."""
        with self._lock:
            member = self._member(name)
            entry, made, group = member.entry, member.made, self._groups.get(member.entry.group)
        if made is None or group is None:
            return
        reader = self._reader(entry, made, group)
        last = group.committed.look() if entry.until is None else min(entry.until, group.committed.last)
        for batch in range(max(first, entry.since), last + 1):
            yield batch, reader.rows(batch, group.committed.read(batch)).cast(made.schema)

    def owner(self, name: str) -> str:
        """A name for what this very registration writes, that nothing else ever has."""
        with self._lock:
            return f"{self._books.id}-{self._member(name).entry.number}"

    def schema(self, name: str) -> pa.Schema:
        """The columns of a query's results."""
        made = self._member(name).made
        if made is None:
            raise self._member(name).error or UnknownQuery(f"Query {name!r} cannot be answered.")
        return made.schema

    def is_view(self, name: str) -> bool:
        """Whether a query is a view, which is read and has no results."""
        made = self._member(name).made
        return made is not None and made.is_view

    @property
    def folder(self) -> Path:
        """Where everything is kept."""
        return self._books.folder

    def read_view(self, name: str, max_staleness: str | None = None) -> dict[str, Any]:
        """A view's answer: rows, and how fresh they are."""
        with self._lock:
            member = self._member(name)
        if member.made is None or not member.made.is_view:
            raise BadOption(f"{name!r} is no view.", do="Read its results: /queries/{name}/results.")
        return self._views.read(name, max_staleness, self.limits.rows)

    def catalogue(self) -> dict[str, Any]:
        """The streams and tables that queries may name, with their columns."""
        streams = [
            {"name": s.name, "format": s.format, "time": s.time, "columns": _columns(s.columns)}
            for s in self.pipeline.streams.values()
        ]
        tables = [
            {"name": t.name, "key": list(t.key), "columns": _columns(t.columns), "changes": t.changes is not None}
            for t in self.pipeline.tables.values()
        ]
        return {"streams": streams, "tables": tables}

    def progress(self) -> dict[str, Any]:
        """Every group: rows, rates, backlog, memory against budget, shed and recall, predicted against measured."""
        with self._lock:
            groups = list(self._groups.values())
            members = list(self._members.values())
        told = [group_progress(group, [m.entry.name for m in members if m.entry.group == group.id]) for group in groups]
        states = [self._status(member)["state"] for member in members]
        return {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "uptime_seconds": time.time() - self.began,
            "queries": {"all": len(members), **{state: states.count(state) for state in sorted(set(states))}},
            "memory": {
                "budget_bytes": sum(group["memory"]["budget_bytes"] or 0 for group in told),
                "held_bytes": sum(group["memory"]["held_bytes"] or 0 for group in told),
            },
            "groups": told,
            "views": self._views.progress(),
        }

    def ended(self) -> bool:
        """Whether every group has come to its end: of runs that end by themselves."""
        with self._lock:
            wanted = {m.entry.group for m in self._members.values() if m.made is not None and not m.made.is_view}
            return all(id_ in self._groups and self._groups[id_].state in ("ended", "failed") for id_ in wanted)

    def failures(self) -> dict[str, BaseException]:
        """Queries that cannot be answered now, with the reason."""
        with self._lock:
            found: dict[str, BaseException] = {}
            for name, member in self._members.items():
                fault = self._fault(member)
                if fault is not None:
                    found[name] = fault
            return found

    # -- inside --------------------------------------------------------------------------------------------------------

    def _made(self, entry: Entry) -> Made:
        if entry.text is not None:
            return self._maker.text(entry.text)
        return self._maker.operator(entry.name, entry.operator or "", entry.options)

    def _member(self, name: str) -> Member:
        found = self._members.get(name)
        if found is None:
            raise UnknownQuery.among(str(name)[:80], self._members)
        return found

    def _group_for(self, made: Made) -> str | None:
        """The group that can answer a query; the oldest of them."""
        return next((id_ for id_, said in self._said.items() if made.fits(said)), None)

    def _newest_message(self, id_: str) -> int | None:
        return Committed(self._books.folder / "groups" / id_ / RESULTS, pa.schema([])).newest()

    def _reader(self, entry: Entry, made: Made, group: Group) -> Reader:
        """A query's reader; the same for all who read it, because some go on from where they were."""
        with self._lock:
            if entry.number not in self._readers:
                self._readers[entry.number] = made.reader(entry, group)
            return self._readers[entry.number]

    def _changed(self) -> None:
        self.generation += 1
        self._wake.set()

    def _fault(self, member: Member) -> BaseException | None:
        if member.error is not None:
            return member.error
        if member.made is not None and member.made.is_view:
            return self._views.fault(member.entry.name)
        group = self._groups.get(member.entry.group)
        return self._broken.get(member.entry.group) or (group.error if group is not None else None)

    def _status(self, member: Member) -> dict[str, Any]:
        entry, made = member.entry, member.made
        group = self._groups.get(entry.group)
        fault = self._fault(member)
        state = "paused" if entry.paused else "failed" if fault is not None else "starting"
        if state == "starting" and made is not None and made.is_view and self._views.is_open(entry.name):
            state = "running"
        if state == "starting" and group is not None and group.state in ("running", "ended"):
            state = group.state
        return {
            "name": entry.name,
            "text": entry.text,
            "operator": made.operator if made is not None else entry.operator,
            "kind": made.kind if made is not None else "unknown",
            "state": state,
            "error": told_error(fault),
            "group": entry.group,
            "registered_at": entry.registered_at,
            "since_batch": entry.since,
            "columns": _columns(made.schema) if made is not None else [],
            "rows_since_start": member.rows,
            "response_seconds": group.response() if group is not None else None,
        }

    # -- the keeper ----------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._stopping:
            self._wake.wait(_LOOK)
            self._wake.clear()
            try:
                self._reconcile()
            except Exception:
                log.exception("the keeper failed; it goes on")
                time.sleep(1)

    def _reconcile(self) -> None:
        with self._lock:
            members = list(self._members.values())
        wanted: dict[str, list[Member]] = {}
        for member in members:
            if member.made is not None:
                wanted.setdefault(member.entry.group, []).append(member)
        views = {m.entry.number: m for m in members if m.made is not None and m.made.is_view}
        open_ = {m.entry.name: (number, m.made) for number, m in views.items() if not m.entry.paused}
        self._views.keep(open_, views.keys())
        for id_, mine in wanted.items():
            if self._stopping:
                return
            if not (mine[0].made is not None and mine[0].made.is_view):
                self._keep_group(id_, mine)
        self._drop({member.entry.group for member in members})

    def _keep_group(self, id_: str, members: list[Member]) -> None:
        group = self._groups.get(id_)
        made = members[0].made
        assert made is not None
        if group is None:
            if id_ in self._broken:
                return
            try:
                group = self._kind_of_group(
                    id_, self._books.folder / "groups" / id_, self._maker.making(self._said[id_])
                )
            except Exception as fault:
                log.warning("group %s cannot be: %s", id_, fault)
                with self._lock:
                    self._broken[id_] = fault
                    self.generation += 1
                return
            self._counted[id_] = group.committed.last
            with self._lock:
                self._groups[id_] = group
        entries = [member.entry for member in members]
        told = {m.entry.number: m.made for m in members if m.made is not None}
        if self._told.get(id_) != told.keys():
            made.tell(group, told)
            self._told[id_] = set(told)
        before = group.state, group.committed.last
        active = any(not entry.paused for entry in entries)
        if active and group.wants_start:
            group.start(self._trigger)
        elif not active and group.state == "running":
            group.stop()
        group.poll()
        if (group.state, group.committed.last) != before:
            self._count(group, members)
            self.generation += 1
            if made.kind != RangeAggregate.kind:  # whose answers follow from all messages
                group.committed.trim(self.limits.kept, group.committed.last)

    def _count(self, group: Group, members: list[Member]) -> None:
        """Count the new results of each query, where that is not too much work."""
        begin = self._counted[group.id]
        self._counted[group.id] = group.committed.last
        for batch in range(begin + 1, group.committed.last + 1):
            if group.committed.following(batch) != batch:
                continue
            results = group.committed.read(batch)
            for member in members:
                if results.num_rows * len(members) > _COUNTED:
                    member.rows = None
                elif member.made is not None and member.rows is not None and batch >= member.entry.since:
                    with contextlib.suppress(PenstockError, pa.ArrowException):
                        member.rows += self._reader(member.entry, member.made, group).rows(batch, results).num_rows

    def _drop(self, groups: set[str]) -> None:
        """Stop and delete groups that nobody needs any more."""
        for id_ in [id_ for id_ in self._said if id_ not in groups]:
            with self._lock:
                if any(member.entry.group == id_ for member in self._members.values()):
                    continue  # registered meanwhile
                del self._said[id_]
                group = self._groups.pop(id_, None)
                for notes in (self._broken, self._told, self._counted):
                    notes.pop(id_, None)
            if group is not None:
                group.stop()
            self._books.delete_group(id_)
            self.generation += 1


def _spark_trigger(every: str | None) -> dict[str, Any]:
    """How often micro-batches run, as Spark has it."""
    if every is None:
        return {"availableNow": True}
    return {"processingTime": f"{parse_duration(every, option='trigger') // 1000} milliseconds"}


def _columns(schema: pa.Schema) -> list[dict[str, str]]:
    return [{"name": field.name, "type": str(field.type)} for field in schema]
