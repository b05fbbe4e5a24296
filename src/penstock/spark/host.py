"""Hosts kernels inside Spark: wakes the slot's kernel, steps it, stores what changed.

Exactly once comes from Spark: a slot's state is committed with its micro-batch or not at all. A kernel that is still
alive in this worker is used only if its token equals the stored one, which is drawn anew at every store, so a kernel
that ran ahead in an attempt that failed, or in another worker, is never taken for the committed one; and only if it was
made by this very plan: workers outlive a query, and one that starts again with other terms must run a micro-batch the
same way in every attempt.
"""

from __future__ import annotations

import json
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from penstock.errors import CheckpointMismatch, StateDamaged
from penstock.kernels.contract import SET_ASIDE, SET_ASIDE_SCHEMA, Batch, Emission, Kernel, Metric, Portion
from penstock.plan.base import STATE_FORMAT, Plan
from penstock.spark.chunks import ChunkCache, Entry, entry_of
from penstock.spark.crash import crash_point
from penstock.spark.live import LiveKernels
from penstock.spark.outbox import Outbox, Parcel
from penstock.spark.wire import ASIDE, EVENT_TIME, batch_number, clock_of, from_blob

if TYPE_CHECKING:
    from penstock.spark.processor import Processor

METRICS = "_metrics"
#: The column with the numbers of a step, in the order of `plain_of`.
NUMBERS = "numbers"
#: The column with those of its numbers whose names are known only while it runs, as JSON.
FAMILIES = "families"
#: Both as columns of Spark's; a row of numbers has NULL in all others.
TOLD = f"{NUMBERS} array<double>, {FAMILIES} string"
_HOST_REPORTS = (
    Metric("slots_stepped", help="slots that took a step"),
    Metric("slots_restored", help="of them, those whose kernel was built again from stored state"),
    Metric("state_bytes", help="bytes of chunks written to the state store"),
    Metric("rows_malformed", help="records that did not fit the source's schema, on channel set_aside"),
    Metric("step_seconds", help="seconds in kernels, of the slowest slot", combine="max"),
)


def reports_of(plan: Plan) -> tuple[Metric, ...]:
    """The metrics of a plan's kernels, then those of the host."""
    return (*plan.reports, *_HOST_REPORTS)


def plain_of(plan: Plan) -> tuple[Metric, ...]:
    """Those that are no families: their numbers travel in this order."""
    return tuple(metric for metric in reports_of(plan) if not metric.is_family)


def numbers_of(
    kernel: Kernel, *, seconds: float, malformed: int, restored: int = 0, written: int = 0
) -> dict[str, float]:
    """What is to be told of a step."""
    host = (1.0, restored, written, malformed, seconds)
    return dict(kernel.metrics()) | dict(zip((metric.name for metric in _HOST_REPORTS), host, strict=True))


def told(plan: Plan, numbers: dict[str, float]) -> tuple[list[float], str | None]:
    """The same as they travel: those of `plain_of`, and the rest as JSON."""
    names = [metric.name for metric in plain_of(plan)]
    rest = {name: float(value) for name, value in numbers.items() if name not in names}
    return [float(numbers[name]) for name in names], json.dumps(rest) if rest else None


@dataclass
class Stored:
    """What the state store holds for a slot beside its chunks."""

    #: Tells it from slots of the same number of other flows in the query.
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    epoch: int = 0
    token: str = ""
    kernel: str = ""
    chunks: dict[str, Entry] = field(default_factory=dict)
    event_max: dict[str, int] = field(default_factory=dict)
    timer: int | None = None
    #: Seconds that the last step took, until its state was stored.
    seconds: float | None = None

    def to_bytes(self, identity: dict[str, str]) -> bytes:
        """As stored: a checksum, then JSON."""
        body = json.dumps({"format": STATE_FORMAT, "identity": identity, **self.__dict__}).encode()
        return zlib.crc32(body).to_bytes(4, "big") + body

    @classmethod
    def from_bytes(cls, blob: bytes, identity: dict[str, str]) -> Stored:
        """Read back, or refused: damaged, or made by another plan or version."""
        if zlib.crc32(blob[4:]) != int.from_bytes(blob[:4], "big"):
            raise StateDamaged(
                "A slot's head read back from the checkpoint is not what was written.",
                why="Going on would lose or repeat results.",
                do="Restore the checkpoint directory from a copy, or start with a new one.",
            )
        said = json.loads(blob[4:])
        check_identity(said.pop("format"), said.pop("identity"), identity)
        said["chunks"] = {name: Entry(*entry) for name, entry in said["chunks"].items()}
        return cls(**said)


