"""What an operator gives back: its channels as streams, a way to start them all, and what it did."""

from __future__ import annotations

import copy
import itertools
import json
import os
import uuid
import warnings
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import BadOption
from penstock.kernels.contract import RESULTS
from penstock.spark.agreement import as_begun, check_agreement
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.crash import crash_point
from penstock.spark.host import FAMILIES, reports_of
from penstock.spark.listener import Progress, listen
from penstock.spark.reports import Numbers, combined
from penstock.spark.running import Running
from penstock.spark.sink import WRITTEN, Ledger, claiming, commit, file_writer
from penstock.spark.trigger import check_trigger
from penstock.spark.wire import Reader, rows_alone
from penstock.tables.places import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.base import Plan

#: Over how many micro-batches a rate is told.
_RECENT = 10


def check_side_by_side(places: Mapping[str, str]) -> None:
    """Refuse directories of which one is the other, or in it."""
    whole = {name: place_of(place, name) for name, place in places.items()}
    # One directory has many paths: with links in them, or steps upwards.
    real = {name: Path(os.path.realpath(place)) for name, place in whole.items()}
    for one, other in itertools.permutations(whole, 2):
        if real[one] == real[other] or real[other] in real[one].parents:
            raise BadOption(
                f"{one} ({whole[one]}) lies in the directory of {other} ({whole[other]}).",
                why="Readers and the commits of the one would meet files of the other.",
                do="Give each a directory of its own, side by side.",
            )


class Emitted(Protocol):
    """What leaves the kernels of a flow."""

    def __call__(self, read: Reader, wanted: Mapping[str, pa.Schema], made: pa.Schema, few: bool) -> DataFrame:
        """What a reader makes of the rows on some channels, in the tasks where they are: rows of a schema.

        Where it makes few, rows with NULLs and further columns may be among them.
        """


