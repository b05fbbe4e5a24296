"""A flow that many queries share: they come and go while it runs, and each is told apart in `progress()`.

A change is a small file in the directory that the flow reads as its third input, numbered in the order in which changes
were made. So it takes effect in a certain micro-batch, in all slots, and again in the same one after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import BadOption
from penstock.kernels.shared.changes import CHANGES
from penstock.kernels.shared.selection import Selection
from penstock.kernels.shared.sending import ADDED, WHOSE
from penstock.plan.join_shared import JoinSharedPlan, check_name, describe_window, shared_window
from penstock.spark.flow import Flow
from penstock.spark.query_changes import Change, SharedChanges
from penstock.tables.places import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.kernels.shared.selection import Condition
    from penstock.plan.two_streams import Within

_RESULTS = "results_"


class SharedFlow(Flow):
    """A flow of `join_shared`: a channel for each query, and queries that come and go.

    Guarantees
        A query that is added gets exactly what it would alone, from the micro-batch that reads of it on; one that is
        removed gets all that rows before that micro-batch owe it.
    State and cost
        One small file for each change.
    """

    _plan: JoinSharedPlan

    def __init__(self, spark: SparkSession, plan: JoinSharedPlan, channels: Mapping[str, pa.Schema]) -> None:
        super().__init__(spark, plan, channels)

    @property
    def queries(self) -> dict[str, str]:
        """The queries that stand once all changes have been read, with their windows."""
        standing = dict(self._plan.windows)
        if self._plan.changes is not None:
            standing = self._changes.standing(self._plan.windows)
        return {name: describe_window(window, self._plan.by_rows) for name, window in standing.items()}

    def add(self, name: str, window: Within, *, select: Sequence[Condition] = ()) -> None:
        """Have another query, from the next micro-batch on.

        `select` are conditions on columns of the results, such as `[("amount", ">", 100), ("kind", "in", ["a", "b"])]`,
        all of which a result must meet: data and not a function, because a file carries them to a flow that runs. Its
        results come on the channel `added`, with its name in the column `query`; those of a query that was there at
        the beginning, and comes again, on the channel of its name.
        """
        changes = self._changes
        check_name(name)
        length, by_rows = shared_window(name, window)
        if by_rows != self._plan.by_rows:
            raise BadOption(
                f"The window of {name!r} is not of the kind of the others.",
                why="One join serves queries whose windows contain one another.",
                do=f"Give {'ps.rows(1000)' if self._plan.by_rows else 'a duration'}, or another join_shared.",
            )
        standing = self.queries
        if name in standing:
            raise BadOption(
                f"There is a query {name!r} already, with a window of {standing[name]}.",
                do=f"Choose another name, or flow.remove({name!r}) first.",
            )
        wanted = Selection.of(select, self._plan.shape.results).written() if select else None
        changes.write([Change("add", name, length, wanted)])

    def remove(self, name: str) -> None:
        """Let a query go, with the next micro-batch. What earlier rows owe it still comes."""
        changes, standing = self._changes, self.queries
        if name not in standing:
            raise BadOption(f"There is no query {name!r}.", do=f"The queries are: {', '.join(standing) or 'none'}.")
        changes.write([Change("remove", name)])

    def channel(self, name: str) -> DataFrame:
        """One output as a streaming DataFrame; also the results of a query that was added, by its name."""
        if name in self._channels or name not in self.queries:
            return super().channel(name)
        from pyspark.sql import functions as fn

        return super().channel(ADDED).where(fn.col(WHOSE) == name).drop(WHOSE)

    def progress(self) -> dict[str, Any]:
        """As `Flow.progress`, and under `queries` what each query got: results, and how long they took from the
        arrival of their later row until they left, in units of work and in seconds.

        Seconds are those from the begin of the micro-batch that brought the row to the end of the one that released
        the result; means are over the micro-batches that are remembered.
        """
        batches = self.history()
        names = {name[len(_RESULTS) :] for batch in batches for name in batch if name.startswith(_RESULTS)}
        return super().progress() | {"queries": {name: self.response(name, batches) for name in sorted(names)}}

    def response(self, name: str, batches: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """What a query got in some micro-batches of `history()`, and how long that took; `results` are all so far."""
        mine = [batch for batch in batches if batch.get(_RESULTS + name)]
        weights = [batch[_RESULTS + name] for batch in mine]
        total = sum(weights)

        def mean(values: list[float]) -> float:
            return sum(v * w for v, w in zip(values, weights, strict=True)) / total if total else 0.0

        waits = [batch[f"wait_mean_{name}"] / 1000 + batch["seconds"] for batch in mine]
        longest = [batch[f"wait_max_{name}"] / 1000 + batch["seconds"] for batch in mine]
        return {
            "results": self._progress.totals.get(_RESULTS + name, 0.0),
            "work_mean": mean([batch[f"work_mean_{name}"] for batch in mine]),
            "work_p95": max((batch[f"work_p95_{name}"] for batch in mine), default=0.0),
            "work_max": max((batch[f"work_max_{name}"] for batch in mine), default=0.0),
            "seconds_mean": mean(waits),
            "seconds_max": max(longest, default=0.0),
        }

    @property
    def _changes(self) -> SharedChanges:
        if self._plan.changes is None:
            raise BadOption(
                "The queries of this flow stay as they are.",
                why="It reads no changes.",
                do='Give it a directory for them: ps.join_shared(…, changes="queries/").',
            )
        return SharedChanges(self._plan.changes, by_rows=self._plan.by_rows)


def changes_stream(spark: SparkSession, folder: str) -> DataFrame:
    """The changes in a directory as a stream; the directory is made if it is not there."""
    from penstock.spark.schema import spark_schema
    from penstock.spark.sources import literal

    place = place_of(folder, "changes")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise BadOption(
            f"changes={folder!r} cannot be made: {fault.strerror}.", do="Give a directory that can be written."
        ) from fault
    # There are no folders in it; and it is read alike whatever it is called (`InputFiles.check`).
    files = spark.readStream.schema(spark_schema(CHANGES)).option("recursiveFileLookup", "true")
    return files.parquet(literal(place))
