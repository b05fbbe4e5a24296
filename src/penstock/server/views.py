"""The views of a server: opened by the keeper, read by callers."""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadOption, PenstockError, UnknownQuery
from penstock.operators.view import View
from penstock.plan.pipeline.csv_tables import table_path
from penstock.plan.pipeline.spec import Pipeline
from penstock.plan.view import Changing
from penstock.server.reading import as_json
from penstock.spark.failures import cause

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import SparkSession

log = logging.getLogger("penstock.server")


class Views:
    """All open views, by name. Each is opened once; one that cannot be opened is tried again when it is registered."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._open: dict[str, View] = {}
        self._faults: dict[str, BaseException] = {}
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def keep(self, wanted: Mapping[str, tuple[int, Any]], registered: Collection[int]) -> None:
        """Open what is wanted, close the rest, and delete what is not registered any more; by name, with numbers."""
        # A name that is wanted may be another view's by now.
        for name in [n for n, number in self._numbers.items() if n not in wanted or wanted[n][0] != number]:
            del self._numbers[name]
            self._faults.pop(name, None)
            with self._lock:
                view = self._open.pop(name, None)
            if view is not None:
                _close(view)
        for place in self._folder.glob("[0-9]*"):
            if int(place.name) not in registered:
                shutil.rmtree(place, ignore_errors=True)
        for name, (number, made) in wanted.items():
            if name not in self._numbers:
                self._numbers[name] = number
                try:
                    opened = self._opened(number, made.query.shape)
                except Exception as fault:
                    self._faults[name] = cause(fault)
                    continue
                with self._lock:
                    self._open[name] = opened

    @property
    def _folder(self) -> Path:
        return self._pipeline.folder / "views"

    def _opened(self, number: int, shape: Any) -> View:
        tables: dict[str, Any] = {}
        for each in shape.tables:
            table = self._pipeline.tables[each]
            changes = str(table.changes) if table.changes is not None else None
            base = str(table_path(table, self._pipeline.folder))
            tables[each] = Changing(base, changes=changes, key=table.key, order=table.order)
        within = timedelta(microseconds=shape.answer_within)
        place = self._folder / f"{number:08d}"
        return View(shape.select, tables=tables, at=place, answer_within=within, spark=self._spark).start()

    def is_open(self, name: str) -> bool:
        """Whether it can be read."""
        return name in self._open

    def fault(self, name: str) -> BaseException | None:
        """Why it cannot be."""
        return self._faults.get(name)

    def read(self, name: str, max_staleness: str | None, limit: int) -> dict[str, Any]:
        """The answer, fresh, or as old as `max_staleness` allows."""
        with self._lock:
            view = self._open.get(name)
        if view is None:
            fault = self._faults.get(name)
            if fault is not None:
                said = str(fault).partition("\n")[0]
                raise fault if isinstance(fault, PenstockError) else PenstockError(f"View {name!r} failed: {said}")
            raise UnknownQuery(f"View {name!r} is not open.", do="Resume it if it is paused; or ask again in a moment.")
        answer = view.read(max_staleness=max_staleness)
        rows = answer.to_arrow()
        if rows.num_rows > limit:
            raise BadOption(
                f"The view has {rows.num_rows:,} rows; an answer has at most {limit:,}.",
                do="Choose fewer in the view itself, or read its files.",
            )
        return {
            "rows": as_json(rows),
            "version": answer.version,
            "fresh": answer.fresh,
            "as_of": answer.as_of.isoformat(),
            "missing": dict(answer.missing),
            "seconds": answer.took,
        }

    def progress(self) -> list[dict[str, Any]]:
        """How the open views are doing."""
        with self._lock:
            opened = dict(self._open)
        return [{"name": name, **_told(view)} for name, view in opened.items()]

    def close(self) -> None:
        """Close all."""
        with self._lock:
            opened, self._open = self._open, {}
        for view in opened.values():
            _close(view)


def _told(view: View) -> dict[str, Any]:
    said = asdict(view.progress())
    said["costs"] = {name: {"setup": setup, "each": each} for name, (setup, each) in said["costs"].items()}
    return said


def _close(view: View) -> None:
    try:
        view.close()
    except Exception as fault:
        log.warning("a view was closed after it had failed: %s", fault)
