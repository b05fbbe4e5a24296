"""What an operator asks the runtime to run: a frozen description, the same wherever it is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.kernels.contract import Kernel, Metric

#: Changes whenever stored state can no longer be read by newer code.
STATE_FORMAT = 1


@dataclass(frozen=True)
class Side:
    """One input of an operator.

    Rows go to the slot of their `key`, or to every slot where `key` is empty. With `event_time` the largest value of
    that column less `lateness` (microseconds) is this side's watermark. With `calls_all` every slot takes a step in
    every micro-batch that has rows, also a slot to which none of them go.
    """

    schema: pa.Schema
    key: tuple[str, ...] = ()
    event_time: str | None = None
    lateness: int = 0
    calls_all: bool = False


class Plan(ABC):
    """Says what is to run. Picklable: it travels to the workers, which make their kernels from it."""

    #: The operator's public name.
    name: ClassVar[str]
    #: The metrics of its kernels.
    reports: ClassVar[tuple[Metric, ...]]
    #: Channels that must be written by the query that writes the results, because another would have other rows there.
    together: ClassVar[tuple[str, ...]] = ()
    #: Fields that may differ when a micro-batch is run again: what its kernel does then is the same, or as good.
    loose: ClassVar[tuple[str, ...]] = ()
    #: Fields that stay what they were when a micro-batch was begun, until it is committed.
    begun_with: ClassVar[tuple[str, ...]] = ()
    #: How many kernels share the work.
    slots: int

    @property
    def keeps_nothing(self) -> bool:
        """Whether a step leaves nothing for later ones and any of its rows may go to any kernel: state need not be
        kept then, and rows need not travel.
        """
        return False

    @property
    @abstractmethod
    def sides(self) -> tuple[Side, ...]:
        """The inputs, in order."""

    @property
    @abstractmethod
    def channels(self) -> Mapping[str, pa.Schema]:
        """The outputs."""

    @abstractmethod
    def make(self, slot: int) -> Kernel:
        """The kernel of a slot."""

    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """What must be the same for a checkpoint to be taken up again, by name, as short text."""

    @abstractmethod
    def explain(self) -> str:
        """What will run and with which memory, for people."""

    def expect(self, rows: float, arrival_rate: float) -> Mapping[str, float]:
        """What a cost model says of a micro-batch with so many rows, and of rows that arrive so many a second.

        By the names of metrics where there is one to compare with; nothing without a model.
        """
        return {}

    def outcome(self, totals: Mapping[str, float]) -> Mapping[str, float]:
        """What follows from the sums of the metrics, for `progress()`."""
        return {}
