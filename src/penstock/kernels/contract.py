"""The contract between a kernel and whatever hosts it.

*A kernel turns a batch of rows and a bounded state into results.* It does no I/O beyond a page
reader it was given, looks at no clock and draws no random number of its own: time and seeds
are arguments.

Order of calls, for every host::

    kernel = make()                       # from a frozen plan; the same plan gives the same kernel
    kernel.restore(head, chunks)          # only when there is stored state
    loop:
        for emission in kernel.step(batch, now): ...    # exhausted, always
        or for emission in kernel.tick(now): ...        # no input, and kernel.pending()
        changes = kernel.changes()        # chunks new and gone since the last call
        head = kernel.head()              # small; stored after every step

**State is a set of named, immutable chunks and one small head.** A chunk is written once and later
dropped whole; whatever changes at every step is in the head. A host stores `changes()` and `head()`
together, atomically, after each step; `restore` with the stored head and all live chunks gives a kernel
that goes on exactly as the first one would have.

**A step that is run again emits the same bag.** After a crash Spark replays a batch from the same state, with the same
rows in other portions and another order, while a sink may have kept what the first run emitted. So which results a step
emits (and which wait) is a function of the state and of the bag of rows alone; see `kernels.measure` for counting bytes
that way.

Laws (asked of every kernel by `penstock.testing.conformance`): it equals its naive twin; the
results of every prefix, drained, equal recomputing from scratch; they do not depend on how rows were cut into batches;
they are the same after `restore` at any point; `memory()` is never above the budget.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

RESULTS = "results"
#: Rows that no kernel can use, each with the reason, where it came from, and its text.
SET_ASIDE = "set_aside"
SET_ASIDE_SCHEMA = pa.schema([("reason", pa.string()), ("source", pa.string()), ("raw", pa.string())])


class Portion(NamedTuple):
    """Rows of one side as they travelled together: at most about one megabyte."""

    side: int
    rows: pa.RecordBatch


class Emission(NamedTuple):
    """Rows that leave a kernel on one of its channels."""

    channel: str
    rows: pa.RecordBatch


class Changes(NamedTuple):
    """What became of the state since it was last asked for."""

    new: Mapping[str, pa.Buffer]
    gone: tuple[str, ...]


@dataclass(frozen=True)
class Batch:
    """One micro-batch for one slot: portions, read once and in order, so that a kernel need never hold them all.

    `watermark` is the event time, in microseconds, below which no row is expected any more: the smallest over the
    sides of the largest event time in all earlier batches, less the allowed lateness. None without event time.
    `took` is how many seconds the slot's last stored step took: stored with it, so that a step that is run again is
    told the same. It is the only measure of time by which a kernel may decide anything.
    """

    portions: Iterable[Portion]
    watermark: int | None = None
    took: float | None = None

    def __iter__(self) -> Iterator[Portion]:
        return iter(self.portions)


@dataclass(frozen=True)
class Metric:
    """A number that a kernel reports after each step.

    `combine` says how the numbers of several slots become one: "sum", "max" or "min". A name that ends with an
    underscore is that of a family: `metrics()` has any number of names that begin with it, known only while it runs.
    """

    name: str
    combine: str = "sum"
    help: str = ""

    @property
    def is_family(self) -> bool:
        """Whether it stands for all numbers whose names begin with its own."""
        return self.name.endswith("_")


class Kernel(ABC):
    """A stateful algorithm over Arrow batches. See the module's text for the order of calls and the laws."""

    #: The channels and the schema of their rows.
    channels: Mapping[str, pa.Schema]
    #: What `metrics()` returns.
    reports: tuple[Metric, ...] = ()

    @abstractmethod
    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Take in one micro-batch; yield what became known. `now` is in milliseconds, never goes into results."""

    def tick(self, now: int, watermark: int | None = None) -> Iterator[Emission]:
        """Finish all pending work without input."""
        return iter(())

    def pending(self) -> bool:
        """Whether `tick` would do anything now."""
        return False

    @abstractmethod
    def memory(self) -> int:
        """Bytes held, at their most since the last step began, counted by the kernel itself."""

    @abstractmethod
    def changes(self) -> Changes:
        """Chunks that are new and gone since the last call."""

    @abstractmethod
    def head(self) -> bytes:
        """The small part of the state that changes at every step."""

    @abstractmethod
    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Become the kernel that returned this head, with these live chunks."""

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step, by the names in `reports`; those of families in any number."""
        return {}


@dataclass
class ChunkLog:
    """Keeps the books behind `Kernel.changes` for a kernel: what is new, what is gone, nothing written twice."""

    new: dict[str, pa.Buffer] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)

    def add(self, name: str, blob: pa.Buffer) -> None:
        """A chunk came to be."""
        self.new[name] = blob

    def drop(self, name: str) -> None:
        """A chunk went; one that was never handed out leaves no trace."""
        if self.new.pop(name, None) is None:
            self.gone.append(name)

    def take(self) -> Changes:
        """The changes since the last call."""
        changes = Changes(dict(self.new), tuple(self.gone))
        self.new.clear()
        self.gone.clear()
        return changes
