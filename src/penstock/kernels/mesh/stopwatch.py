"""Takes the times of one table's pages in a mesh join, for `calibrate`.

The clock is processor time, so that a busy machine does not look like a slow one; where a page really came from the
disk (the system counts blocks), wall time.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from penstock.kernels.contract import Batch, Portion
from penstock.kernels.measure import measure
from penstock.kernels.mesh.bench_stream import BenchStream
from penstock.kernels.mesh.budget import LEAST_WINDOW, beside_window, reserve
from penstock.kernels.mesh.index import BYTES_PER_ROW, Cursor, build, probe, sift
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.tables.base import Page, Table

#: Bytes of results that are built at once, whatever the page.
SLICE = beside_window(Page(0, 0, 0, 0))
_SLICE_ROWS = 65_536
_SCAN_PAGES = 24
_LEAST_TIMES = 6
#: Bytes of the table that are read for one point at the most, and of it in a window: wide rows are met less often.
_SCAN_BYTES = 96 << 20
_MATCH_BYTES = 32 << 20
#: Pages with fewer rows than this share of the largest are leftovers, and not measured.
_WHOLE = 0.8
#: Windows up to this size are kept for the next round.
_KEPT_ROWS = 1 << 17


@dataclass
class Point:
    """Times for one window: first steps (admission, index, one page), then single pages with few and with many
    matches, and seconds to probe with one row of the table.
    """

    first: list[float] = field(default_factory=list)
    few: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    few_results: float = 0.0
    many_results: float = 0.0

    @property
    def spread(self) -> float:
        """How many more results a page has with many matches: what the cost of one is measured by."""
        return max(self.many_results - self.few_results, 1e-9)

    @property
    def result(self) -> float:
        """Seconds for each further match of a page."""
        return max(typical(self.many) - typical(self.few), 0.0) / self.spread

    def opening(self, without: float, result: float) -> float:
        """Seconds for a page's first match, where each further one takes `result` and a page with none `without`."""
        few = typical(self.few) - without - self.few_results * result
        many = typical(self.many) - without - self.many_results * result
        return max((few + many) / 2, 0.0)


@dataclass
class _Scan:
    """A kernel whose window is full: the seconds of its first step, of the pages after, and the results of a page."""

    kernel: MeshJoin
    first: float
    times: list[float] = field(default_factory=list)
    results: float = 0.0


