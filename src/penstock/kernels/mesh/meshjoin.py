"""MESHJOIN: a stream joined with a table larger than memory, by one cyclic scan shared by all rows that wait."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import MemoryTooSmall, StateDamaged
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Batch, Changes, Emission, Kernel, Metric
from penstock.kernels.measure import fixed_width, measure, runs, widths
from penstock.kernels.mesh.budget import LEAST_WINDOW, SLICE_BYTES, beside_window, reserve
from penstock.kernels.mesh.condition import FAILED, MET, Condition, Equal
from penstock.kernels.mesh.front import Front
from penstock.kernels.mesh.index import I64
from penstock.kernels.mesh.results import How, carried, results_schema
from penstock.kernels.mesh.window import PIECE_ROWS, Packet, Window, gather_pieces, pack_rows, unpack_rows
from penstock.tables.base import Page, Table

if TYPE_CHECKING:
    from penstock.tables.keys import Mask

#: A waiting row has met every page after at most this many steps.
STEPS_PER_CYCLE = 8
_SLICE_ROWS = 65_536
#: With this many waiting rows for each page, most of a page is needed and it pays to fetch it ahead.
_WORTH_FETCHING = 64
_FORMAT = 1
_COUNTED_ELSEWHERE = {"rows_in": 0.0, "rows_without_key": 0.0, "rows_answered": 0.0}


class MeshJoin(Kernel):
    """Join of a stream with the pages of a table, exact, under a hard budget.

    The scan goes round the pages for ever. Rows that arrive together form a packet; a packet waits in the window until
    the scan has come round to the page it started at, and has then met every page. A page is read by its key hashes
    first, and other columns only where something matched. A step scans the share of the pages that its rows take up of
    the window (at least one eighth, so that no row waits longer than eight steps); `tick` finishes the cycle.

    `how` is "inner", "left" (a row without partner comes with NULLs), "semi" (rows that have a partner, once) or "anti"
    (those that have none). What a row lacks is known when it has met every page. How many rows a packet has and how
    many pages a step scans may differ from step to step: this is AMESHJOIN, and MESHJOIN with fixed ones.

    With `front` rows with hot keys are answered from a cache (`kernels.mesh.front`), where keys are to be equal; the
    number is how many passes a step another choice of keys must save.

    Guarantees
        Equal to the join of all rows so far with the table once nothing is pending, however rows were cut into
        batches; NULL and NaN keys join nothing: `test_conformance`, with `naive.join`.
        `memory()` at most `budget`: `test_conformance`, and by resident size in `tests/spark/test_memory.py`.
    State and cost
        The waiting rows with 8 bytes of index each, one page's hashes and one of its columns, one slice of
        results. One chunk for each packet that outlives its step. A cycle costs one pass over the key hashes and a
        read of the matched rows. With `front`, up to a quarter of the window's room for the cache, one more chunk.
    Source
        000 §3.1, Figure 4; packets that record where they began, §3.3, Figure 6.
    """

    reports: tuple[Metric, ...] = (
        Metric("rows_in", help="rows that arrived"),
        Metric("rows_without_key", help="rows whose key is NULL or NaN; they join nothing"),
        Metric("rows_set_aside", help="rows too large for the window"),
        Metric("rows_out", help="results"),
        Metric("rows_answered", help="rows with hot keys that the front cache answered, without window and pass"),
        Metric("rows_without_partner", help="of a left or anti join: rows that met every page and no partner"),
        Metric("rows_waiting", help="rows in the window after the step"),
        Metric("pages_read", help="pages scanned"),
        Metric("pages_skipped", help="of them, those known to have no partner without being read"),
        Metric("cycles", help="times the whole table was scanned", combine="max"),
        Metric("memory_front", help="of the memory, bytes of the front cache after the step, over all slots"),
        Metric("memory", help="bytes held at the most, over all slots"),
        Metric("budget", help="bytes allowed, over all slots"),
    )

    def __init__(
        self,
        schema: pa.Schema,
        table: Table,
        *,
        on: Sequence[str] | Condition,
        budget: int,
        how: How = "inner",
        pages: Sequence[Page] | None = None,
        pages_per_step: int | None = None,
        counts_rows: bool = True,
        front: float | None = None,
    ) -> None:
        self._condition = on if isinstance(on, Condition) else Equal(tuple(on))
        self._how = how
        self._asks = list(self._condition.asks(table))
        self._schema = schema
        self._pages_per_step = pages_per_step
        self._carried = carried(table, self._condition)
        self.channels = {RESULTS: results_schema(schema, table, self._condition, how), SET_ASIDE: SET_ASIDE_SCHEMA}
        self.budget = budget
        self._fixed_width = fixed_width(self.channels[RESULTS])
        kept = [*self._asks, *(name for name in self._carried if name not in self._asks and how in ("inner", "left"))]
        self._front = Front.of(self._condition, kept, front)
        self._use(table, table.pages if pages is None else pages)
        #: Whether rows that meet no partner are told apart.
        self._tells_lonely = how in ("left", "anti")
        self._window = Window(self._condition, flags=how != "inner" or self._condition.flags)
        self._named = 0
        self._arrived = 0
        self._stored: set[str] = set()
        self._peak = 0.0
        self._counts: dict[str, float] = {}
        # Where every slot holds every row, one of them counts rows and sets them aside, for all.
        self._counts_rows = counts_rows

    def _use(self, table: Table, pages: Sequence[Page], aside: int = 0) -> None:
        """Scan these pages from the first on, with all of the budget but `aside` bytes."""
        self._table, self._pages, self._reader, self._clock = table, tuple(pages), table.open(), 0
        self._reserve = reserve(self._pages, self._condition)
        self._room = self.budget - self._reserve - aside
        if self._room < LEAST_WINDOW:
            raise MemoryTooSmall(
                f"{self.budget} bytes cannot hold one page and one packet of this join.",
                why=f"A page of {table.path} needs {self._reserve} bytes while it is probed.",
                do=f"Give each slot at least {self._reserve + LEAST_WINDOW + aside} bytes.",
            )

    # -- the contract ------------------------------------------------------------------------------------------

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Admit the rows; scan as many pages as they call for, all of them whenever the window is full."""
        self._begin()
        yield from self._take_in(self._counted(rows for _, rows in batch))

    def _counted(self, portions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in portions:
            self._counts["rows_in"] += rows.num_rows
            yield rows

    def _take_in(self, portions: Iterable[pa.RecordBatch]) -> Iterator[Emission]:
        opened: list[pa.RecordBatch] = []
        opened_cost = 0.0
        overflowed = False
        front = self._front
        if front is not None:
            front.begin(self._table.version, self._room)
        for rows in portions:
            able = self._condition.able(rows)
            waiting = rows
            if able is not None:
                self._counts["rows_without_key"] += rows.num_rows - int(able.sum())
                yield from self._alone(rows, ~able, opened_cost)
                waiting = rows.filter(pa.array(able))
            if front is not None and front.cache:
                waiting = yield from self._answer(front, waiting, opened_cost)
            while waiting.num_rows:
                fitting, waiting = self._split(waiting, self._free - self._window.nbytes - opened_cost)
                if fitting.num_rows:
                    opened.append(fitting)
                    opened_cost += self._window.cost(fitting)
                    self._note(opened_cost)
                if waiting.num_rows and not opened and not self._window:
                    overflowed = True
                    if front is not None and front.cache:
                        front.clear()  # a row as wide as the window needs all of it
                        continue
                    if self._counts_rows:
                        yield self._too_large(waiting.slice(0, 1))
                    waiting = waiting.slice(1)
                elif waiting.num_rows:
                    self._close(opened, opened_cost)
                    opened, opened_cost, overflowed = [], 0.0, True
                    if front is not None:
                        front.watch((piece for packet in self._window.packets for piece in packet.pieces), SLICE_BYTES)
                    yield from self._scan(len(self._pages))
        self._close(opened, opened_cost)
        # Which rows came before the overflow depends on their order; after it nothing may be left waiting, so that a
        # step that is run again emits the same bag.
        yield from self._scan(len(self._pages) if overflowed else self._due(opened_cost))
        if front is not None and self._pages:
            self._note(front.settle(self._room, self._reader, self._pages, self._slice_rows(self._pages[0])))

    def tick(self, now: int, watermark: int | None = None) -> Iterator[Emission]:
        """Scan until no row waits."""
        self._begin()
        yield from self._scan(len(self._pages))

    def pending(self) -> bool:
        """Whether rows wait for pages."""
        return bool(self._window)

    def memory(self) -> int:
        """Bytes held at the most since the last step began."""
        return math.ceil(max(self._peak, self._held))

    @property
    def _held(self) -> float:
        return self._window.nbytes + (self._front.nbytes if self._front is not None else 0.0)

    @property
    def _free(self) -> float:
        """Room for waiting rows beside the front cache."""
        return self._room - (self._front.nbytes if self._front is not None else 0.0)

    def changes(self) -> Changes:
        """Packets that outlived their step, and stored ones that have met every page."""
        alive = {packet.name: packet for packet in self._window.packets}
        new = {name: pack_rows(packet.pieces) for name, packet in alive.items() if name not in self._stored}
        flags = {self._flags_name(p): pa.py_buffer(p.flags.tobytes()) for p in alive.values() if len(p.flags)}
        new |= {name: blob for name, blob in flags.items() if name not in self._stored}
        hot = self._front.chunk if self._front is not None else ""
        if self._front is not None and hot and hot not in self._stored:
            new[hot] = self._front.cache.to_chunk()
        now = alive.keys() | flags.keys() | ({hot} if hot else set())
        gone = tuple(sorted(self._stored - now))
        self._stored = set(now)
        return Changes(new, gone)

    def _flags_name(self, packet: Packet) -> str:
        # Flags change with the pages that were met, and with nothing else.
        return f"{packet.name}-{self._clock}"

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
                "front": self._front_head(),
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
            packet = Packet(name, self._arrived, unpack_rows(chunks[name]), until)
            flags = chunks.get(self._flags_name(packet))
            if flags is not None:
                packet.flags = np.frombuffer(flags, np.uint8).copy()
                self._stored.add(self._flags_name(packet))
            if packet.rows != rows or len(packet.flags) not in (0, rows):
                raise StateDamaged(
                    f"Packet {name} has {packet.rows} rows where its head says {rows}.",
                    why="Going on would lose or repeat results.",
                    do="Restore the checkpoint from a copy, or start with a new one.",
                )
            self._window.admit(packet)
            self._arrived += rows
            self._stored.add(name)
        self._restore_front(said.get("front"), chunks)

    def _front_head(self) -> Mapping[str, object] | None:
        return self._front.head() if self._front is not None else None

    def _restore_front(self, said: Mapping[str, object] | None, chunks: Mapping[str, pa.Buffer]) -> None:
        if said is not None and said["chunk"]:
            self._stored.add(str(said["chunk"]))
        if self._front is not None:
            self._front.restore(said, chunks)

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step."""
        cycles = self._clock // len(self._pages) if self._pages else 0
        counts = self._counts if self._counts_rows else self._counts | _COUNTED_ELSEWHERE
        return counts | {
            "rows_waiting": self._window.rows if self._counts_rows else 0,
            "cycles": cycles,
            "memory_front": self._front.nbytes if self._front is not None else 0.0,
            "memory": self.memory(),
            "budget": self.budget,
        }

    # -- admission ---------------------------------------------------------------------------------------------

    def _answer(self, front: Front, rows: pa.RecordBatch, beside: float) -> Generator[Emission, None, pa.RecordBatch]:
        """Emit what the front cache knows of these rows; returns those that it knows nothing of."""
        numbers = front.find(rows)
        known = np.flatnonzero(numbers >= 0)
        sizes = widths(rows, known)
        fits = sizes + self._window.row_bytes <= self._room
        if not fits.all():
            # A row that is too large for the window is set aside, whatever its key.
            numbers[known[~fits]] = -1
            known, sizes = known[fits], sizes[fits]
        partners = front.cache.rows
        if partners is None or not len(known):
            return rows
        front.answered(numbers[known])
        self._counts["rows_answered"] += len(known)
        met = np.zeros(len(known), np.bool_)
        for first, last in runs(front.cache.counts(numbers[known]).astype(np.float64), _SLICE_ROWS):
            ours, theirs = front.cache.pairs(numbers[known[first:last]])
            ours += first
            for begin, end in runs(widths(partners, theirs) + sizes[ours], SLICE_BYTES):
                self._note(beside + SLICE_BYTES)
                place = ours[begin:end]
                row, partner = rows.take(pa.array(known[place])), partners.take(pa.array(theirs[begin:end]))
                if self._how in ("semi", "anti"):
                    met[place[self._condition.holds(row.select(list(self._condition.on)), partner)]] = True
                    continue
                joined, same = self._paired(row, partner)
                met[place[same]] = True
                if joined.num_rows:
                    yield Emission(RESULTS, joined)
        if self._how == "semi":
            yield from self._whole(rows.take(pa.array(known[met])))
        if self._tells_lonely:
            yield from self._unmatched(rows.take(pa.array(known)), ~met)
        return rows.filter(pa.array(numbers < 0))

    def _whole(self, rows: pa.RecordBatch) -> Iterator[Emission]:
        """Rows of the stream as results."""
        for begin, end in runs(widths(rows, np.arange(rows.num_rows)), SLICE_BYTES):
            self._counts["rows_out"] += end - begin
            yield Emission(RESULTS, rows.slice(begin, end - begin))

    def _alone(self, rows: pa.RecordBatch, which: Mask, beside: float = 0) -> Iterator[Emission]:
        """Rows that have no partner, where such are results."""
        if self._how not in ("left", "anti"):
            return
        numbers = np.flatnonzero(which)
        schema = self.channels[RESULTS]
        for begin, end in runs(widths(rows, numbers), SLICE_BYTES):
            some = rows.take(pa.array(numbers[begin:end]))
            self._note(beside + measure(some))
            nulls = [pa.nulls(some.num_rows, field.type) for field in list(schema)[some.num_columns :]]
            self._counts["rows_without_partner"] += some.num_rows
            self._counts["rows_out"] += some.num_rows
            yield Emission(RESULTS, pa.RecordBatch.from_arrays([*some.columns, *nulls], schema=schema))

    def _split(self, rows: pa.RecordBatch, room: float) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The first rows, as many as `room` bytes hold, and the rest."""
        count = rows.num_rows
        while count and self._window.cost(rows.slice(0, count)) > room:
            count //= 2
        fitting, rest = rows.slice(0, count), rows.slice(count)
        if rest.num_rows or any(column.offset for column in rows.columns):
            # A copy: a slice would keep all of what it was cut from.
            fitting = fitting.take(pa.array(np.arange(count)))
        return fitting, rest

    def _too_large(self, row: pa.RecordBatch) -> Emission:
        size = self._window.cost(row)
        return self._aside(row, f"one row of {size:.0f} bytes is larger than the {self._room} bytes of the window")

    def _aside(self, row: pa.RecordBatch, reason: str) -> Emission:
        self._counts["rows_set_aside"] += 1
        raw = json.dumps(row.to_pylist()[0], default=str)
        columns = [pa.array([text], pa.string()) for text in (reason, "", raw)]
        return Emission(SET_ASIDE, pa.RecordBatch.from_arrays(columns, schema=SET_ASIDE_SCHEMA))

    def _close(self, portions: list[pa.RecordBatch], taken: float) -> None:
        if not portions:
            return
        # Rows in one piece are gathered quickest, and where there is room for a second copy they are put together.
        roomy = self._window.nbytes + 2 * taken <= self._free
        pieces = gather_pieces(portions, sum(p.num_rows for p in portions) if roomy else PIECE_ROWS)
        packet = Packet(f"p{self._named:08d}", self._arrived, pieces, self._clock + max(len(self._pages), 1))
        self._named += 1
        self._arrived += packet.rows
        self._window.admit(packet)
        if self._front is not None:
            self._front.admitted(packet.rows, taken)
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
            yield from self._leave(self._clock + 1)
            return
        for left in range(pages, 0, -1):
            if not self._window:
                return
            if left > 1 and self._window.rows >= _WORTH_FETCHING * len(self._pages):
                self._reader.expect(self._pages[(self._clock + 1) % len(self._pages)])
            yield from self._meet(self._pages[self._clock % len(self._pages)])
            self._clock += 1
            self._counts["pages_read"] += 1
            yield from self._leave(self._clock)

    def _leave(self, clock: int) -> Iterator[Emission]:
        """Packets that have met every page go; of their rows it is known now which have no partner."""
        for packet in self._window.due(clock) if self._tells_lonely else []:
            begin = 0
            for piece in packet.pieces:
                yield from self._unmatched(piece, packet.flags[begin : begin + piece.num_rows] == 0)
                begin += piece.num_rows
        self._window.expire(clock)

    def _unmatched(self, rows: pa.RecordBatch, which: Mask) -> Iterator[Emission]:
        """Rows that have met every page and no partner."""
        return self._alone(rows, which)

    def _meet(self, page: Page) -> Iterator[Emission]:
        organised = self._window.organised
        self._note(page.bloom)
        if not organised.may_meet(page, self._reader):
            self._counts["pages_skipped"] += 1
            return
        self._note(self._condition.page_bytes(page))
        for page_rows, window_rows in organised.pairs(
            self._reader, page, self._window.first_live, self._slice_rows(page)
        ):
            self._note(beside_window(page, self._condition))
            yield from self._join(page, page_rows, window_rows)
        for row, error in organised.failed():
            fresh = self._window.flag(np.array([row]), FAILED)
            if self._counts_rows and len(fresh):
                yield self._aside(self._window.take(fresh), error)

    def _slice_rows(self, page: Page) -> int:
        each = page.row_width + self._window.nbytes / max(self._window.rows, 1) + 16
        return int(min(max(SLICE_BYTES / each, 16), _SLICE_ROWS))

    def _join(self, page: Page, page_rows: I64, window_rows: I64) -> Iterator[Emission]:
        if self._how in ("semi", "anti"):
            yield from self._find(page, page_rows, window_rows)
            return
        if self._fixed_width:
            yield from self._emit(window_rows, self._reader.take(page, page_rows))
            return
        # The pairs come in the order of the page's rows. A row that meets many is read once: as often as it is met, one
        # wide value could take any amount of memory.
        first = np.flatnonzero(np.diff(page_rows, prepend=-1))
        partners = self._reader.take(page, page_rows[first])
        met = np.repeat(np.arange(len(first)), np.diff(first, append=len(page_rows)))
        for begin, end in runs(widths(partners, met) + self._window.widths(window_rows), SLICE_BYTES):
            yield from self._emit(window_rows[begin:end], _pick(partners, met[begin:end]))

    def _find(self, page: Page, page_rows: I64, window_rows: I64) -> Iterator[Emission]:
        """Note which rows have a partner, whatever it holds; of a semi-join, they leave at once."""
        if self._asks:
            rows = self._window.take(window_rows, self._condition.on)
            window_rows = window_rows[self._condition.holds(rows, self._asked(page, page_rows))]
        fresh = self._window.flag(window_rows, MET)
        if self._how == "anti" or not len(fresh):
            return
        for begin, end in runs(self._window.widths(fresh), SLICE_BYTES):
            rows = self._window.take(fresh[begin:end])
            self._counts["rows_out"] += rows.num_rows
            yield Emission(RESULTS, rows)

    def _asked(self, page: Page, rows: I64) -> pa.RecordBatch:
        if self._asks == list(self._table.key):
            return self._reader.keys(page, rows)
        return self._reader.take(page, rows).select(self._asks)

    def _emit(self, window_rows: I64, partners: pa.RecordBatch) -> Iterator[Emission]:
        joined, same = self._paired(self._window.take(window_rows), partners)
        if self._tells_lonely:
            self._window.flag(window_rows[same], MET)
        if joined.num_rows:
            yield Emission(RESULTS, joined)

    def _paired(self, rows: pa.RecordBatch, partners: pa.RecordBatch) -> tuple[pa.RecordBatch, Mask]:
        """Results of rows beside their candidates, and which of these belong together."""
        columns = [*rows.columns, *(partners.column(name) for name in self._carried)]
        joined = pa.RecordBatch.from_arrays(columns, schema=self.channels[RESULTS])
        same = np.ones(joined.num_rows, np.bool_)
        if self._asks:
            same = self._condition.holds(rows.select(list(self._condition.on)), partners.select(self._asks))
            if not same.all():
                joined = joined.filter(pa.array(same))
        self._counts["rows_out"] += joined.num_rows
        return joined, same

    def _begin(self) -> None:
        self._counts = dict.fromkeys((metric.name for metric in self.reports), 0.0)
        self._window.let_go()
        self._peak = self._held

    def _note(self, beside: float = 0) -> None:
        self._peak = max(self._peak, self._held + beside)

    def _check(self, said: dict[str, object]) -> None:
        if said["format"] != _FORMAT:
            raise StateDamaged(f"State of format {said['format']}; this version reads {_FORMAT}.")
        if said["packets"] and (said["table"] != self._table.version or said["pages"] != len(self._pages)):
            raise StateDamaged(
                f"Rows still wait for pages of another version of {self._table.path}.",
                why="They have met some pages of the old version; meeting the rest in the new one would mix the two.",
                do="Put the old files back and let the query finish, or start with a new checkpoint.",
            )


def _pick(rows: pa.RecordBatch, numbers: np.ndarray) -> pa.RecordBatch:
    """The rows with these numbers, which ascend; without a copy where each comes once."""
    first, count = int(numbers[0]), len(numbers)
    once = numbers[-1] - first == count - 1 and bool(np.all(np.diff(numbers) == 1))
    return rows.slice(first, count) if once else rows.take(pa.array(numbers))