class Flow:
    """A running or not yet running operator over streams.

    `results` (and `channel(name)`) are streaming DataFrames like any other: transform them, and pick trigger, sink and
    checkpoint as usual. `start` writes every channel to its own directory in one query.
    """

    def __init__(self, spark: SparkSession, plan: Plan, channels: Mapping[str, pa.Schema]) -> None:
        self.id = f"penstock-{uuid.uuid4().hex[:12]}"
        self._spark = spark
        self._plan = plan
        self._channels = dict(channels)
        self._progress = Progress()
        self._progress_of: defaultdict[str, Progress] = defaultdict(Progress)  # by run of a query
        self._counted = {
            metric.name for metric in reports_of(plan) if metric.name.startswith(("rows_", "pages_", "results_"))
        }
        self._counted -= {"rows_waiting", "rows_parked"}
        self._standing = {
            metric.name
            for metric in reports_of(plan)
            if metric.combine != "sum" or metric.name.startswith(("memory", "budget", "rows_waiting", "rows_parked"))
        }
        #: What leaves the kernels of a plan; and what leaves those of this one.
        self._make: Callable[[Plan], Emitted]
        self._emitted: Emitted
        self._teller = listen(spark, self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._plan.name}: {', '.join(self._channels)}>"

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(self._channels)

    @property
    def results(self) -> DataFrame:
        """What the operator is for, as a streaming DataFrame."""
        return self.channel(RESULTS)

    def channel(self, name: str) -> DataFrame:
        """One output as a streaming DataFrame."""
        schema = self._channels.get(name)
        if schema is None:
            raise BadOption(f"There is no channel {name!r}.", do=f"The channels are: {', '.join(self._channels)}.")
        if self._plan.together:
            places = ", ".join(f'{name}="…"' for name in (RESULTS, *self._plan.together))
            raise BadOption(
                "The channels of this flow cannot be read one by one.",
                why=f"What goes to {' and '.join(self._plan.together)} is decided while the query runs: two queries "
                "would decide twice, and rows be there twice or nowhere.",
                do=f'Write them by one query: flow.start({places}, checkpoint="…").',
            )
        return self._emitted(rows_alone, {name: schema}, schema, few=False)

    def start(
        self,
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        **places: str,
    ) -> Running:
        """Write channels as Parquet, each to its own directory, every row exactly once.

        `places` gives a directory for each channel by name: `flow.start(results="out/", set_aside="aside/",
        checkpoint="ck/")`. `trigger` is `{"availableNow": True}` or `{"processingTime": "10 seconds"}`, as in Spark.
        `name` is what Spark's own pages call the query. A crash at any moment is made good by starting again with the
        same checkpoint; rows on a channel without a place are counted, not kept, and a warning says so.

        Example::

            running = flow.start(results="out/", set_aside="aside/", checkpoint="ck/")
            running.wait(60)  # or running.stop(); running.progress()
        """
        check_trigger(trigger)
        self._check_places(places, checkpoint)
        held = Checkpoint(checkpoint, self._plan)
        try:
            ledgers = {
                channel: Ledger(place_of(place, channel), held.id, self._channels[channel], held.path)
                for channel, place in places.items()
            }
            with claiming(ledgers.values()):
                return self._start(held, ledgers, trigger, name)
        except BaseException:
            held.close()
            raise

    def _start(
        self, held: Checkpoint, ledgers: Mapping[str, Ledger], trigger: Mapping[str, Any] | None, name: str | None
    ) -> Running:
        check_agreement(held, self._plan, ledgers)
        begun = as_begun(held, self._plan, ledgers)
        if begun is not self._plan:
            self._plan, self._emitted = begun, self._make(begun)
        running = Running(self, held)
        running.note_partitions()

        def write(batch: DataFrame, number: int) -> None:
            running.hold_if_stopping()
            crash_point("before-sink")
            running.check_source(number)
            written = batch.collect()
            running.check_source(number)
            commit(ledgers, number, written)
            crash_point("after-sink")

        files = self._files({channel: str(ledger.place) for channel, ledger in ledgers.items()})
        writer = files.writeStream.foreachBatch(write).option("checkpointLocation", str(held.path))
        writer = writer.queryName(name) if name else writer
        writer = writer.trigger(**trigger) if trigger else writer
        running.query = writer.start()
        return running

    def _files(self, places: Mapping[str, str]) -> DataFrame:
        """What workers write of some channels, each to its place: a row for each staged file."""
        wanted = {channel: self._channels[channel] for channel in places}
        writer = file_writer({channel: (place, wanted[channel]) for channel, place in places.items()})
        return self._emitted(writer, wanted, WRITTEN, few=True)

    def _check_places(self, places: Mapping[str, str], checkpoint: str) -> None:
        unknown = [name for name in places if name not in self._channels]
        if unknown:
            raise BadOption(
                f"There is no channel {unknown[0]!r}.", do=f"Give a directory for any of: {', '.join(self._channels)}."
            )
        if not places:
            raise BadOption("No channel has a place.", do='Give at least results="some/directory".')
        check_side_by_side({**places, "checkpoint": checkpoint})
        missing = [name for name in self._plan.together if name not in places]
        if missing:
            raise BadOption(
                f"Channel {missing[0]!r} has no place.",
                why="Rows on it are not among the results; without a place they would be lost.",
                do=f'Give a directory: flow.start(…, {missing[0]}="archive/").',
            )
        unread = [name for name in self._channels if name not in places]
        if unread:
            warnings.warn(
                f"Rows on channel {', '.join(unread)} are counted but not kept; give a directory to keep them.",
                stacklevel=3,
            )

    def explain(self) -> str:
        """What will run, with which memory."""
        return self._plan.explain()

    def progress(self) -> dict[str, Any]:
        """What happened: the last micro-batch, the sums since this process started the flow, and the rate of late.

        Before the first micro-batch is committed, or where nothing was to do, the sums are 0 and there is no `last`. Of
        all queries of this flow together: `Running.progress` is of one.
        """
        batches = self._progress.batches
        if not batches:
            nothing = {name: 0.0 for name in sorted(self._counted) if not name.endswith("_")}
            return {"batches": 0, "totals": nothing, "rows_per_second": 0.0}
        last = batches[-1]
        fed = next((batch for batch in reversed(batches) if batch["rows_in"]), last)
        expected = self._plan.expect(fed["rows_in"], self._progress.arrival_rate())
        return {
            "batches": last["batch"] + 1,
            "totals": self._progress.totals,
            "rows_per_second": self._rate(),
            "last": last,
            **({"expected": {**expected, "measured_step_seconds": fed["step_seconds"]}} if expected else {}),
            **self._plan.outcome(self._progress.totals),
        }

    def _rate(self) -> float:
        """Over some micro-batches: the last one of a stream that ends has no rows."""
        recent = self._progress.batches[-_RECENT:]
        seconds = sum(batch["seconds"] for batch in recent)
        return sum(batch["rows_in"] for batch in recent) / seconds if seconds else 0.0

    def history(self) -> list[dict[str, Any]]:
        """The numbers of the last micro-batches, oldest first."""
        return self._progress.batches

    def _on_progress(self, event: dict[str, Any], numbers: dict[str, Any] | list[Numbers]) -> None:
        """A micro-batch is committed: its numbers as Spark observed them, or as each slot told them."""
        if isinstance(numbers, list):
            batch: dict[str, Any] = combined(numbers, reports_of(self._plan))
        else:
            batch = numbers | combined(map(json.loads, numbers.pop(FAMILIES, None) or ()), self._plan.reports)
        counted = {name for name in batch if name.startswith("results_")}
        batch |= {
            "batch": event["batchId"],
            "time": event["timestamp"],
            "seconds": event["durationMs"].get("triggerExecution", 0) / 1000,
            "rows_read": event["numInputRows"],
        }
        for progress in (self._progress, self._progress_of[event["runId"]]):
            progress.add(dict(batch), self._counted | counted, self._standing)

    def _of_run(self, run: str) -> Flow:
        """This flow as one run of one query saw it."""
        alone = copy.copy(self)
        alone._progress = self._progress_of[run]
        return alone