def check_identity(state_format: int, was: dict[str, str], now: dict[str, str]) -> None:
    """Refuse state of another plan or version, saying what differs."""
    if state_format != STATE_FORMAT:
        raise CheckpointMismatch(
            f"This checkpoint is of state format {state_format}; this version of Penstock reads {STATE_FORMAT}.",
            do="Finish it with the version that wrote it, or start with a new checkpoint directory.",
        )
    differing = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    if differing:
        raise CheckpointMismatch(
            "This checkpoint was made by a different plan.",
            why="; ".join(f"{name} was {was.get(name)!r} and is now {now.get(name)!r}" for name in differing) + ".",
            do="Start the same plan again, or give this one a new checkpoint directory.",
        )


_live = LiveKernels()


def step(spark: Processor, slot: int, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """One micro-batch of one slot."""
    run = _Run(spark, slot)
    began = time.perf_counter()
    watermark = run.watermark()
    batch = Batch(run.portions(rows), watermark, run.stored.seconds)
    for emission in run.kernel.step(batch, now()):
        yield from run.send(emission)
    run.stored.seconds = time.perf_counter() - began
    run.store()
    yield run.report(time.perf_counter() - began)


def tick(spark: Processor, slot: int) -> Iterator[pd.DataFrame]:
    """No rows came for the slot since its last step: it finishes what is pending."""
    run = _Run(spark, slot)
    began = time.perf_counter()
    run.stored.timer = None
    for emission in run.kernel.tick(now(), run.watermark()):
        yield from run.send(emission)
    run.store()
    yield run.report(time.perf_counter() - began)


class _Run:
    """One step of one slot: its state as stored, its kernel, and what goes back."""

    def __init__(self, spark: Processor, slot: int) -> None:
        self._spark = spark
        self._slot = slot
        self._identity = dict(spark.plan.identity())
        self._restored = 0
        self._written = 0
        self._malformed = 0
        self._outbox = Outbox.here(spark.query, slot)
        body = spark.head.get()
        self.stored = Stored.from_bytes(body[0], self._identity) if body else Stored()
        self._cache = ChunkCache.here(spark.query, self.stored.name)
        self.kernel = self._wake()

    def _wake(self) -> Kernel:
        kernel = _live.take(self._spark.query, self.stored.name, self._token(), batch_number())
        if kernel is not None:
            return kernel
        kernel = self._spark.plan.make(self._slot)
        if self.stored.epoch:
            crash_point("in-restore")
            chunks = {name: self._read(name, entry) for name, entry in self.stored.chunks.items()}
            kernel.restore(bytes.fromhex(self.stored.kernel), chunks)
            self._restored = 1
        return kernel

    def _token(self) -> str:
        """What a live kernel must stand for: the stored state, and the plan."""
        return f"{self.stored.token} {self._spark.packed.fingerprint}"

    def _read(self, name: str, entry: Entry) -> pa.Buffer:
        cached = self._cache.get(name, entry)
        if cached is not None:
            return cached
        value = self._spark.chunks.getValue((name,))
        blob = pa.py_buffer(value[0]) if value else None
        if blob is None or entry_of(blob) != entry:
            raise StateDamaged(
                f"Chunk {name} of slot {self._slot} is {'missing' if blob is None else 'not what was written'}.",
                why="The state files of the checkpoint are damaged; going on would lose or repeat results.",
                do="Restore the checkpoint directory from a copy, or start with a new one.",
            )
        self._cache.put(name, entry, blob)
        return blob

    def portions(self, rows: Iterator[pd.DataFrame]) -> Iterator[Portion]:
        """The micro-batch as the kernel sees it."""
        sides = self._spark.plan.sides
        for frame in rows:
            for side, blob in zip(frame["side"], frame["blob"], strict=True):
                if side <= EVENT_TIME:
                    number, latest = str(EVENT_TIME - side), int.from_bytes(blob, "big", signed=True)
                    self.stored.event_max[number] = max(latest, self.stored.event_max.get(number, latest))
                elif side == ASIDE:
                    # Records that a source could not read go round the kernel, which is at work: they are sent later.
                    rows_aside = from_blob(blob, SET_ASIDE_SCHEMA)
                    self._malformed += rows_aside.num_rows
                    self._outbox.keep(SET_ASIDE, rows_aside)
                else:
                    yield Portion(int(side), from_blob(blob, sides[side].schema))

    def watermark(self) -> int | None:
        """As of the batches stored so far."""
        timed = [(str(n), side) for n, side in enumerate(self._spark.plan.sides) if side.event_time is not None]
        if not timed or any(number not in self.stored.event_max for number, _ in timed):
            return None
        return min(self.stored.event_max[number] - side.lateness for number, side in timed)

    def store(self) -> None:
        """Put what changed into Spark's state store, and into the cache."""
        changes = self.kernel.changes()
        stored = self.stored
        for name in changes.gone:
            self._spark.chunks.removeKey((name,))
            del stored.chunks[name]
        for name, blob in changes.new.items():
            entry = entry_of(blob)
            self._spark.chunks.updateValue((name,), (blob.to_pybytes(),))
            self._cache.put(name, entry, blob)
            stored.chunks[name] = entry
            self._written += entry.size
            crash_point("between-chunks")
        self._set_timer()
        stored.epoch += 1
        stored.token = uuid.uuid4().hex
        stored.kernel = self.kernel.head().hex()
        self._spark.head.update((stored.to_bytes(self._identity),))
        if changes.gone or changes.new:
            self._cache.keep_only(stored.chunks)
        _live.keep(self._spark.query, stored.name, self._token(), batch_number(), self.kernel)
        crash_point("after-store")

    def _set_timer(self) -> None:
        # Fires in the next micro-batch unless this slot gets rows in it, which then delete it first.
        if self.stored.timer is not None:
            self._spark.handle.deleteTimer(self.stored.timer)
            self.stored.timer = None
        if self.kernel.pending():
            self.stored.timer = clock_of(batch_number()) - 500
            self._spark.handle.registerTimer(self.stored.timer)

    def send(self, emission: Emission) -> Iterator[pd.DataFrame]:
        """Rows on their way out."""
        for parcel in self._outbox.add(*emission):
            yield self._frame([parcel])

    def _frame(self, parcels: list[Parcel], numbers: dict[str, float] | None = None) -> pd.DataFrame:
        """A message to the operator that follows; the numbers of the step are a row of their own."""
        out: list[tuple[Any, ...]] = [(*parcel, None, None) for parcel in parcels]
        if numbers is not None:
            out.append((METRICS, None, None, *told(self._spark.plan, numbers)))
        # Columns made of objects, so that pandas need not look for dates in them.
        columns = zip((*Parcel._fields, NUMBERS, FAMILIES), zip(*out, strict=True), strict=True)
        return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns})

    def report(self, seconds: float) -> pd.DataFrame:
        """The rest of the rows, and the numbers of this step."""
        numbers = numbers_of(
            self.kernel,
            seconds=seconds,
            malformed=self._malformed,
            restored=self._restored,
            written=self._written,
        )
        return self._frame(list(self._outbox.close()), numbers)


def now() -> int:
    """Milliseconds; for kernels to note, never to decide by."""
    return int(time.time() * 1000)
