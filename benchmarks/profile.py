"""Where a flow's processor time goes: one more turn with a profiler inside every Python worker.

Three phases run in workers of their own: *pack* (rows to blobs), *host* (the kernel, and its state), and *unpack*
(blobs to rows or to files); of a flow that keeps nothing it is one, *answer*. Times are processor seconds, so other
work on the machine hardly moves them; the profiler itself makes many small calls look dearer than they are.
"""

from __future__ import annotations

import cProfile
import pstats
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

#: The first micro-batches start workers and compile; they are left out.
WARM = 2


@dataclass(frozen=True)
class Line:
    """One function in one phase, in seconds of a micro-batch over all slots."""

    phase: str
    function: str
    calls: float
    own: float
    whole: float


@contextmanager
def recording(place: Path) -> Iterator[None]:
    """Flows made inside this block profile themselves into files in `place`."""
    from penstock.spark import runtime

    with (
        mock.patch.object(runtime, "packer", _profiled("pack", runtime.packer, place)),
        mock.patch.object(runtime, "Processor", _profiled_host(runtime.Processor, place)),
        mock.patch.object(runtime, "opener", _profiled("unpack", runtime.opener, place)),
        mock.patch.object(runtime, "answerer", _profiled("answer", runtime.answerer, place)),
        mock.patch.object(runtime, "answerer_in_few_rows", _profiled("answer", runtime.answerer_in_few_rows, place)),
    ):
        yield


def lines(place: Path, most: int = 12) -> list[Line]:
    """The dearest functions of each phase, by their own time, with the sum of the phase first."""
    files: dict[str, list[Path]] = defaultdict(list)
    batches = set()
    for path in place.glob("*.prof"):
        phase, batch, _ = path.stem.split("-", 2)
        if int(batch) >= WARM:
            files[phase].append(path)
            batches.add(batch)
    found = []
    for phase in sorted(files, key=["pack", "host", "unpack", "answer"].index):
        stats: Any = pstats.Stats(*map(str, files[phase]))
        count = len(batches)
        found.append(Line(phase, "", len(files[phase]) / count, stats.total_tt / count, stats.total_tt / count))
        by_own = sorted(stats.stats.items(), key=lambda item: -item[1][2])[:most]
        found += [
            Line(phase, _name(where), calls / count, own / count, whole / count)
            for where, (_, calls, own, whole, _) in by_own
        ]
    return found


def _name(where: tuple[str, int, str]) -> str:
    file, line, function = where
    if file == "~":
        return function
    path = Path(file)
    inside = path.parts[path.parts.index("site-packages") + 1 :] if "site-packages" in path.parts else path.parts[-3:]
    return f"{'/'.join(inside[-3:])}:{line} {function}"


def _profiled(phase: str, make: Callable[..., Any], place: Path) -> Callable[..., Any]:
    def making(*settings: Any) -> Callable[[Any], Iterator[Any]]:
        function = make(*settings)

        def run(batches: Any) -> Iterator[Any]:
            from benchmarks.profile import profiled

            return profiled(phase, function(batches), place)

        return run

    return making


def _profiled_host(base: type[Any], place: Path) -> type[Any]:
    class ProfiledHost(base):  # type: ignore[misc]
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802
            from benchmarks.profile import profiled

            return profiled("host", super().handleInputRows(key, rows, timerValues), place)

    return ProfiledHost


def profiled(phase: str, steps: Iterator[Any], place: Path) -> Iterator[Any]:
    """The same steps, with what happens inside them recorded; what happens between them is somebody else's."""
    from penstock.spark.wire import batch_number

    profiler = cProfile.Profile(time.process_time)
    steps = iter(steps)
    while True:
        profiler.enable()
        try:
            step = next(steps, None)
        finally:
            profiler.disable()
        if step is None:
            break
        yield step
    profiler.dump_stats(place / f"{phase}-{batch_number()}-{uuid.uuid4().hex[:8]}.prof")
