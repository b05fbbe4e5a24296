"""MESHJOIN: a stream joined with a table larger than memory, by one cyclic scan shared by all rows that wait."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import StateDamaged
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Batch, Changes, Emission, Kernel, Metric
from penstock.kernels.measure import measure
from penstock.kernels.mesh.budget import SLICE_BYTES, beside_window, check_fits, reserve, room_for_window
from penstock.kernels.mesh.condition import FAILED, Condition, Equal
from penstock.kernels.mesh.front import Front
from penstock.kernels.mesh.pairing import Pairing, kept, set_aside
from penstock.kernels.mesh.results import How
from penstock.kernels.mesh.window import PIECE_ROWS, Packet, Window, gather_pieces
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

    This file has the order of things: rows are admitted, pages scanned, rows let go. What a window holds and stores is
    in `window`, how a page finds its partners there in `condition` and `index`, what becomes of them in `pairing`.

    With `front` rows with hot keys are answered from a cache (`kernels.mesh.front`), where keys are to be equal; the
    number is how many passes a step another choice of keys must save.

    Guarantees
        Equal to the join of all rows so far with the table once nothing is pending, however rows were cut into
        batches; NULL and NaN keys join nothing: `test_conformance`, with `naive.join`.
        `memory()` at most `budget`: `test_conformance`, and by resident size in `tests/spark/test_memory.py`.
    State and cost
        The waiting rows with 10 bytes of index each, one page's hashes and one of its columns, one slice of
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
        tells_lonely: bool = False,
    ) -> None:
        self._condition = on if isinstance(on, Condition) else Equal(tuple(on))
        self._schema = schema
        self._pages_per_step = pages_per_step
        self._pairing = Pairing(schema, table, self._condition, how, tells_lonely)
        self.channels = {RESULTS: self._pairing.schema, SET_ASIDE: SET_ASIDE_SCHEMA}
        self.budget = budget
        self._front = Front(self._condition, self._pairing.needs, front)
        self._use(table, table.pages if pages is None else pages)
        self._window = Window(self._condition, flags=how != "inner" or tells_lonely or self._condition.flags)
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
        self._room = room_for_window(self.budget, self._reserve, aside, table)

    # -- the contract ------------------------------------------------------------------------------------------

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Admit the rows; scan as many pages as they call for, all of them whenever the window is full."""
        self._begin()
        yield from self._take_in(self._counted(rows for _, rows in batch))

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

    def changes(self) -> Changes:
        """Packets that outlived their step, and stored ones that have met every page."""
        chunks = self._window.chunks(self._clock) | self._front.chunks()
        new = {name: make() for name, make in chunks.items() if name not in self._stored}
        gone = tuple(sorted(self._stored - chunks.keys()))
        self._stored = set(chunks)
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
                "packets": self._window.head(),
                "front": self._front.head(),
            }
        ).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Take up the packets and the scan where they were left."""
        said = json.loads(head)
        self._check(said)
        self._clock, self._named = said["clock"], said["named"]
        self._arrived = self._window.restore(said["packets"], chunks, self._clock)
        check_fits(self._window.rows, self._window.nbytes, self._room)
        self._stored |= self._window.chunks(self._clock).keys() & chunks.keys()
        self._restore_front(said.get("front"), chunks)

    def _restore_front(self, said: Mapping[str, object] | None, chunks: Mapping[str, pa.Buffer]) -> None:
        self._stored |= self._front.restore(said, chunks, self._room)

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step."""
        cycles = self._clock // len(self._pages) if self._pages else 0
        counts = self._counts if self._counts_rows else self._counts | _COUNTED_ELSEWHERE
        return counts | {
            "rows_waiting": self._window.rows if self._counts_rows else 0,
            "cycles": cycles,
            "memory_front": self._front.nbytes,
            "memory": self.memory(),
            "budget": self.budget,
        }

    # -- admission ---------------------------------------------------------------------------------------------

    def _counted(self, portions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in portions:
            self._counts["rows_in"] += rows.num_rows
            yield rows

    def _take_in(self, portions: Iterable[pa.RecordBatch]) -> Iterator[Emission]:
        opened: list[pa.RecordBatch] = []
        opened_cost = 0.0
        overflowed = False
        front = self._front
        front.begin(self._table.version, self._room)
        for rows in portions:
            able = self._condition.able(rows)
            waiting = rows
            if able is not None:
                self._counts["rows_without_key"] += rows.num_rows - int(able.sum())
                yield from self._alone(rows, ~able, opened_cost)
                waiting = rows.filter(pa.array(able))
            if front.cache:
                waiting = yield from self._answer(waiting, opened_cost)
            while waiting.num_rows:
                fitting, waiting = self._window.split(waiting, self._free - self._window.nbytes - opened_cost)
                if fitting.num_rows:
                    opened.append(fitting)
                    opened_cost += self._window.cost(fitting)
                    self._note(opened_cost)
                if waiting.num_rows and not opened and not self._window:
                    overflowed = True
                    if front.cache:
                        front.clear()  # a row as wide as the window needs all of it
                        continue
                    if self._counts_rows:
                        yield self._too_large(waiting.slice(0, 1))
                    waiting = waiting.slice(1)
                elif waiting.num_rows:
                    self._close(opened, opened_cost)
                    opened, opened_cost, overflowed = [], 0.0, True
                    front.watch((piece for packet in self._window.packets for piece in packet.pieces), SLICE_BYTES)
                    yield from self._scan(len(self._pages))
        self._close(opened, opened_cost)
        # Which rows came before the overflow depends on their order; after it nothing may be left waiting, so that a
        # step that is run again emits the same bag.
        yield from self._scan(len(self._pages) if overflowed else self._due(opened_cost))
        if self._pages:
            self._note(front.settle(self._room, self._reader, self._pages, self._slice_rows(self._pages[0])))

    def _answer(self, rows: pa.RecordBatch, beside: float) -> Generator[Emission, None, pa.RecordBatch]:
        """Emit what the front cache knows of these rows; returns those that it knows nothing of."""
        found = self._front.find(rows, self._room - self._window.row_bytes)
        if not len(found.rows):
            return rows
        self._counts["rows_answered"] += len(found.rows)
        met = np.zeros(len(found.rows), np.bool_)
        for place, some, partners in self._front.pairs(rows, found):
            self._note(beside + SLICE_BYTES)
            if self._pairing.rows_alone:
                met[place[self._pairing.belong(some, partners)]] = True
                continue
            joined, same = self._pairing.of_rows(some, partners)
            met[place[same]] = True
            yield from map(self._result, kept(joined, same))
        asked = rows.take(pa.array(found.rows))
        yield from map(self._result, self._pairing.with_partner(asked, met))
        if self._pairing.tells_lonely:
            yield from self._unmatched(asked, ~met)
        others = np.ones(rows.num_rows, np.bool_)
        others[found.rows] = False
        return rows.filter(pa.array(others))

    def _too_large(self, row: pa.RecordBatch) -> Emission:
        size = self._window.cost(row)
        return self._aside(row, f"one row of {size:.0f} bytes is larger than the {self._room} bytes of the window")

    def _aside(self, row: pa.RecordBatch, reason: str) -> Emission:
        self._counts["rows_set_aside"] += 1
        return set_aside(row, reason)

    def _close(self, portions: list[pa.RecordBatch], taken: float) -> None:
        """Rows that were taken in become a packet; the list of them is empty then."""
        if not portions:
            return
        # Rows in one piece are gathered quickest, and where there is room for a second copy they are put together; else
        # as many as fit where pages are held during a scan.
        roomy = self._window.nbytes + 2 * taken <= self._free
        rows = sum(p.num_rows for p in portions)
        pieces = gather_pieces(portions, *((rows, taken) if roomy else (PIECE_ROWS, self._reserve / 2)))
        packet = Packet(f"p{self._named:08d}", self._arrived, pieces, self._clock + max(len(self._pages), 1))
        self._named += 1
        self._arrived += packet.rows
        self._window.admit(packet)
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
            if left == 1 or self._window.due(self._clock):
                yield from map(self._result, self._pairing.rest(self._window))
            yield from self._leave(self._clock)

    def _leave(self, clock: int) -> Iterator[Emission]:
        """Packets that have met every page go; of their rows it is known now which have no partner."""
        for packet in self._window.due(clock) if self._pairing.tells_lonely else []:
            begin = 0
            for piece in packet.pieces:
                yield from self._unmatched(piece, packet.flags[begin : begin + piece.num_rows] == 0)
                begin += piece.num_rows
        self._window.expire(clock)

    def _unmatched(self, rows: pa.RecordBatch, which: Mask) -> Iterator[Emission]:
        """Rows that have met every page and no partner."""
        return self._alone(rows, which)

    def _alone(self, rows: pa.RecordBatch, which: Mask, beside: float = 0) -> Iterator[Emission]:
        """Rows that have no partner, where such are results."""
        for some in self._pairing.without_partner(rows, which):
            self._note(beside + measure(some.select(self._schema.names)))
            self._counts["rows_without_partner"] += some.num_rows
            yield self._result(some)

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
            results = self._pairing.of_page(self._reader, page, page_rows, self._window, window_rows)
            yield from map(self._result, results)
        for row, error in organised.failed():
            fresh = self._window.flag(np.array([row]), FAILED)
            if self._counts_rows and len(fresh):
                yield self._aside(self._window.take(fresh), error)

    def _slice_rows(self, page: Page) -> int:
        each = page.row_width + self._window.nbytes / max(self._window.rows, 1) + 16
        return int(min(max(SLICE_BYTES / each, 16), _SLICE_ROWS))

    # -- the books ---------------------------------------------------------------------------------------------

    def _result(self, rows: pa.RecordBatch) -> Emission:
        self._counts["rows_out"] += rows.num_rows
        return Emission(RESULTS, rows)

    def _begin(self) -> None:
        self._counts = dict.fromkeys((metric.name for metric in self.reports), 0.0)
        self._window.let_go()
        self._peak = self._held

    def _note(self, beside: float = 0) -> None:
        self._peak = max(self._peak, self._held + beside)

    @property
    def _held(self) -> float:
        return self._window.nbytes + self._front.nbytes

    @property
    def _free(self) -> float:
        """Room for waiting rows beside the front cache."""
        return self._room - self._front.nbytes

    def _check(self, said: dict[str, object]) -> None:
        if said["format"] != _FORMAT:
            raise StateDamaged(f"State of format {said['format']}; this version reads {_FORMAT}.")
        if said["packets"] and (said["table"] != self._table.version or said["pages"] != len(self._pages)):
            raise StateDamaged(
                f"Rows still wait for pages of another version of {self._table.path}.",
                why="They have met some pages of the old version; meeting the rest in the new one would mix the two.",
                do="Put the old files back and let the query finish, or start with a new checkpoint.",
            )
