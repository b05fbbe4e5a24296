"""Makes what runs like what is registered: one thread that starts and stops groups and tells them who is in them.

It compares, and mends what differs; after a crash it begins with the same comparison, so there is no other recovery.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock.errors import BadQuery, CheckpointMismatch, PenstockError
from penstock.server.books import Entry
from penstock.server.group import Group
from penstock.server.limits import Limits
from penstock.server.made import Made
from penstock.server.reading import Reader
from penstock.server.registry import Member, Registry
from penstock.server.views import Views
from penstock.sql.shapes import RangeAggregate

log = logging.getLogger("penstock.server")
#: Seconds between two looks.
_LOOK = 0.1
#: Seconds until a group in trouble is looked after again.
_AGAIN = 5.0
#: Rows times queries of a batch up to which results are counted for each query.
_COUNTED = 5_000_000


class Keeper:
    """The groups that run.

    Guarantees
        A group that cannot be, or fails, touches no other: `test_queries_are_grouped_answered_and_fail_alone`.
        A query is told to its group before it is said to run, so that rows that come from then on are joined for it:
        `test_a_query_runs_when_its_group_was_told`.
    """

    def __init__(
        self,
        registry: Registry,
        views: Views,
        kind: type[Group],
        trigger: Mapping[str, Any],
        limits: Limits,
        cores: int,
    ) -> None:
        self._registry, self._views, self._kind = registry, views, kind
        self._trigger, self._limits = trigger, limits
        self._at_once = max(1, cores // 2)
        self.groups: dict[str, Group] = {}
        self.broken: dict[str, BaseException] = {}
        self.troubled: dict[str, BaseException] = {}
        self._again: dict[str, float] = {}
        self._told: dict[str, set[int]] = {}
        self._counted: dict[str, int] = {}
        self._seen: dict[str, tuple[str, int]] = {}
        self._readers: dict[int, Reader] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._keep, name="penstock-keeper", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the micro-batches under way, close views, and start no others."""
        self._stopping = True
        self._registry.wake.set()
        if self._thread.is_alive():
            self._thread.join(120)
        threads = [threading.Thread(target=group.stop) for group in self.groups.values()]
        threads += [threading.Thread(target=self._views.close)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        self._registry.generation += 1

    def state(self, entry: Entry) -> str:
        """How the group of a query is, as far as the query goes: it runs once its group knows of it."""
        group = self.groups.get(entry.group)
        if group is None or entry.number not in self._told.get(entry.group, ()):
            return "starting"
        return group.state if group.state in ("running", "ended") else "starting"

    def fault(self, id_: str) -> BaseException | None:
        """Why a group does not run."""
        group = self.groups.get(id_)
        return self.broken.get(id_) or self.troubled.get(id_) or (group.error if group is not None else None)

    def refused(self, id_: str) -> bool:
        """Whether a group cannot go on from its checkpoint: nobody should come to it."""
        return isinstance(self.fault(id_), CheckpointMismatch)

    def reader(self, entry: Entry, made: Made, group: Group) -> Reader:
        """A query's reader; the same for all who read it, because some go on from where they were."""
        with self._registry.lock:
            if entry.number not in self._readers:
                self._readers[entry.number] = made.reader(entry, group)
            return self._readers[entry.number]

    def forget(self, entry: Entry) -> None:
        """A query is gone."""
        self._readers.pop(entry.number, None)

    def _keep(self) -> None:
        while not self._stopping:
            self._registry.wake.wait(_LOOK)
            self._registry.wake.clear()
            try:
                self._reconcile()
            except Exception:
                log.exception("the keeper failed; it goes on")
                time.sleep(1)

    def _reconcile(self) -> None:
        with self._registry.lock:
            members = list(self._registry.members.values())
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
            if not (mine[0].made is not None and mine[0].made.is_view) and time.monotonic() >= self._again.get(
                id_, 0.0
            ):
                self._keep_alone(id_, mine)
        self._drop({member.entry.group for member in members})

    def _keep_alone(self, id_: str, members: list[Member]) -> None:
        """Look after a group; what goes wrong, a full disk for one, is its own trouble, and tried again in a while."""
        try:
            self._keep_group(id_, members)
            if self.troubled.pop(id_, None) is not None:
                self._registry.generation += 1
        except Exception as fault:
            log.warning("group %s is in trouble: %s", id_, fault)
            self.troubled[id_], self._again[id_] = fault, time.monotonic() + _AGAIN
            self._registry.generation += 1

    def _keep_group(self, id_: str, members: list[Member]) -> None:
        group = self.groups.get(id_) or self._made(id_)
        made = members[0].made
        if group is None or made is None:
            return
        told = {m.entry.number: m.made for m in members if m.made is not None}
        if self._told.get(id_) != told.keys():
            made.tell(group, told)
            self._told[id_] = set(told)
            self._registry.generation += 1
        active = any(not member.entry.paused for member in members)
        if active and group.wants_start and self._has_turn():
            group.start(self._trigger)
        elif not active and group.state == "running":
            group.stop()
        group.poll()
        now = group.state, group.committed.last
        # Whoever reads looks for new batches, too: what is news is what was not seen here.
        if now != self._seen.get(id_):
            self._seen[id_] = now
            self._count(group, members)
            self._registry.generation += 1
            if made.kind != RangeAggregate.kind:  # whose answers follow from all messages
                # What a sink has not got yet would be missing from it for ever.
                carried = [member.carried + 1 for member in members if member.carried is not None]
                group.committed.trim(self._limits.kept, min([group.committed.last, *carried]))

    def _has_turn(self) -> bool:
        """Whether another group can begin. Each starts Python processes, for which Spark waits 10 seconds, no longer:
        where all begin at once, on few cores, all fail, and would again and again.
        """
        return sum(group.beginning for group in self.groups.values()) < self._at_once

    def _made(self, id_: str) -> Group | None:
        """The group of this name, or None where it cannot be."""
        if id_ in self.broken:
            return None
        registry = self._registry
        try:
            folder = registry.books.folder / "groups" / id_
            group = self._kind(id_, folder, registry.maker.making(registry.said[id_]))
        except Exception as fault:
            log.warning("group %s cannot be: %s", id_, fault)
            with registry.lock:
                self.broken[id_] = fault
                registry.generation += 1
            return None
        self._counted[id_] = group.committed.last
        with registry.lock:
            self.groups[id_] = group
        return group

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
                    try:
                        member.rows += self.reader(member.entry, member.made, group).rows(batch, results).num_rows
                    except BadQuery as fault:
                        member.error = fault
                    except (PenstockError, pa.ArrowException):
                        pass  # who reads it is told

    def _drop(self, groups: Iterable[str]) -> None:
        """Stop and delete groups that nobody needs any more."""
        registry, needed = self._registry, set(groups)
        for id_ in [id_ for id_ in registry.said if id_ not in needed]:
            with registry.lock:
                if any(member.entry.group == id_ for member in registry.members.values()):
                    continue  # registered meanwhile
                del registry.said[id_]
                group = self.groups.pop(id_, None)
                self.broken.pop(id_, None)
                self.troubled.pop(id_, None)
                self._told.pop(id_, None)
                self._counted.pop(id_, None)
                self._seen.pop(id_, None)
            if group is not None:
                group.stop()
            registry.books.delete_group(id_)
            registry.generation += 1
