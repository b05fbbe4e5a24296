"""A pipeline's file, checked in full without Spark, and run until it ends or is stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import BadOption
from penstock.plan.pipeline.read import read_pipeline
from penstock.plan.pipeline.spec import Pipeline
from penstock.server.engine import Engine
from penstock.server.made import Made, Sources
from penstock.server.making import Maker
from penstock.server.sinks import Pump, pumps
from penstock.spark.pipeline import check_formats
from penstock.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Show = Callable[[str, int, pa.Table], None]


def checked(path: str | os.PathLike[str]) -> tuple[Pipeline, dict[str, Made]]:
    """The pipeline of a file and its queries, or `BadPipeline` with every fault and its line. Starts no Spark."""
    pipeline, faults = read_pipeline(path)
    maker = Maker(Sources(pipeline, None))
    made: dict[str, Made] = {}
    # What a query names may be missing because it is faulty itself, which is told already.
    whole = not faults.found
    for name, query in pipeline.queries.items():
        place = ("queries", name)
        if query.sql is not None:
            found = faults.tried((*place, "sql"), partial(maker.text, query.sql)) if whole else None
            if found is not None:
                made[name] = found
            if found is not None and found.is_view and query.sink.path is not None:
                faults.add((*place, "sink"), _no_sink(name))
            continue
        told = maker.operator_faults(query.operator or "", dict(query.options))
        for option, fault in told:
            if whole or option != "operator":
                faults.add((*place, option), fault)
        if not told:
            made[name] = maker.operator(name, query.operator or "", dict(query.options))
    faults.check()
    return pipeline, made


def _no_sink(name: str) -> BadOption:
    return BadOption(
        f"{name} is a view, and has no results that a sink could take.",
        why="It is an answer, made fresh when somebody reads it.",
        do=f"Leave sink out, and read it of `penstock serve`: GET /views/{name}.",
    )


class Run:
    """A pipeline that runs: its engine and its sinks. Without `show`, nothing goes to the console."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, show: Show | None, **options: Any) -> None:
        check_formats(spark, [stream.format for stream in pipeline.streams.values()])
        self.engine = Engine(pipeline, spark, **options)
        try:
            self.engine.agree(pipeline.queries)
            sinks = [
                (name, query.sink)
                for name, query in pipeline.queries.items()
                if not self.engine.is_view(name) and (show is not None or query.sink.format != "console")
            ]
            self._pumps: list[Pump] = pumps(self.engine, sinks, show)
        except BaseException:
            self.engine.stop()
            raise
        self._stopping = threading.Event()

    def start(self) -> Run:
        """Begin, with a thread that carries results to the sinks."""
        self.engine.start()
        self._thread = threading.Thread(target=self._carry, name="penstock-sinks", daemon=True)
        self._thread.start()
        return self

    def _carry(self) -> None:
        while not self._stopping.wait(0.1):
            self._step()

    def _step(self) -> None:
        for pump in self._pumps:
            pump.step()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all queries came to their end, or are stopped; False if the time was over first."""
        step, waited = 0.05, 0.0
        while not self._stopping.is_set():
            if self.engine.ended():
                return True
            if seconds is not None and waited >= seconds:
                return False
            self._stopping.wait(step)
            waited += step
        return True

    def stop(self) -> None:
        """Finish what is under way, carry the last results, and stop."""
        self._stopping.set()
        self._thread.join(60)
        self.engine.stop_groups()
        self._step()
        self.engine.stop()

    def faults(self) -> dict[str, BaseException]:
        """Queries that failed and sinks that cannot be written, with the reason."""
        sinks = {pump.name: pump.error for pump in self._pumps if pump.error is not None}
        return {**sinks, **self.engine.failures()}


def open_session(pipeline: Pipeline, app: str = "penstock") -> SparkSession:
    """The Spark session of a pipeline."""
    return session(app, cores=pipeline.cores)
