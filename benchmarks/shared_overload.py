"""Rows that come faster than they can be joined: how long the smallest query waits under each scheduler, through Spark.

A step may do so much work, and there is a step about every second: that is the capacity. For thirty steps rows arrive
with a fifth more work than that, as files, two for each step that Spark has begun, so that it is a fifth however fast
the machine is; they go on arriving afterwards, so that nothing is worked off in a pause. A result's time is from the
arrival of its later row to the commit of the files that have it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import streams
from benchmarks.harness import Benchmark, Contestant, Ratio, Sample, Turn

if TYPE_CHECKING:
    from penstock.spark.running import Running
    from penstock.spark.shared_flow import SharedFlow

F64 = npt.NDArray[np.float64]

WINDOWS = {"second": 1, "five": 5, "twenty": 20}
GREEDY, SWF, LWO = "Penstock, Greedy", "Penstock, SWF", "Penstock, LWO"
_EPOCH = 1_700_000_000_000_000


@dataclass(frozen=True)
class Overload:
    """Rows a step on each side, keys, steps of overload, and how much more than can be done."""

    rate: int = 500
    keys: int = 200
    steps: int = 30
    excess: float = 1.2

    @property
    def work(self) -> float:
        """Units of work that arrive in a step."""
        return 2 * self.rate * (2 * self.rate * max(WINDOWS.values()) / self.keys + 1)

    @property
    def capacity(self) -> int:
        """Units of work that a step may do."""
        return int(self.work / self.excess)


def benchmark(quick: bool) -> Benchmark:
    """The 95th percentile of the one-second query, as if it were the time of a micro-batch."""
    load = Overload(rate=100, steps=4) if quick else Overload()
    about = (
        f"windows of 1, 5 and 20 s, {load.rate} rows a step and side, for {load.steps} steps of about a second a fifth "
        "more work than can be done; seconds are the 95th percentile of the 1 s query's response"
    )
    schedulers = {GREEDY: "greedy", SWF: "swf", LWO: "lwo"}
    return Benchmark(
        "join_shared/overload",
        about,
        lambda: [Contestant(name, _turns(load, scheduler)) for name, scheduler in schedulers.items()],
        (Ratio(GREEDY, LWO, 3), Ratio(SWF, LWO)),
    )


def _turns(load: Overload, scheduler: str) -> Callable[[Turn], Sequence[Sample]]:
    def turns(turn: Turn) -> Sequence[Sample]:
        # The first turn only warms up.
        waits = responses(replace(load, steps=min(load.steps, 3)) if turn.warming else load, scheduler, turn)
        quantiles = {name: [float(np.quantile(each, q)) for q in (0.5, 0.95, 1.0)] for name, each in waits.items()}
        for name, (half, most, longest) in quantiles.items():
            turn.say(f"{name}: median {half:.2f} s, 95% {most:.2f} s, longest {longest:.2f} s")
        return [Sample(1, quantiles["second"][1], details=quantiles)]

    return turns


def responses(load: Overload, scheduler: str, turn: Turn) -> dict[str, F64]:
    """Seconds from arrival to commit, for each query's results whose later row came during the overload."""
    with streams.scratch() as place:
        flow = _flow(place, load, scheduler)
        _write(place, load, -max(WINDOWS.values()), 0.0, 0)
        outputs = {channel: str(place / channel) for channel in flow.channels}
        running = flow.start(checkpoint=str(place / "ck"), trigger={"processingTime": "1 second"}, **outputs)
        try:
            _until(lambda: bool(flow.history()) and not flow.history()[-1]["unfinished"], running)
            came = _arrive(place, load, flow, running, turn, after=2 if turn.warming else 9)
        finally:
            running.stop()
        return {name: _waits(place / name, np.array(came), load.steps) for name in WINDOWS}


def _flow(place: Path, load: Overload, scheduler: str) -> SharedFlow:
    import penstock as ps

    read = streams.session().readStream
    frames = []
    for side, columns in (("left", "k long, lt timestamp, v long"), ("right", "k long, rt timestamp, w long")):
        (place / side).mkdir()
        frames.append(read.schema(columns).parquet(str(place / side)))
    return ps.join_shared(
        *frames,
        on="k",
        windows={name: f"{seconds} s" for name, seconds in WINDOWS.items()},
        time=("lt", "rt"),
        lateness="2 s",
        memory="128MB",
        scheduler=scheduler,
        slice=load.capacity,
        slots=1,
    )


def _arrive(place: Path, load: Overload, flow: SharedFlow, running: Running, turn: Turn, after: int) -> list[float]:
    """Rows arrive, half a step's at a time, two halves for each step that is done; when each half came."""
    begun, came = len(flow.history()), []
    while len(came) < 2 * (load.steps + after):
        done = len(flow.history()) - begun
        # Two halves ahead, so that the next step finds its rows.
        while len(came) < 2 * (done + 1):
            number = len(came)
            _write(place, load, number / 2, (number + 1) / 2, number + 1)
            came.append(time.time())
            running.wait(0.4)
        turn.say(f"step {done}, {flow.history()[-1]['unfinished']:.0f} rows unfinished")
        running.wait(0.1)
    return came


def _write(place: Path, load: Overload, begin: float, end: float, number: int) -> None:
    """The rows of both sides that arrive from `begin` up to `end`, seconds from the start, evenly and in order."""
    first, last = math.ceil(begin * load.rate), math.ceil(end * load.rate)
    rng = np.random.default_rng(abs(first) + 1)
    for side, time_, value in (("left", "lt", "v"), ("right", "rt", "w")):
        numbers = np.arange(first, last)
        moments = pa.array(_EPOCH + numbers * 1_000_000 // load.rate).cast(pa.timestamp("us", "UTC"))
        rows = pa.table({"k": rng.integers(0, load.keys, len(numbers)), time_: moments, value: numbers})
        made = place / side / f".{number:05d}"
        pq.write_table(rows, made)
        made.rename(place / side / f"{number:05d}.parquet")


def _waits(place: Path, came: F64, steps: int) -> F64:
    found = [np.zeros(0)]
    for file in place.glob("part-*.parquet"):
        batch = int(file.name.split("-")[1])
        committed = (place / "_penstock" / "ledger" / f"{batch:020d}.json").stat().st_mtime
        rows = pq.read_table(file, columns=["lt", "rt"])
        later = np.maximum(*(rows[name].cast(pa.int64()).to_numpy() for name in ("lt", "rt")))
        half = np.floor((later - _EPOCH) / 500_000).astype(np.int64)
        half = half[(half >= 0) & (half < 2 * steps)]
        found.append(committed - came[half])
    return np.concatenate(found)


def _until(true: Callable[[], bool], running: Running, patience: float = 120.0) -> None:
    until = time.monotonic() + patience
    while not true():
        if time.monotonic() > until:
            raise TimeoutError("The history was not joined in time.")
        running.wait(0.1)
