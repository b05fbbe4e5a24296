"""Queries on Spark: one flow for each group, one channel of it for each query."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadOption
from penstock.operators.join_streams import archive as archive_places
from penstock.plan.answering import AnsweringPlan
from penstock.plan.base import Plan
from penstock.spark.checkpoint import begun_as
from penstock.spark.queries import answered, chosen, is_plain, is_usual, named
from penstock.spark.runtime import run
from penstock.spark.slots import usual_slots
from penstock.sql.answers import Answer
from penstock.sql.groups import Group, explain
from penstock.sql.parse import Query
from penstock.sql.plans import inputs_of, plan_of, reads_again
from penstock.sql.shapes import BandJoin, RangeAggregate, Selection, SelectJoin, TableJoin, WindowJoin
from penstock.tables.places import place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.operators.view import View
    from penstock.spark.flow import Flow
    from penstock.spark.running import Running

#: Seconds for which one of several queries is waited for, before the next.
_TURN = 0.5
#: How many groups begin at once, and for how many seconds one more waits at the most.
_AT_ONCE, _BEGINS = max(2, (os.cpu_count() or 1) // 2), 20.0


class Standing:
    """Queries that can be started: as few flows as they need, each shared by all queries of its shape."""

    def __init__(self, queries: Mapping[str, Query], groups: Sequence[Opened], views: Mapping[str, View]) -> None:
        self.queries = dict(queries)
        self.groups = tuple(groups)
        #: The views among them, open; `views[name].start()` keeps one fresh, `read()` reads it.
        self.views = dict(views)

    @property
    def flows(self) -> tuple[Flow, ...]:
        """The flows, one for each group."""
        return tuple(one.flow for one in self.groups)

    @property
    def results(self) -> DataFrame:
        """The results of the only query, as a streaming DataFrame."""
        if len(self.queries) != 1:
            raise BadOption(
                f"There are {len(self.queries)} queries.",
                why="A DataFrame for each would run the join once for each.",
                do='Write them by one query: .start(results="out/", checkpoint="ck/"); or read one: .channel("name").',
            )
        return self.channel(next(iter(self.queries)))

    def channel(self, name: str) -> DataFrame:
        """The results of a query as a streaming DataFrame, which runs its group's flow for it alone."""
        for one in self.groups:
            if name in one.group.queries:
                return one.channel(name)
        raise BadOption(
            f"There is no query {name!r} with a stream of results.", do=f"There are: {', '.join(self.queries)}."
        )

    def start(
        self,
        *,
        results: str | os.PathLike[str],
        checkpoint: str | os.PathLike[str],
        set_aside: str | os.PathLike[str] | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> Started:
        """Write the results of every query as Parquet, each row exactly once, with one Spark query for each group.

        One query writes to `results` itself, several to a directory below it, by their names. What is late or cannot be
        used goes below `set_aside`, by group and channel.
        """
        place, kept = place_of(results, "results"), place_of(checkpoint, "checkpoint")
        started: list[Running] = []
        try:
            for one in self.groups:
                _wait_for_turn(started)
                running = one.start(place, kept, set_aside, trigger, only=len(self.queries) == 1)
                started.append(running)
        except BaseException:
            for running in started:
                running.stop()
            raise
        return Started(started)

    def explain(self) -> str:
        """For every query what it is, with whom it shares, what will run, and what that costs."""
        texts = []
        for name, query in self.queries.items():
            others = {other: its for other, its in self.queries.items() if other != name}
            slots = next((one.plan.slots for one in self.groups if name in one.group.queries), 1)
            title = f"{name}\n" if len(self.queries) > 1 else ""
            texts.append(title + explain(query, others, slots=slots))
        return "\n\n".join(texts)


@dataclass(frozen=True)
class Started:
    """The Spark queries of standing queries."""

    running: Sequence[Running]

    @property
    def active(self) -> bool:
        """Whether any still runs."""
        return any(one.active for one in self.running)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all have ended (True) or the time is over (False). Raises what went wrong with any of them.

        Ctrl-C meanwhile stops all, and is raised after that.
        """
        until = math.inf if seconds is None else time.monotonic() + seconds
        waiting = list(self.running)
        try:
            while waiting:
                # One after the other for a short while each: who waits for the first alone does not hear of the second.
                waiting = [one for one in waiting if not one.wait(min(_TURN, until - time.monotonic()))]
                if time.monotonic() >= until:
                    break
        except KeyboardInterrupt:
            self.stop()
            raise
        return not waiting

    def stop(self) -> None:
        """Finish the micro-batches under way, and end."""
        for one in self.running:
            one.stop()


class Opened:
    """A group over its streams."""

    def __init__(self, group_: Group, frames: Mapping[str, DataFrame], slots: int | None) -> None:
        self.group = group_
        self._frames, self._slots = frames, slots
        first = frames[group_.sources[0]]
        inner = plan_of(group_, slots=usual_slots(first.sparkSession) if slots is None else slots)
        assert isinstance(inner, Plan)
        # Also of one query alone: another that takes its place has its own output, which begins with it.
        self.channels = {name: f"results_{name}" for name in group_.queries}
        self.plan = AnsweringPlan(
            inner,
            {channel: partial(_made, group_, name) for name, channel in self.channels.items()},
            texts="; ".join(f"{name}: {' '.join(query.text.split())}" for name, query in group_.queries.items()),
            fixed=isinstance(group_.shape, BandJoin | SelectJoin | RangeAggregate),
            reads={channel: group_.channel(name) for name, channel in self.channels.items()},
        )
        inputs = [named(frames[one.stream], one.columns, one.every) for one in inputs_of(group_)]
        self.flow: Flow = run(self.plan, inputs)

    @property
    def id(self) -> str:
        """A name for its checkpoint: the same whichever queries of its shape there are."""
        said = hashlib.sha256(repr(self.group.shape.group_key).encode()).hexdigest()[:10]
        return f"{self.group.shape.kind.replace(' ', '-')}-{said}"

    def _begun(self, checkpoint: Path) -> Flow:
        """Its flow, reading what it read when it began, if other queries were in it then."""
        said = begun_as(checkpoint).get("stream columns")
        if said is None or not isinstance(self.group.shape, Selection | TableJoin):
            return self.flow
        group_ = reads_again(self.group, said)
        return self.flow if group_ == self.group else Opened(group_, self._frames, self._slots).flow

    def channel(self, name: str) -> DataFrame:
        """The results of a query: of a selection by Spark's own expressions where they say the same, of others from
        the flow.
        """
        query = self.group.queries[name]
        if isinstance(query.shape, Selection):
            frame = self._frames[query.shape.stream]
            parts = [item for _, item in query.columns] + ([query.filter] if query.filter is not None else [])
            if is_plain(parts) and is_usual(frame.sparkSession):
                return chosen(frame, query.filter, query.columns, query.schema)
            return answered(frame, self.group.answer(name), query.schema)
        return self.flow.channel(self.channels[name])

    def start(
        self, results: Path, checkpoint: Path, aside: str | os.PathLike[str] | None, trigger: Any, *, only: bool
    ) -> Running:
        """Write the results of all its queries, and what the text says is to be kept beside them."""
        places = {channel: str(results if only else results / name) for name, channel in self.channels.items()}
        shape = self.group.shape
        if isinstance(shape, WindowJoin) and shape.archive is not None:
            places |= archive_places(shape.archive)
        if isinstance(shape, TableJoin) and shape.archive is not None:
            places["shed"] = shape.archive
        flow = self._begun(checkpoint / self.id)
        if aside is not None:
            others = [channel for channel in flow.channels if channel not in places]
            places |= {channel: str(Path(aside) / self.id / channel) for channel in others}
        return flow.start(checkpoint=str(checkpoint / self.id), trigger=trigger, **places)


def _wait_for_turn(started: Sequence[Running]) -> None:
    until = time.monotonic() + _BEGINS
    while sum(one.beginning for one in started) >= _AT_ONCE and time.monotonic() < until:
        time.sleep(0.05)


def _made(group_: Group, name: str) -> Answer:
    return group_.answer(name)