class Stopwatch:
    """One table under measurement: every `round` adds to the times, their first quartiles are what counts."""

    def __init__(self, table: Table, row_bytes: int, matches: float, seed: int, scan_rows: int) -> None:
        self.table = table
        self._reader = table.open()
        self._matches = matches
        self._stream = BenchStream(table, self._reader, row_bytes, seed)
        self.pages = _some(table.pages, scan_rows)
        self.page_rows = float(np.mean([page.rows for page in self.pages]))
        self.page_bytes = float(np.mean([page.rows * max(page.row_width, 1) for page in self.pages]))
        sample = self._stream.rows(1 << 10, {})[0].rows
        self.row_bytes = measure(sample) / sample.num_rows
        each = table.pages[0].row_width + self.row_bytes + BYTES_PER_ROW + 16
        self.slice_rows = float(np.clip(SLICE / each, 16, _SLICE_ROWS))
        self.points: dict[int, Point] = {}
        #: Seconds of pages that match nothing.
        self.reads: list[float] = []
        self._admit: list[float] = []
        self._expire: list[float] = []
        self._windows: dict[tuple[int, int], list[Portion]] = {}
        self._probed = self._candidates = 0

    @property
    def admission(self) -> float:
        """Seconds to take in and let go of a row that meets no page."""
        return typical(self._admit)

    @property
    def expiry(self) -> float:
        """Seconds to let go of a row."""
        return typical(self._expire)

    @property
    def false_candidates(self) -> float:
        """Rows of the table, as a share, that seem to match one of as many random hashes as a window has."""
        return self._candidates / max(self._probed, 1)

    def round(self, windows: Sequence[int], keep: bool) -> None:
        """Take every time once."""
        (nothing,) = self._scan(2, [0])
        self.reads += nothing.times if keep else []
        for window in windows:
            point = self.points.setdefault(window, Point())
            many = self._many(window)
            less, more = self._scan(window, [max(many // 16, 1), many])
            point.few_results, point.many_results = less.results, more.results
            probing = self._probe(window)
            if keep:
                point.first += [less.first, more.first]
                point.few += less.times
                point.many += more.times
                point.probes.append(probing)
        self._admission(windows[-1], keep)

    def _many(self, window: int) -> int:
        """Matches of a page: as many as it will have, but no more than one slice of results, and some in any case."""
        page = min(page.rows for page in self.pages)
        expected = self._matches * window * page / max(self.table.rows, 1)
        width = self.page_bytes / self.page_rows
        most = min(0.9 * self.slice_rows, window / (2 * len(self.pages)), _MATCH_BYTES / width / len(self.pages))
        return max(int(min(max(expected, 64), most)), 2)

    def _scan(self, window: int, matching: Sequence[int]) -> list[_Scan]:
        """Admit rows and meet one page; then meet the pages one by one. Kernels, one for each number of matches of a
        page, take turns, so that what disturbs one disturbs all.
        """
        # A table of few pages is met several times over, for the sake of the quartiles.
        times = int(np.clip(_SCAN_BYTES / self.page_bytes, 1, _LEAST_TIMES))
        pages = self.pages * -(-times // len(self.pages))
        scans = []
        for count in matching:
            rows = self._rows(window, count)
            kernel = self._kernel(rows, [*self.pages[:1], *pages])
            scans.append(_Scan(kernel, timed(partial(_run, kernel, rows))))
        for _ in pages:
            for scan in scans:
                scan.times.append(timed(partial(_run, scan.kernel, [])))
                scan.results += scan.kernel.metrics()["rows_out"] / len(pages)
        return scans

    def _probe(self, window: int) -> float:
        """Seconds a row of the table, over pages whose hashes were just read."""
        hashes = np.random.default_rng(window).integers(0, np.iinfo(np.uint64).max, window, np.uint64)
        index = build([(0, hashes)], [(0, hashes)], window, 0, 1 << 64)
        times = []
        pairs = np.empty(1 << 12, np.int64), np.empty(1 << 12, np.int64)
        for page in self.pages:
            read = self._reader.hashes(page)
            room = np.empty(page.rows, np.int32)

            def once(read: np.ndarray = read, room: np.ndarray = room) -> None:
                kept = room[: sift(index, read, room)]
                self._candidates += probe(index, read, kept, Cursor(), 0, *pairs)[0]

            times.append(timed(once) / page.rows)
            self._probed += page.rows
        return typical(times)

    def _admission(self, window: int, keep: bool) -> None:
        rows = self._rows(window, 0)
        kernel = self._kernel(rows, [])
        admitted = timed(lambda: _run(kernel, rows)) / window
        # What a packet takes up is counted when it comes, and again when it goes.
        gone = timed(lambda: [measure(portion.rows) for portion in rows]) / window
        if keep:
            self._admit.append(admitted)
            self._expire.append(min(gone, admitted))

    def _kernel(self, rows: Sequence[Portion], pages: Sequence[Page]) -> MeshJoin:
        # A budget that the window fills: a half-empty one is kept in other pieces. By the rows themselves: a key of the
        # table may be wider than all strangers together, and an overflow is a pass over the table.
        room = int(sum(measure(part) + part.num_rows * BYTES_PER_ROW for _, part in rows) * 1.05)
        budget = reserve(self.table.pages) + max(room, LEAST_WINDOW)
        return MeshJoin(
            self._stream.schema, self.table, on=self.table.key, budget=budget, pages=pages, pages_per_step=1
        )

    def _rows(self, window: int, matching: int) -> list[Portion]:
        asked = window, matching
        if asked not in self._windows:
            self._windows = {key: rows for key, rows in self._windows.items() if key[0] <= _KEPT_ROWS}
            self._windows[asked] = self._stream.rows(window, {page.index: matching for page in self.pages})
        return self._windows[asked]


def _run(kernel: MeshJoin, rows: Sequence[Portion]) -> None:
    for _ in kernel.step(Batch(rows), 0):
        pass


def _some(pages: Sequence[Page], rows: int) -> list[Page]:
    """Whole pages that follow one another, from the middle of the table on, as a scan meets them; not too many."""
    largest = max(page.rows for page in pages)
    whole = [page for page in pages if page.rows >= _WHOLE * largest]
    widest = max(page.rows * max(page.row_width, 1) for page in whole)
    asked = min(rows / largest, _SCAN_BYTES / widest)
    count = int(np.clip(asked, min(2, len(whole)), min(_SCAN_PAGES, len(whole))))
    first = (len(whole) - count) // 2
    # Nothing is known of them before they are read, so that none is skipped.
    return [replace(page, hashes=None, spans=()) for page in whole[first : first + count]]


def typical(times: Sequence[float]) -> float:
    """The first quartile: what disturbs a measurement makes it longer, never shorter."""
    return float(np.quantile(times, 0.25))


def timed(work: Callable[[], object]) -> float:
    """Seconds that work takes: of the processor, or by the wall where it waited for the disk."""
    blocks = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
    wall, spent = time.perf_counter(), time.process_time()
    work()
    spent, wall = time.process_time() - spent, time.perf_counter() - wall
    from_disk = resource.getrusage(resource.RUSAGE_SELF).ru_inblock > blocks
    return wall if from_disk else spent
