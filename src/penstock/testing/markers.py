"""Crash markers inside test input, so that a kill-and-resume test reads like a script.

::

    play(host, [rows, CRASH, more, TICK, CRASH_MIDWAY(2), rest])

says: a step with `rows`; the kernel is lost; a step with `more` from the stored state; a tick; a step with `rest` that
is lost after its second emission, and is then run again by a new kernel, the rows in other portions and another order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock.errors import KernelFault
from penstock.kernels.contract import Emission, Portion
from penstock.testing.host import Host, Rows, portions_of
from penstock.testing.promises import name_of
from penstock.testing.rows import Row, bag

#: How the portions of a batch come when it is run again.
Replay: TypeAlias = Callable[[Sequence[Portion]], Sequence[Portion]]


@dataclass(frozen=True)
class Crash:
    """The kernel is lost between two steps."""


@dataclass(frozen=True)
class Tick:
    """Progress without input."""


def as_sent(portions: Sequence[Portion]) -> Sequence[Portion]:
    """The same portions again, in the same order."""
    return portions


def shuffled(seed: int) -> Replay:
    """The same rows in another order and other portions, as after a second shuffle; the same for the same seed."""

    def replay(portions: Sequence[Portion]) -> Sequence[Portion]:
        rng = np.random.default_rng(seed)
        rows = [Portion(side, rows.slice(i, 1)) for side, rows in portions for i in range(rows.num_rows)]
        rows = [rows[i] for i in rng.permutation(len(rows))]
        runs = [list(run) for _, run in groupby(rows, key=lambda row: (row.side, rng.integers(4) == 0))]
        return [Portion(run[0].side, pa.concat_batches([row.rows for row in run])) for run in runs]

    return replay


_ANOTHER_ORDER = shuffled(0)


@dataclass(frozen=True)
class CrashMidway:
    """The following step or tick is lost after `emissions` emissions, nothing of it stored, and then run again.

    One that emits less often is lost after its last, when all was emitted and nothing stored. `replay` says how the
    rows come the second time.
    """

    emissions: int
    replay: Replay = _ANOTHER_ORDER


CRASH = Crash()
TICK = Tick()
CRASH_MIDWAY = CrashMidway

#: A line of a script: one micro-batch, or a marker.
Line: TypeAlias = "Rows | Crash | Tick | CrashMidway"


def play(host: Host, script: Iterable[Line]) -> dict[str, pa.Table]:
    """Run a script to its end and drain; returns all that counts, by channel.

    What a lost step emitted does not count, but a sink may have kept it: `KernelFault` if it is not among what the
    step emits when it is run again, or if it was all and there is more then. Several `CRASH_MIDWAY` in a row lose the
    same step again and again.

    >>> import pyarrow as pa
    >>> from penstock.kernels.passthrough import PassThrough
    >>> rows = pa.table({"n": [1, 2]})
    >>> host = Host(lambda: PassThrough(rows.schema))
    >>> play(host, [rows, CRASH, CRASH_MIDWAY(1, as_sent), rows, TICK])["results"].to_pydict()
    {'n': [1, 2, 1, 2]}
    >>> host.restores
    2
    """
    crashes: list[CrashMidway] = []
    for line in script:
        if isinstance(line, Crash):
            host.crash()
        elif isinstance(line, CrashMidway):
            crashes.append(line)
        else:
            _run(host, None if isinstance(line, Tick) else portions_of(line), crashes)
            crashes = []
    if crashes:
        raise ValueError("The script ends with CRASH_MIDWAY: put it before the step or TICK that is to be lost.")
    host.drain()
    return host.results()


def _run(host: Host, portions: Sequence[Portion] | None, crashes: Sequence[CrashMidway]) -> None:
    """One step or tick, lost as often as asked for and at last stored."""
    lost: list[tuple[list[Emission], bool]] = []
    for crash in crashes:
        emitted = host.abandon(portions, crash.emissions)
        lost.append((emitted, len(emitted) < crash.emissions))
        portions = None if portions is None else crash.replay(portions)
    kept = host.tick() if portions is None else host.step(portions)
    for emitted, whole in lost:
        _check_same(host, emitted, kept, whole=whole)


def _check_same(host: Host, lost: Sequence[Emission], kept: Sequence[Emission], *, whole: bool) -> None:
    """What a lost run emitted is emitted again; where that was the whole of it, nothing else is."""
    for channel in host.kernel.channels:
        first, again = (_bag([e.rows for e in emissions if e.channel == channel]) for emissions in (lost, kept))
        if gone := first - again:
            raise _differs(host, channel, gone, "no longer emits what it had emitted", "has what should not be there")
        if whole and (more := again - first):
            raise _differs(host, channel, more, "emits more than it had emitted", "never gets these")


def _differs(host: Host, channel: str, rows: Counter[Row], what: str, then: str) -> KernelFault:
    row, count = next(iter(rows.items()))
    return KernelFault(
        f"{name_of(host.kernel)}, run again from the same state, {what}.",
        why=f"On {channel!r} it is {sum(rows.values()):,} rows, among them {count} × {row}: "
        f"a sink that kept the first run's output {then}.",
        do="Decide what is emitted and what waits by the state and the bag of rows alone, not by order or cut.",
    )


def _bag(batches: Sequence[pa.RecordBatch]) -> Counter[Row]:
    return bag(pa.Table.from_batches(batches)) if batches else bag(pa.table({}))
