"""What a reader gets: rows, how fresh they are, and how long it took."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.plan.units import format_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.views.store import Store


def _untold(seconds: float) -> None:
    """Nobody asked how long it took."""


@dataclass
class Answer:
    """The view at one version. Its files are kept as long as the answer is."""

    #: The rows, as a DataFrame over the version's files.
    frame: DataFrame = field(repr=False)
    version: int
    #: Changes of each table that had arrived and are not in the answer.
    missing: Mapping[str, int]
    #: All changes that arrived before this moment are in the answer.
    as_of: datetime
    #: Seconds from the question until the answer could be read.
    took: float
    #: Changes that were brought in for this answer.
    refreshed: Mapping[str, int]
    _told: Callable[[float], None] = field(default=_untold, repr=False)

    @property
    def fresh(self) -> bool:
        """Whether it has every change that had arrived when it was asked for."""
        return not any(self.missing.values())

    @property
    def stale_by(self) -> float:
        """Seconds by which it is behind: the age of the oldest change that it lacks; 0 if it lacks none."""
        return 0.0 if self.fresh else max(0.0, time.time() - self.as_of.timestamp())

    def to_arrow(self) -> pa.Table:
        """The rows, in this process."""
        began = time.monotonic()
        rows = self.frame.toArrow()
        # Whoever reads it again has had it.
        told, self._told = self._told, _untold
        told(time.monotonic() - began)
        return rows

    def keep(self, store: Store) -> Answer:
        """Hold the version's files until nobody has the answer any more."""
        store.hold(self.version)
        weakref.finalize(self, store.release, self.version)
        return self

    def __str__(self) -> str:
        how = "fresh" if self.fresh else f"{format_duration(round(self.stale_by * 1e6))} behind"
        return f"version {self.version}, {how}, in {format_duration(round(self.took * 1e6))}"


def moment(seconds: float) -> datetime:
    """A time of the system's clock."""
    return datetime.fromtimestamp(seconds, UTC)
