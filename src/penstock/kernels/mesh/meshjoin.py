"""MESHJOIN: a stream joined with a table larger than memory, by one cyclic scan shared by all rows that wait."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import KernelFault, MemoryTooSmall, StateDamaged
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Batch, Changes, Emission, Kernel, Metric
from penstock.kernels.measure import fixed_width, widths
from penstock.kernels.mesh.index import BYTES_PER_ROW, Cursor, probe, sift
from penstock.kernels.mesh.window import PIECE_ROWS, Packet, Window, cost, gather_pieces
from penstock.tables.base import Page, Table
from penstock.tables.keys import equal_keys, joinable

#: The least room for waiting rows that makes a scan worth its cost.
LEAST_WINDOW = 64 << 10
#: A waiting row has met every page after at most this many steps.
STEPS_PER_CYCLE = 8
#: Results leave in batches of about this many bytes.
_SLICE_BYTES = 5 << 19
_SLICE_ROWS = 65_536
_FORMAT = 1


class MeshJoin(Kernel):
    """Inner equi-join of a stream with the pages of a table, exact, under a hard budget.

    The scan goes round the pages for ever. Rows that arrive together form a packet; a packet waits in the window until
    the scan has come round to the page it started at, and has then met every page. A page is read by its key hashes
    first, and other columns only where something matched. A step scans the share of the pages that its rows take up of
    the window (at least one eighth, so that no row waits longer than eight steps); `tick` finishes the cycle.

    Guarantees
        Equal to the join of all rows so far with the table once nothing is pending, however rows were cut into
        batches; NULL and NaN keys join nothing: `test_conformance`, with `naive.join`.
        `memory()` at most `budget`: `test_conformance`, and by resident size in `tests/spark/test_memory.py`.
    State and cost
        The waiting rows with 8 bytes of index each, one page's hashes and one of its columns, one slice of
        results. One chunk for each packet that outlives its step. A cycle costs one pass over the key hashes and a
        read of the matched rows.
    Source
        000 §3.1, Figure 4; packets that record where they began, §3.3, Figure 6.
    """

    reports = (
        Metric("rows_in", help="rows that arrived"),
        Metric("rows_without_key", help="rows whose key is NULL or NaN; they join nothing"),
        Metric("rows_set_aside", help="rows too large for the window"),
        Metric("rows_out", help="results"),
        Metric("rows_waiting", help="rows in the window after the step"),
        Metric("pages_read", help="pages scanned"),
        Metric("cycles", help="times the whole table was scanned", combine="max"),
        Metric("memory", help="bytes held at the most, over all slots"),
        Metric("budget", help="bytes allowed, over all slots"),
    )

    def __init__(
        self,
        schema: pa.Schema,
        table: Table,
        *,
        on: Sequence[str],
        budget: int,
        pages: Sequence[Page] | None = None,
        hashes: tuple[int, int] = (0, 1 << 64),
        pages_per_step: int | None = None,
        counts_rows: bool = True,
    ) -> None:
        self._on = tuple(on)
        self._table = table
        self._schema = schema
        self._pages = tuple(table.pages if pages is None else pages)
        self._reader = table.open()
        self._pages_per_step = pages_per_step
        self._carried = [name for name in table.schema.names if name not in table.key]
        self.channels = {RESULTS: results_schema(schema, table), SET_ASIDE: SET_ASIDE_SCHEMA}
        self.budget = budget
        self._fixed_width = fixed_width(self.channels[RESULTS])
        self._reserve = reserve(self._pages)
        self._room = budget - self._reserve
        if self._room < LEAST_WINDOW:
            raise MemoryTooSmall(
                f"{budget} bytes cannot hold one page and one packet of this join.",
                why=f"A page of {table.path} needs {self._reserve} bytes while it is probed.",
                do=f"Give each slot at least {self._reserve + LEAST_WINDOW} bytes.",
            )
        self._window = Window(on, *hashes)
        self._clock = 0
        self._named = 0
        self._arrived = 0
        self._stored: set[str] = set()
        self._peak = 0.0
        self._counts: dict[str, float] = {}
        # Where every slot holds every row, one of them counts rows and sets them aside, for all.
        self._counts_rows = counts_rows

    # -- the contract ------------------------------------------------------------------------------------------

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Admit the rows; scan as many pages as they call for, all of them whenever the window is full."""
        self._begin()
        opened: list[pa.RecordBatch] = []
        opened_cost = 0.0
        overflowed = False
        for _, rows in batch:
            self._counts["rows_in"] += rows.num_rows
            waiting = self._with_key(rows)
            while waiting.num_rows:
                fitting, waiting = self._split(waiting, self._room - self._window.nbytes - opened_cost)
                if fitting.num_rows:
                    opened.append(fitting)
                    opened_cost += cost(fitting)
                    self._note(opened_cost)
                if waiting.num_rows and not opened and not self._window:
                    if self._counts_rows:
                        yield self._too_large(waiting.slice(0, 1))
                    waiting, overflowed = waiting.slice(1), True
                elif waiting.num_rows:
                    self._close(opened, opened_cost)
                    opened, opened_cost, overflowed = [], 0.0, True
                    yield from self._scan(len(self._pages))
        self._close(opened, opened_cost)
        # Which rows came before the overflow depends on their order; after it nothing may be left waiting, so that a
        # step that is run again emits the same bag.
        yield from self._scan(len(self._pages) if overflowed else self._due(opened_cost))

    def tick(self, now: int, watermark: int | None = None) -> Iterator[Emission]:
        """Scan until no row waits."""
        self._begin()
        yield from self._scan(len(self._pages))

    def pending(self) -> bool:
        """Whether rows wait for pages."""
        return bool(self._window)

    def memory(self) -> int:
        """Bytes held at the most since the last step began."""
        return math.ceil(max(self._peak, self._window.nbytes))

    def changes(self) -> Changes:
        """Packets that outlived their step, and stored ones that have met every page."""
        alive = {packet.name: packet for packet in self._window.packets}
        new = {name: _write(packet.pieces) for name, packet in alive.items() if name not in self._stored}
        gone = tuple(sorted(self._stored - alive.keys()))
        self._stored = set(alive)
        return Changes(new, gone)

    def head(self) -> bytes:
        """Where the scan stands and which packets wait."""
        return json.dumps(
            {
                "format": _FORMAT,
                "table": self._table.version,
                "pages": len(self._pages),
                "clock": self._clock,
                "named": self._named,
                "packets": [[p.name, p.rows, p.until] for p in self._window.packets],
            }
        ).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Take up the packets and the scan where they were left."""
        said = json.loads(head)
        self._check(said)
        self._clock, self._named = said["clock"], said["named"]
        self._window.packets.clear()
        self._window.expire(self._clock)
        self._arrived = 0
        for name, rows, until in said["packets"]:
            packet = Packet(name, self._arrived, _read(chunks[name]), until)
            if packet.rows != rows:
                raise StateDamaged(
                    f"Packet {name} has {packet.rows} rows where its head says {rows}.",
                    why="Going on would lose or repeat results.",
                    do="Restore the checkpoint from a copy, or start with a new one.",
                )
            self._window.admit(packet)
            self._arrived += rows
            self._stored.add(name)

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step."""
        cycles = self._clock // len(self._pages) if self._pages else 0
        counts = self._counts if self._counts_rows else self._counts | {"rows_in": 0.0, "rows_without_key": 0.0}
        return counts | {
            "rows_waiting": self._window.rows if self._counts_rows else 0,
            "cycles": cycles,
            "memory": self.memory(),
            "budget": self.budget,
        }

    # -- admission ---------------------------------------------------------------------------------------------

    def _with_key(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        keep = joinable([rows.column(name) for name in self._on])
        if keep is None:
            return rows
        kept = rows.filter(pa.array(keep))
        self._counts["rows_without_key"] += rows.num_rows - kept.num_rows
        return kept

    def _split(self, rows: pa.RecordBatch, room: float) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The first rows, as many as `room` bytes hold, and the rest."""
        count = rows.num_rows
        while count and cost(rows.slice(0, count)) > room:
            count //= 2
        if count == rows.num_rows:
            return rows, rows.slice(count)
        return rows.slice(0, count), rows.slice(count)

    def _too_large(self, row: pa.RecordBatch) -> Emission:
        self._counts["rows_set_aside"] += 1
        reason = f"one row of {cost(row):.0f} bytes is larger than the {self._room} bytes of the window"
        raw = json.dumps(row.to_pylist()[0], default=str)
        columns = [pa.array([text], pa.string()) for text in (reason, "", raw)]
        return Emission(SET_ASIDE, pa.RecordBatch.from_arrays(columns, schema=SET_ASIDE_SCHEMA))

    def _close(self, portions: list[pa.RecordBatch], taken: float) -> None:
        if not portions:
            return
        # Rows in one piece are gathered quickest, and where there is room for a second copy they are put together.
        roomy = self._window.nbytes + 2 * taken <= self._room
        pieces = gather_pieces(portions, sum(p.num_rows for p in portions) if roomy else PIECE_ROWS)
        packet = Packet(f"p{self._named:08d}", self._arrived, pieces, self._clock + max(len(self._pages), 1))
        self._named += 1
        self._arrived += packet.rows
        self._window.admit(packet)
        self._note()

    def _due(self, admitted: float) -> int:
        """Pages to scan in a step that admitted this many bytes.

        Rows that leave in the step they came need never be stored, so only a packet that is small beside the window,
        and whose stored form fits where pages are held during a scan, waits for later steps.
        """
        total = len(self._pages)
        if self._pages_per_step is not None:
            return self._pages_per_step
        if admitted > min(self._room / STEPS_PER_CYCLE, self._reserve):
            return total
        return -(-total // STEPS_PER_CYCLE)

    # -- the scan ----------------------------------------------------------------------------------------------

    def _scan(self, pages: int) -> Iterator[Emission]:
        if not self._pages:
            self._window.expire(self._clock + 1)
            return
        for _ in range(pages):
            if not self._window:
                return
            yield from self._meet(self._pages[self._clock % len(self._pages)])
            self._clock += 1
            self._counts["pages_read"] += 1
            self._window.expire(self._clock)

    def _meet(self, page: Page) -> Iterator[Emission]:
        hashes = self._reader.hashes(page)
        if len(hashes) != page.rows:
            raise KernelFault(f"Page {page.index} has {len(hashes)} hashes for {page.rows} rows.")
        index, first_live = self._window.index, self._window.first_live
        self._note(page.hash_bytes)
        survivors = np.empty(page.rows, np.int32)
        survivors = survivors[: sift(index, hashes, survivors)]
        size = self._slice_rows(page)
        page_rows, window_rows = np.empty(size, np.int64), np.empty(size, np.int64)
        at = Cursor()
        while at.survivor < survivors.size:
            count, at = probe(index, hashes, survivors, at, first_live, page_rows, window_rows)
            if count:
                self._note(beside_window(page))
                yield from self._join(page, page_rows[:count], window_rows[:count])

    def _slice_rows(self, page: Page) -> int:
        each = page.row_width + self._window.nbytes / max(self._window.rows, 1) + 16
        return int(min(max(_SLICE_BYTES / each, 16), _SLICE_ROWS))

    def _join(self, page: Page, page_rows: np.ndarray, window_rows: np.ndarray) -> Iterator[Emission]:
        if self._fixed_width:
            yield from self._emit(self._window.take(window_rows), self._reader.take(page, page_rows))
            return
        # The pairs come in the order of the page's rows. A row that meets many is read once: as often as it is met, one
        # wide value could take any amount of memory.
        first = np.flatnonzero(np.diff(page_rows, prepend=-1))
        partners = self._reader.take(page, page_rows[first])
        met = np.repeat(np.arange(len(first)), np.diff(first, append=len(page_rows)))
        for begin, end in self._slices(partners, met, window_rows):
            yield from self._emit(self._window.take(window_rows[begin:end]), _pick(partners, met[begin:end]))

    def _slices(self, partners: pa.RecordBatch, met: np.ndarray, window_rows: np.ndarray) -> Iterator[tuple[int, int]]:
        """The pairs in runs whose results take up about `_SLICE_BYTES`, whatever the mean of their widths says."""
        ends = np.cumsum(widths(partners, met) + self._window.widths(window_rows))
        begin, done = 0, 0.0
        while begin < len(met):
            end = max(int(np.searchsorted(ends, done + _SLICE_BYTES, side="right")), begin + 1)
            yield begin, end
            begin, done = end, float(ends[end - 1])

    def _emit(self, rows: pa.RecordBatch, partners: pa.RecordBatch) -> Iterator[Emission]:
        same = equal_keys([rows.column(name) for name in self._on], [partners.column(name) for name in self._table.key])
        columns = [*rows.columns, *(partners.column(name) for name in self._carried)]
        joined = pa.RecordBatch.from_arrays(columns, schema=self.channels[RESULTS])
        if not same.all():
            joined = joined.filter(pa.array(same))
        self._counts["rows_out"] += joined.num_rows
        if joined.num_rows:
            yield Emission(RESULTS, joined)

    def _begin(self) -> None:
        self._counts = dict.fromkeys((metric.name for metric in self.reports), 0.0)
        self._peak = self._window.nbytes

    def _note(self, beside: float = 0) -> None:
        self._peak = max(self._peak, self._window.nbytes + beside)

    def _check(self, said: dict[str, object]) -> None:
        if said["format"] != _FORMAT:
            raise StateDamaged(f"State of format {said['format']}; this version reads {_FORMAT}.")
        if said["packets"] and (said["table"] != self._table.version or said["pages"] != len(self._pages)):
            raise StateDamaged(
                f"Rows still wait for pages of another version of {self._table.path}.",
                why="They have met some pages of the old version; meeting the rest in the new one would mix the two.",
                do="Put the old files back and let the query finish, or start with a new checkpoint.",
            )


def reserve(pages: Sequence[Page]) -> int:
    """Bytes beside the window at the most, for any of these pages."""
    return max((beside_window(page) for page in pages), default=0)


def beside_window(page: Page) -> int:
    """Bytes beside the window while a page is met: its hashes and survivors, what reading takes, a slice of results."""
    return max(page.hash_bytes, 8 * page.rows + page.row_bytes) + 4 * page.rows + _SLICE_BYTES


def least_budget(pages: Sequence[Page]) -> int:
    """The smallest budget with which these pages can be joined."""
    return reserve(pages) + LEAST_WINDOW


def results_schema(stream: pa.Schema, table: Table) -> pa.Schema:
    """The stream's columns, then the table's without its key (it equals the stream's)."""
    return pa.schema([*stream, *(field for field in table.schema if field.name not in table.key)])


def rows_in(budget: int, pages: Sequence[Page], row_bytes: int) -> int:
    """How many rows of this size a window under this budget holds: what one pass over the table is shared by."""
    return max((budget - reserve(pages)) // (row_bytes + BYTES_PER_ROW), 0)


def _pick(rows: pa.RecordBatch, numbers: np.ndarray) -> pa.RecordBatch:
    """The rows with these numbers, which ascend; without a copy where each comes once."""
    first, count = int(numbers[0]), len(numbers)
    once = numbers[-1] - first == count - 1 and bool(np.all(np.diff(numbers) == 1))
    return rows.slice(first, count) if once else rows.take(pa.array(numbers))


def _write(pieces: Sequence[pa.RecordBatch]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pieces[0].schema) as writer:
        for piece in pieces:
            writer.write_batch(piece)
    return sink.getvalue()


def _read(blob: pa.Buffer) -> tuple[pa.RecordBatch, ...]:
    return tuple(pa.ipc.open_stream(blob))
