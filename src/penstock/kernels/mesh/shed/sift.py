"""Which rows of a step go to the join, where more came than it can serve: chosen over all of them, held on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.mesh.shed.policy import F64, U64, Scored

if TYPE_CHECKING:
    from types import TracebackType

#: Rows that are ranked at once.
PIECE_ROWS = 16_384
_DIGIT = 16
_SIGN = np.uint64(1 << 63)
#: What rows are compared by, and how many bytes the join would hold for each.
_RANK = np.dtype([("score", np.uint64), ("draw", np.uint64), ("size", np.float64)])
Ranks = npt.NDArray[np.void]


class Cut(NamedTuple):
    """The line between kept and shed: greater ranks are kept, and of those that equal it the first `ties`."""

    score: int
    draw: int
    ties: int


@dataclass
class Sift:
    """The rows of one step, of which `divide` says which ones stay.

    Guarantees
        The kept rows take up at most what is allowed, and the next best would not have fitted; they are a function of
        the bag of rows, whatever their order and cut: `test_sift_keeps_the_best_that_fit`,
        `test_what_is_kept_depends_on_the_bag_alone`. Rows of equal rank are equal rows (64-bit fingerprints decide), of
        which any may go.
    State and cost
        Rows wait in a temporary file without a name, ranks in another; a few pieces of rows are in memory. Nothing is
        ranked unless more rows came than are allowed; then a cut costs up to eight passes over 24 bytes a row.

    `sizes` gives the bytes that each row would take up in the join, `ranks` its score (finite) and its draw.
    """

    sizes: Callable[[pa.RecordBatch], F64]
    ranks: Callable[[pa.RecordBatch], tuple[F64, U64]]

    def __post_init__(self) -> None:
        self.rows = 0
        self.total = 0.0
        self._spill: IO[bytes] = tempfile.TemporaryFile(prefix="penstock-sift-")  # noqa: SIM115 — closed by __exit__
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._ranks: IO[bytes] | None = None
        self._lengths: list[int] = []
        self._cut: Cut | None = None

    def __enter__(self) -> Sift:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spill.close()
        if self._ranks is not None:
            self._ranks.close()

    def fill(self, portions: Iterable[pa.RecordBatch]) -> None:
        """Take in all rows."""
        for portion in portions:
            for begin in range(0, portion.num_rows, PIECE_ROWS):
                piece = portion.slice(begin, PIECE_ROWS)
                if self._writer is None:
                    self._writer = pa.ipc.new_stream(self._spill, piece.schema)
                self._writer.write_batch(piece)
                self._lengths.append(piece.num_rows)
                self.rows += piece.num_rows
                self.total += float(self.sizes(piece).sum())
        if self._writer is not None:
            self._writer.close()

    def divide(self, allowed: float) -> None:
        """Keep the best rows that take up at most so many bytes."""
        if self.total <= allowed:
            return
        self._ranks = tempfile.TemporaryFile(prefix="penstock-sift-")  # noqa: SIM115
        for piece in self._pieces():
            score, draw = self.ranks(piece)
            ranks = np.empty(piece.num_rows, _RANK)
            ranks["score"], ranks["draw"], ranks["size"] = _ordered(score), draw, self.sizes(piece)
            self._ranks.write(ranks.tobytes())
        self._cut = _find_cut(self._rank_pieces, allowed)

    @property
    def line(self) -> tuple[float, int] | None:
        """Score and draw of the best row that goes; None if all stay."""
        return (
            None if self._cut is None else (float(_scores(np.array([self._cut.score], np.uint64))[0]), self._cut.draw)
        )

    def kept(self) -> Iterator[pa.RecordBatch]:
        """The rows that stay, in the order they came."""
        return (rows for rows, _ in self._chosen(True))

    def ranked(self) -> Iterator[tuple[pa.RecordBatch, Scored | None]]:
        """The same, with what they were ranked by, if they were."""
        return self._chosen(True)

    def shed(self) -> Iterator[pa.RecordBatch]:
        """The rows that go."""
        return (rows for rows, _ in self._chosen(False)) if self._cut is not None else iter(())

    def _chosen(self, stay: bool) -> Iterator[tuple[pa.RecordBatch, Scored | None]]:
        if self._cut is None:
            yield from ((piece, None) for piece in self._pieces())
            return
        ties = self._cut.ties
        for piece, ranks in zip(self._pieces(), self._rank_pieces(), strict=True):
            above = (ranks["score"] > self._cut.score) | (
                (ranks["score"] == self._cut.score) & (ranks["draw"] > self._cut.draw)
            )
            equal = np.flatnonzero((ranks["score"] == self._cut.score) & (ranks["draw"] == self._cut.draw))
            above[equal[:ties]] = True
            ties -= min(ties, len(equal))
            chosen = above if stay else ~above
            if chosen.any():
                some = ranks[chosen]
                yield piece.filter(pa.array(chosen)), Scored(_scores(some["score"]), some["draw"])

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        if self._writer is not None:
            self._spill.seek(0)
            yield from pa.ipc.open_stream(self._spill)

    def _rank_pieces(self) -> Iterator[Ranks]:
        assert self._ranks is not None
        self._ranks.seek(0)
        for rows in self._lengths:
            yield np.frombuffer(self._ranks.read(rows * _RANK.itemsize), _RANK)


def _ordered(scores: F64) -> U64:
    """Whole numbers in the order of the scores."""
    bits = (scores + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _scores(ordered: U64) -> F64:
    """The scores that `_ordered` made whole numbers of."""
    return np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).view(np.float64)


def _find_cut(pieces: Callable[[], Iterator[Ranks]], allowed: float) -> Cut:
    """Digit by digit from the top: where the sizes of the greatest ranks together pass what is allowed."""
    left, one = allowed, 0.0
    found = {"score": 0, "draw": 0}
    for word in ("score", "draw"):
        for shift in range(64 - _DIGIT, -1, -_DIGIT):
            sums = np.zeros(1 << _DIGIT)
            for ranks in pieces():
                live = (ranks[word] >> np.uint64(shift)) >> np.uint64(_DIGIT) == (found[word] >> shift) >> _DIGIT
                if word == "draw":
                    live &= ranks["score"] == found["score"]
                digits = ((ranks[word][live] >> np.uint64(shift)) & np.uint64((1 << _DIGIT) - 1)).astype(np.int64)
                sums += np.bincount(digits, ranks["size"][live], 1 << _DIGIT)
            above = np.cumsum(sums[::-1])
            at = int(np.searchsorted(above, left, side="right"))
            left -= float(above[at - 1]) if at else 0.0
            found[word] |= ((1 << _DIGIT) - 1 - at) << shift
            one = float(sums[(1 << _DIGIT) - 1 - at])
    return Cut(found["score"], found["draw"], _fitting(pieces, found, left, one))


def _fitting(pieces: Callable[[], Iterator[Ranks]], found: dict[str, int], left: float, total: float) -> int:
    """How many of the rows at the cut fit; they are equal, and so are their sizes."""
    count = sum(
        int(np.count_nonzero((ranks["score"] == found["score"]) & (ranks["draw"] == found["draw"])))
        for ranks in pieces()
    )
    return int(left // (total / count)) if count and total else 0
