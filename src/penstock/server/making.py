"""From a query as it was written to what the engine needs of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadOption, PenstockError
from penstock.kernels.contract import RESULTS
from penstock.plan.pipeline.csv_tables import table_path
from penstock.plan.pipeline.operators import Planned, plan_of
from penstock.server.books import Entry
from penstock.server.group import Group
from penstock.server.made import Made, Sources
from penstock.server.reading import Everything, Reader
from penstock.server.texts import made_of
from penstock.spark.runtime import run
from penstock.sql.catalogue import Catalogue, Relation, Stream
from penstock.sql.parse import parse

if TYPE_CHECKING:
    from penstock.plan.base import Plan
    from penstock.spark.flow import Flow


class Maker:
    """Makes queries of texts and options."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._catalogue: Catalogue | None = None
        self._begun: dict[str, Maker] = {}

    def as_begun(self, said: Mapping[str, Any]) -> Maker:
        """One that knows streams as a group began with them; the same for all groups that began so."""
        then = json.dumps([said["columns"], said["cores"]])
        if then not in self._begun:
            self._begun[then] = Maker(self.sources.as_begun(said))
        return self._begun[then]

    @property
    def catalogue(self) -> Catalogue:
        """What texts may name."""
        if self._catalogue is None:
            self._catalogue = catalogue_of(self.sources)
        return self._catalogue

    def operator(self, name: str, operator: str, options: dict[str, Any]) -> Made:
        """A query as an operator and its options. Raises the first fault; `operator_faults` tells all."""
        options = json.loads(json.dumps(options, sort_keys=True))  # in the order in which the books give them back
        planned, faults = plan_of(operator, options, self.sources.known())
        if planned is None:
            raise faults[0][1]
        return OperatorMade(name, operator, options, planned, self.sources)

    def operator_faults(self, operator: str, options: dict[str, Any]) -> list[tuple[str, PenstockError]]:
        """What is wrong with an operator's options."""
        return plan_of(operator, options, self.sources.known())[1]

    def text(self, text: str, *, to_run: bool = True) -> Made:
        """A query as text; one that is only asked about may begin with EXPLAIN."""
        query = parse(text, self.catalogue)
        if query.explain and to_run:
            raise BadOption(
                "EXPLAIN asks, and runs nothing.",
                do="Leave it out; POST /explain of a server, or Explain on its page, says what a text would run.",
            )
        made = made_of(query, self.sources)
        made.check()
        return made

    def making(self, said: Mapping[str, Any]) -> Any:
        """How the flow of a group is made, from what its folder says of it."""
        then = self.as_begun(said)
        if "text" in said:
            return made_of(parse(said["text"], then.catalogue), then.sources)
        return then.operator(said["name"], said["operator"], said["options"])


def catalogue_of(sources: Sources) -> Catalogue:
    """The streams and tables of a pipeline, as texts name them. Tables in CSV files are written as Parquet here."""
    pipeline = sources.pipeline
    streams = {
        name: Stream.of(
            name,
            stream.columns,
            event_time=stream.time,
            lateness=stream.lateness,
            key=stream.key,
            order=stream.order,
            deleted=stream.deleted,
        )
        for name, stream in pipeline.streams.items()
    }
    relations = {
        name: Relation(
            name, said.columns, said.key, str(table_path(said, pipeline.folder)), changes=said.changes is not None
        )
        for name, said in pipeline.tables.items()
    }
    return Catalogue(streams, relations, archives=str(pipeline.folder / "archives"))


class OperatorMade(Made):
    """An operator with its options, alone in its group."""

    def __init__(self, name: str, operator: str, options: dict[str, Any], planned: Planned, sources: Sources) -> None:
        self.said = {
            "key": f"operator {name} {operator} {json.dumps(options, sort_keys=True)}",
            "name": name,
            "operator": operator,
            "options": options,
            **sources.begin([stream.name for stream in planned.streams]),
        }
        self.kind = "operator"
        self.operator = operator
        self._planned = planned
        self._sources = sources
        self.schema = planned.plan.channels[RESULTS]

    def reader(self, entry: Entry, group: Group) -> Reader:
        """Everything."""
        return Everything(self.schema)

    @property
    def sources(self) -> tuple[str, ...]:
        """The streams."""
        return tuple(stream.name for stream in self._planned.streams)

    def describe(self) -> str:
        """The first line of the plan's own words."""
        return self._planned.plan.explain().splitlines()[0]

    def plan(self, folder: Path) -> Plan:
        """What will run."""
        return self._planned.plan

    def flow(self, folder: Path) -> Flow:
        """The flow, on Spark."""
        frames = [
            self._sources.renamed(stream.name, {name: name for name in stream.columns.names}, None)
            for stream in self._planned.streams
        ]
        return run(self._planned.plan, frames)

    def folders(self, folder: Path) -> list[Path] | None:
        """Those of its streams."""
        return self._sources.folders(self.sources)

    def explain(self, others: Mapping[str, Made], group: Group | None) -> str:
        """The plan's own words."""
        return self._planned.plan.explain()
