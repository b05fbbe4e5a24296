"""Standing queries that are kept running: registered, grouped, answered, whatever is killed when. No HTTP in it.

Two things happen apart. Calls change the books, durably, and return. The keeper, a thread, makes what runs like what is
in the books: it starts and stops groups, tells them of new members, and looks for new results. So a call never waits
for Spark, many registrations become one change of a group, and after a crash the keeper just begins again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import BadOption, BadQuery, LimitReached, NameTaken, UnknownQuery
from penstock.plan.pipeline.csv_tables import settled
from penstock.plan.pipeline.spec import Pipeline, Query
from penstock.plan.units import parse_duration
from penstock.server.books import Books, Entry
from penstock.server.committed import Committed, first_kept, last_committed
from penstock.server.group import Group
from penstock.server.keeper import Keeper
from penstock.server.limits import Limits
from penstock.server.made import Made, Sources
from penstock.server.making import Maker
from penstock.server.reading import Offset, Page, read_page
from penstock.server.registry import Member, Registry
from penstock.server.telling import columns_of, group_progress, query_status
from penstock.server.views import Views
from penstock.spark.crash import crash_point
from penstock.sql.shapes import RangeAggregate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


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
        self.began = time.monotonic()
        self._books = Books(pipeline.folder)
        try:
            tables = {name: settled(table, pipeline.folder) for name, table in pipeline.tables.items()}
        except BaseException:
            self._books.close()
            raise
        self.pipeline = pipeline = replace(pipeline, tables=tables)
        self._registry = Registry(self._books, Maker(Sources(pipeline, spark)))
        self._lock = self._registry.lock
        self._views = Views(pipeline, spark)
        every = trigger or _spark_trigger(pipeline.trigger)
        self._keeper = Keeper(
            self._registry, self._views, self._kind_of_group, every, self.limits, cores=pipeline.cores
        )
        try:
            self._registry.load()
        except BaseException:
            self._books.close()
            raise

    @property
    def generation(self) -> int:
        """Grows whenever there are new results, or the queries change."""
        return self._registry.generation

    @property
    def _members(self) -> dict[str, Member]:
        return self._registry.members

    @property
    def _groups(self) -> dict[str, Group]:
        return self._keeper.groups

    def start(self) -> Engine:
        """Begin to answer."""
        self._keeper.start()
        return self

    def stop_groups(self) -> None:
        """Finish the micro-batches under way, and start no others; results can still be read."""
        self._keeper.stop()

    def stop(self) -> None:
        """Stop, and let others have the folder."""
        self.stop_groups()
        self._books.close()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def register(self, name: str, text: str) -> dict[str, Any]:
        """A new query, from text. It is on disk when this returns, and answers from the next results on."""
        self._check_new(name, text)
        made = self._registry.maker.text(text)
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
                    self._forget(member)
        for name, said in queries.items():
            if name not in self._members:
                if said.sql is not None:
                    self._add(name, self._registry.maker.text(said.sql), text=said.sql, from_file=True)
                else:
                    made = self._registry.maker.operator(name, said.operator or "", dict(said.options))
                    self._add(name, made, operator=said.operator, options=dict(said.options), from_file=True)

    def _check_new(self, name: str, text: str) -> None:
        if not _NAME.fullmatch(name):
            raise BadOption(
                f"{name[:80]!r} is not a name of a query.",
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
                self._registry.said[id_] = made.said
            place = self._place(id_, made)
            since = last_committed(place) + 1
            if made.kind == RangeAggregate.kind and (newest := Committed(place, pa.schema([])).newest()) is not None:
                since, said = newest, {**said, "begins_with_answer": True}
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            entry = Entry(self._books.next_number("query"), name, id_, since, now, **said)
            self._members[name] = Member(self._books.write(entry), made)
            crash_point("after-books")
            self._registry.changed()
            return self._status(self._members[name])

    def remove(self, name: str) -> None:
        """Forget a query; its group goes with its last one."""
        with self._lock:
            member = self._registry.member(name)
            if member.entry.from_file:
                raise BadOption(
                    f"Query {name!r} is in the pipeline's file.",
                    why="It would come back at the next start as another query, which the sink of this one refuses.",
                    do="Pause it; or take it out of the file, and start the server again.",
                )
            self._forget(member)

    def _forget(self, member: Member) -> None:
        self._books.remove(member.entry)
        del self._members[member.entry.name]
        self._keeper.forget(member.entry)
        crash_point("while-removing")
        self._registry.changed()

    def pause(self, name: str) -> dict[str, Any]:
        """Show no results from here on until it is resumed; none is lost.

        A group whose queries all pause stands still.
        """
        with self._lock:
            member = self._registry.member(name)
            if not member.entry.paused:
                group = self._groups.get(member.entry.group)
                # Without a group yet, as right after a start, by the files: what is there can be read while it pauses.
                place = self._books.folder / "groups" / member.entry.group / (member.made or Made).channel
                until = group.committed.look() if group is not None else last_committed(place)
                member.entry = self._books.change(member.entry, paused=True, until=until)
                self._registry.changed()
            return self._status(member)

    def resume(self, name: str) -> dict[str, Any]:
        """Go on where it was paused."""
        with self._lock:
            member = self._registry.member(name)
            if member.entry.paused:
                member.entry = self._books.change(member.entry, paused=False, until=None)
                self._registry.changed()
            return self._status(member)

    def queries(self) -> list[dict[str, Any]]:
        """All queries and how they are."""
        with self._lock:
            return [self._status(member) for member in self._members.values()]

    def status(self, name: str) -> dict[str, Any]:
        """One query and how it is."""
        with self._lock:
            return self._status(self._registry.member(name))

    def explain(self, text: str) -> dict[str, Any]:
        """What a text would run, with whom it would share, and what that costs; nothing is registered."""
        if len(text) > self.limits.text:
            raise LimitReached(f"The text of a query has at most {self.limits.text:,} characters.")
        made = self._registry.maker.text(text, to_run=False)
        with self._lock:
            id_ = self._group_for(made)
            mates = self._registry.of_group(id_)
        return {
            "kind": made.kind,
            "operator": made.operator,
            "group": id_,
            "shares_with": sorted(mates),
            "columns": columns_of(made.schema),
            "explanation": made.explain(mates, self._groups.get(id_ or "")),
        }

    def results(self, name: str, *, after: Offset | None = None, limit: int | None = None) -> Page:
        """A query's rows from an offset on; those that are there now."""
        with self._lock:
            member = self._registry.member(name)
            entry, made, group = member.entry, member.made, self._groups.get(member.entry.group)
        if made is None:
            raise member.error or BadOption(f"Query {name!r} cannot be answered.")
        if made.is_view:
            raise BadOption(f"{name!r} is a view, which has an answer and no results.", do="Read it: /views/{name}.")
        count = min(limit or self.limits.rows, self.limits.rows)
        if group is None:
            begin = max(entry.since, first_kept(self._place(entry.group, made)))
            return Page(made.schema.empty_table(), after or Offset(begin, 0), False)
        group.committed.look()
        reader = self._keeper.reader(entry, made, group)
        try:
            return read_page(group.committed, reader, after, count, entry.since, entry.until)
        except BadQuery as fault:
            member.error = fault  # it stays so: the rows do
            raise

    def batches(self, name: str, first: int) -> Iterator[tuple[int, pa.Table]]:
        """A query's rows of every batch that is there, from `first` on; batches without rows, too."""
        with self._lock:
            member = self._registry.member(name)
            entry, made, group = member.entry, member.made, self._groups.get(member.entry.group)
        if made is None or group is None:
            return
        reader = self._keeper.reader(entry, made, group)
        last = group.committed.look() if entry.until is None else min(entry.until, group.committed.last)
        for batch in range(max(first, entry.since), last + 1):
            yield batch, reader.rows(batch, group.committed.read(batch)).cast(made.schema)

    def carried(self, name: str, batch: int | None, fault: BaseException | None = None) -> None:
        """The sink of a query has all up to a batch, or cannot be written; what it has not is not deleted."""
        with self._lock:
            member = self._registry.member(name)
            if batch is not None:
                member.carried = max(batch, member.entry.since - 1)
            member.sink_error = fault

    def owner(self, name: str) -> str:
        """What tells this very registration, and what it writes, from all others of its name: those before and after
        it, and those of other folders.
        """
        with self._lock:
            return f"{self._books.id}-{self._registry.member(name).entry.number}"

    def schema(self, name: str) -> pa.Schema:
        """The columns of a query's results."""
        made = self._registry.member(name).made
        if made is None:
            raise self._registry.member(name).error or UnknownQuery(f"Query {name!r} cannot be answered.")
        return made.schema

    def is_view(self, name: str) -> bool:
        """Whether a query is a view, which is read and has no results."""
        made = self._registry.member(name).made
        return made is not None and made.is_view

    @property
    def folder(self) -> Path:
        """Where everything is kept."""
        return self._books.folder

    def read_view(self, name: str, max_staleness: str | None = None) -> dict[str, Any]:
        """A view's answer: rows, and how fresh they are."""
        with self._lock:
            member = self._registry.member(name)
        if member.made is None or not member.made.is_view:
            raise BadOption(f"{name!r} is not a view.", do="Read its results: /queries/{name}/results.")
        return self._views.read(name, max_staleness, self.limits.rows)

    def catalogue(self) -> dict[str, Any]:
        """The streams and tables that queries may name, with their columns."""
        streams = [
            {"name": s.name, "format": s.format, "time": s.time, "columns": columns_of(s.columns)}
            for s in self.pipeline.streams.values()
        ]
        tables = [
            {"name": t.name, "key": list(t.key), "columns": columns_of(t.columns), "changes": t.changes is not None}
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
            "uptime_seconds": time.monotonic() - self.began,
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
            known = {id_: group.state for id_, group in self._groups.items()} | dict.fromkeys(
                self._keeper.broken, "failed"
            )
            return all(known.get(id_) in ("ended", "failed") for id_ in wanted)

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

    def _group_for(self, made: Made) -> str | None:
        """The group that can answer a query; the oldest of them."""
        for id_, said in self._registry.said.items():
            if self._keeper.refused(id_):
                continue
            if made.fits(said) and made.has_room(self._groups.get(id_), self._registry.of_group(id_).values()):
                return id_
        return None

    def _place(self, id_: str, made: Made) -> Path:
        return self._books.folder / "groups" / id_ / made.channel

    def _fault(self, member: Member) -> BaseException | None:
        if member.error is not None:
            return member.error
        if member.made is not None and member.made.is_view:
            return self._views.fault(member.entry.name)
        return self._keeper.fault(member.entry.group)

    def _status(self, member: Member) -> dict[str, Any]:
        entry, made = member.entry, member.made
        fault = self._fault(member)
        state = "paused" if entry.paused else "failed" if fault is not None else self._keeper.state(entry)
        if state == "starting" and made is not None and made.is_view and self._views.is_open(entry.name):
            state = "running"
        return query_status(member, self._groups.get(entry.group), state, fault)


def _spark_trigger(every: str | None) -> dict[str, Any]:
    """How often micro-batches run, as Spark has it."""
    if every is None:
        return {"availableNow": True}
    return {"processingTime": f"{parse_duration(every, option='trigger') // 1000} milliseconds"}
