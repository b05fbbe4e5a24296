"""Run a kernel without Spark, the way the Spark runtime runs it, and hold it to the contract at every step."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from penstock.errors import KernelFault
from penstock.kernels.contract import Batch, Emission, Kernel, Portion
from penstock.testing import promises
from penstock.testing.event_time import EventTime, Watermark

#: What a host takes as one micro-batch; rows without a side belong to side 0.
Rows: TypeAlias = "Batch | Portion | pa.RecordBatch | pa.Table | Iterable[Portion | pa.RecordBatch | pa.Table]"


@dataclass
class Store:
    """What survives a crash: the live chunks and the head, replaced together after each step."""

    chunks: dict[str, bytes] = field(default_factory=dict)
    head: bytes | None = None


class Host:
    """Hosts one kernel over a store in memory.

    Guarantees
        A step's changes and head are stored together, after its last emission; a step that raises or is abandoned
        leaves the store and the results as they were, and its kernel is thrown away.
        `KernelFault` as soon as the kernel breaks a promise of the contract: see `penstock.testing.promises`.
        Portions are read once, in order, in buffers that no one else holds; chunks come back to `restore` in no
        particular order.
    State and cost
        All that was emitted, and the kernel's state once more as bytes.

    `budget` bounds `memory()`, `head_limit` the head, both in bytes. `now` is the clock: set it at will, it moves on by
    `pace` milliseconds a step. With `restart_every_step` each step starts from the store, as when no worker ever sees
    the same slot twice.

    >>> import pyarrow as pa
    >>> from penstock.kernels.passthrough import PassThrough
    >>> rows = pa.table({"n": [1, 2, 3]})
    >>> host = Host(lambda: PassThrough(rows.schema))
    >>> [emission.rows.num_rows for emission in host.step(rows)]
    [3]
    >>> host.crash()
    >>> host.run([rows.slice(0, 1)])["results"].to_pydict()
    {'n': [1, 2, 3, 1]}
    """

    def __init__(
        self,
        make: Callable[[], Kernel],
        *,
        budget: int | None = None,
        head_limit: int = 64 * 1024,
        restart_every_step: bool = False,
        event_time: EventTime | None = None,
        now: int = 0,
        pace: int = 1_000,
    ) -> None:
        self.make = make
        self.budget = budget
        self.head_limit = head_limit
        self.restart_every_step = restart_every_step
        self.now = now
        self.pace = pace
        self.store = Store()
        #: Rows that count, by channel: those of stored steps.
        self.rows: Counter[str] = Counter()
        #: How often a kernel was built from the store.
        self.restores = 0
        #: How many steps and ticks were stored.
        self.steps = 0
        #: The largest `memory()` of any stored step.
        self.peak = 0
        self._watermark = Watermark(event_time)
        self._emitted: list[Emission] = []
        self._live: Kernel | None = None
        self._lent = promises.LentChunks()

    @property
    def kernel(self) -> Kernel:
        """The live kernel; restored from the store where there is none."""
        if self._live is None:
            kernel = self.make()
            if self.store.head is not None:
                # No order that a kernel could come to rely on.
                names = sorted(self.store.chunks, key=lambda name: (zlib.crc32(name.encode()), name))
                kernel.restore(self.store.head, {name: pa.py_buffer(self.store.chunks[name]) for name in names})
                self.restores += 1
            promises.check_declarations(kernel)
            self._live = kernel
        return self._live

    def step(self, rows: Rows) -> list[Emission]:
        """Take one micro-batch through the kernel and store what became of it; returns what it emitted."""
        portions = portions_of(rows)
        watermark = rows.watermark if isinstance(rows, Batch) else self._watermark.value()
        emitted = self._store(self._stepping(portions, watermark))
        self._watermark.take_in(portions)
        return emitted

    def tick(self) -> list[Emission]:
        """Let the kernel finish what is pending, without input; nothing happens where nothing is."""
        if not self.kernel.pending():
            return []
        return self._store(self._ticking())

    def drain(self) -> list[Emission]:
        """The end of the input: whatever was owed is emitted, and what the kernel lent out is still as it was."""
        emitted = self.tick()
        self._lent.check_unchanged()
        return emitted

    def run(self, batches: Iterable[Rows]) -> dict[str, pa.Table]:
        """Step through all batches and drain; returns everything emitted so far, by channel."""
        for batch in batches:
            self.step(batch)
        self.drain()
        return self.results()

    def results(self) -> dict[str, pa.Table]:
        """Everything emitted by stored steps, one table for each declared channel."""
        return {
            channel: pa.Table.from_batches([e.rows for e in self._emitted if e.channel == channel], schema=schema)
            for channel, schema in self.kernel.channels.items()
        }

    def crash(self) -> None:
        """Lose the live kernel between two steps; the next one starts from the store."""
        self._live = None
        self._lent.check_unchanged()
        self._lent = promises.LentChunks()

    def abandon(self, rows: Rows | None, after: int) -> list[Emission]:
        """Lose the live kernel inside a step (or, without rows, a tick), once it has emitted `after` times.

        A step that emits less often is lost after its last emission, before anything is stored. What it emitted
        does not count; it is returned, for a sink may have kept it.
        """
        if rows is not None:
            emissions = self._stepping(portions_of(rows), self._watermark.value())
        elif self.kernel.pending():
            emissions = self._ticking()
        else:
            emissions = iter(())
        emitted: list[Emission] = []
        for emission in emissions:
            promises.check_emission(self.kernel, emission)
            # Lost as late as can be: the next emission is ready, and does not get out any more.
            if len(emitted) == after:
                break
            emitted.append(emission)
        self.crash()
        return emitted

    def _stepping(self, portions: Sequence[Portion], watermark: int | None) -> Iterator[Emission]:
        """One step's emissions; a kernel that leaves input unread is at fault."""
        unread = iter([Portion(portion.side, _travel(portion.rows)) for portion in portions])
        yield from self.kernel.step(Batch(unread, watermark), self.now)
        if any(portion.rows.num_rows for portion in unread):
            raise KernelFault(
                f"{promises.name_of(self.kernel)} left input unread.",
                why="Spark counts the batch as done: these rows would be lost.",
                do="Read the batch to its end in every step.",
            )

    def _ticking(self) -> Iterator[Emission]:
        """One tick's emissions; a kernel that leaves work undone is at fault."""
        yield from self.kernel.tick(self.now, self._watermark.value())
        if self.kernel.pending():
            raise KernelFault(
                f"{promises.name_of(self.kernel)} has work pending right after a tick.",
                why="A tick finishes all pending work; a finite run would never end.",
                do="Work everything off in tick(), and let pending() say whether tick() would do anything.",
            )

    def _store(self, emissions: Iterator[Emission]) -> list[Emission]:
        """Exhaust a step and store its outcome, or raise and leave everything as it was."""
        kernel = self.kernel
        try:
            emitted = []
            for emission in emissions:
                promises.check_emission(kernel, emission)
                emitted.append(emission)
            memory = kernel.memory()
            promises.check_memory(kernel, memory, self.budget)
            changes, head = kernel.changes(), kernel.head()
            promises.check_head(kernel, head, self.head_limit)
            promises.check_changes(kernel, changes, self.store.chunks.keys())
            promises.check_metrics(kernel)
            self._lent.take_in(changes)
        except BaseException:
            self._live = None
            self._lent = promises.LentChunks()
            raise
        kept = {name: blob for name, blob in self.store.chunks.items() if name not in changes.gone}
        self.store = Store(kept | {name: blob.to_pybytes() for name, blob in changes.new.items()}, head)
        self._emitted += emitted
        for emission in emitted:
            self.rows[emission.channel] += emission.rows.num_rows
        self.peak = max(self.peak, memory)
        self.steps += 1
        self.now += self.pace
        if self.restart_every_step:
            self.crash()
        return emitted


def portions_of(rows: Rows) -> list[Portion]:
    """One micro-batch as portions, whatever it was given as; a table's record batches are portions of side 0."""
    if isinstance(rows, Portion):
        return [rows]
    if isinstance(rows, pa.RecordBatch):
        return [Portion(0, rows)]
    if isinstance(rows, pa.Table):
        return [Portion(0, batch) for batch in rows.to_batches()]
    return [portion for part in rows for portion in portions_of(part)]


def _travel(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as they arrive from Spark: read from a blob of their own, all columns in one buffer."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()
