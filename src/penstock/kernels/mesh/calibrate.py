"""Measures the coefficients of the cost model with the kernel itself, on the user's own table and machine.

A window of W rows is admitted once, and then page after page is met, each timed apart: with few matches and with many.
A window of two strangers gives the cost of reading alone, `index.sift` and `index.probe` that of probing. What differs
between windows and between page sizes gives the coefficients; quartiles over pages and rounds keep them steady. The
first round compiles and warms up, and does not count.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.kernels.mesh.budget import reserve
from penstock.kernels.mesh.index import BYTES_PER_ROW
from penstock.kernels.mesh.stopwatch import SLICE, Stopwatch, typical
from penstock.models.curve import Curve
from penstock.models.mesh_cost import Coefficients
from penstock.tables.base import Table

#: Windows at which costs are measured; between them they are interpolated.
WINDOWS = (1 << 12, 1 << 15, 1 << 17, 1 << 20)
#: Rows of the table that are read for one point, and of a table that only shows another page size.
_SCAN_ROWS = 1 << 18
_OTHER_ROWS = 1 << 16
_ROUNDS = 7


def calibrate(
    table: Table,
    stream_row_bytes: int,
    *,
    seconds: float = 5.0,
    page_sizes: Sequence[Table] = (),
    windows: Sequence[int] = WINDOWS,
    matches: float = 1.0,
    seed: int = 0,
) -> Coefficients:
    """The cost model's coefficients for a stream with rows of this width.

    Guarantees
        Takes about `seconds` of processor time once everything is compiled; at the least one round after the warm one.
        Service rates within 15% of measured ones on average: `papers/mesh/figure10a.py`, and a small one in
        `tests/papers/test_mesh_cost.py`.
    State and cost
        A window of the largest of `windows`, about 40 MB with narrow rows; the table is only read.

    `page_sizes` are tables of the same kind with pages of other sizes (see `penstock.kernels.mesh.page_sizes`): with
    them the buffer b can be tuned, as cost and memory are then known over page sizes. Without them a buffer of b pages
    costs b times one. `matches` is how many results a stream row has on average.
    """
    watch = Stopwatch(table, stream_row_bytes, matches, seed, _SCAN_ROWS)
    others = [Stopwatch(other, stream_row_bytes, matches, seed, _OTHER_ROWS) for other in page_sizes]
    sizes = sorted({*windows})
    spent, rounds = 0.0, 0
    while rounds <= 1 or (rounds <= _ROUNDS and spent + spent / (rounds - 1) <= seconds):
        began = time.process_time()
        watch.round(sizes if rounds else sizes[:1], keep=rounds > 0)
        for other in others:
            other.round(sizes[:1], keep=rounds > 0)
        spent += time.process_time() - began if rounds else 0.0
        rounds += 1
    return _coefficients(watch, others, matches)


def _coefficients(watch: Stopwatch, others: Sequence[Stopwatch], matches: float) -> Coefficients:
    smallest = min(watch.points)
    # What is measured by more rows counts for more.
    built = _flat([(window, point.result, point.spread) for window, point in watch.points.items()])
    probed = _flat([(window, typical(point.probes), 1.0) for window, point in watch.points.items()])

    def reading(of: Stopwatch) -> float:
        return max(typical(of.reads) - of.page_rows * float(probed(1)), 1e-9)

    def opening(of: Stopwatch, window: int) -> float:
        without = reading(of) + of.page_rows * float(probed(window))
        return of.points[window].opening(without, float(built(window)))

    v_P = min([watch.page_bytes, *(other.page_bytes for other in others)])
    sizes = [(other.page_bytes / v_P, other) for other in others]
    own = watch.page_bytes / v_P
    own_open = opening(watch, smallest)
    held = [(b, float(reserve(of.table.pages) - SLICE)) for b, of in [*sizes, (own, watch)]]
    appended, gathered = [], []
    for window, point in watch.points.items():
        admission = typical(point.first) - typical(point.few) - window * watch.admission
        appended.append((window, max(admission, 0.0) / window, float(window)))
        gathered.append((window, max(opening(watch, window) - own_open, 0.0), 1.0))
    return Coefficients(
        n_R=watch.table.rows,
        v_R=watch.page_bytes / watch.page_rows,
        v_P=v_P,
        v_S=watch.row_bytes,
        ptr=float(BYTES_PER_ROW),
        f=1.0,
        buffer=Curve.line(held[0][1] / held[0][0]) if len(held) == 1 else Curve.fit(held),
        c_IO=_anchored([(b, reading(of)) for b, of in sizes], own, reading(watch)),
        c_A=_flat(appended),
        c_H=probed,
        c_O=built,
        c_E=watch.expiry,
        c_S=max(watch.admission - watch.expiry, 0.0),
        c_P=_anchored([(b, opening(of, smallest)) for b, of in sizes], own, own_open),
        c_G=_flat(gathered),
        m=matches,
        false_candidates=watch.false_candidates,
        fixed=float(SLICE),
        stream_copies=0.0,
        slice_rows=watch.slice_rows,
    )


def _flat(points: list[tuple[int, float, float]]) -> Curve:
    """Made monotone, and level beyond the largest window: a row cannot cost more than to miss every cache."""
    fitted = Curve.fit(points)
    return Curve((*fitted.x, 2 * fitted.x[-1]), (*fitted.y, fitted.y[-1]))


def _anchored(points: list[tuple[float, float]], own: float, value: float) -> Curve:
    """The shape of the other page sizes at the height of the table's own pages."""
    if not points:
        return Curve.line(value)
    shape = Curve.fit(points)
    there = float(shape(own))
    return shape.scaled(value / there) if there > 0 else shape
