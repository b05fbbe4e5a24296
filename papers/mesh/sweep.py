"""A bare mesh join over page sizes and budgets, measured, beside what the cost model says of it.

R has rows of 120 B and S of 24 B, with keys drawn by a Zipf law with z_S = 0.5 (000, Table 3). The buffer b is the
table's page: it is written once for each size, as a prepared table and as Parquet with as large row groups. One
process, no Spark; seconds are processor time, page by page, so that a busy machine does not count; tables are in the
page cache.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from papers.figure import Say
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.measure import measure as bytes_of
from penstock.kernels.mesh.budget import LEAST_WINDOW, reserve
from penstock.kernels.mesh.calibrate import WINDOWS, calibrate
from penstock.kernels.mesh.index import BYTES_PER_ROW
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.kernels.mesh.page_sizes import page_variants
from penstock.kernels.mesh.stopwatch import timed, typical
from penstock.models.mesh_cost import Coefficients
from penstock.models.mesh_tuner import Choice, choice
from penstock.tables import Table, prepare, table
from penstock.tables.keys import PARTITIONS
from penstock.testing import zipf_keys

PREPARED, PARQUET = "prepared", "parquet"
_PORTION = 32_768
MB = 1 << 20
KB = 1 << 10


@dataclass(frozen=True)
class Setting:
    """What is run. The budgets are the papers' shares of R: 5% and, for 001, up to 76%."""

    rows: int = 2_000_000
    columns: int = 15
    #: Pages of a prepared table in each of its 64 parts, and row groups of a Parquet table.
    prepared: tuple[int, ...] = (64, 32, 8, 4, 2, 1)
    parquet: tuple[int, ...] = (512, 256, 128, 64, 32)
    budgets: tuple[int, ...] = (12 * MB, 24 * MB, 48 * MB, 96 * MB, 192 * MB)
    layouts: tuple[str, ...] = (PREPARED, PARQUET)
    own: tuple[int, int] = (4, 128)
    row_bytes: int = 24
    skew: float = 0.5
    rounds: int = 2
    windows: tuple[int, ...] = WINDOWS
    calibration: float = 6.0
    sample: int = 16 * MB

    def pages(self, layout: str) -> tuple[int, ...]:
        """The page sizes of a layout, in bytes; opening a Parquet page is dear, so it is tried with larger ones."""
        return tuple(self.page(layout, cuts) for cuts in (self.prepared if layout == PREPARED else self.parquet))

    def page(self, layout: str, cuts: int) -> int:
        """Bytes of a page when the table, or each part of it, is cut into so many."""
        size = self.rows * 8 * self.columns
        # The parts differ by chance; a little more room, and each is cut into as many pages.
        return int(1.05 * size / PARTITIONS / cuts) if layout == PREPARED else -(-size // cuts)


QUICK = Setting(
    rows=500_000,
    prepared=(16, 4, 1),
    parquet=(128, 32, 10),
    own=(4, 32),
    budgets=(8 * MB, 24 * MB),
    windows=(1 << 12, 1 << 17, 1 << 19),
    calibration=3.0,
    sample=8 * MB,
)


@dataclass(frozen=True)
class Measured:
    """One run: the buffer in the model's pages, and rows a second."""

    page: int
    budget: int
    b: float
    window: int
    rate: float


@dataclass(frozen=True)
class Outcome:
    """Coefficients of each layout, and all runs."""

    setting: Setting
    coefficients: dict[str, Coefficients]
    runs: dict[str, list[Measured]]

    def predicted(self, layout: str, run: Measured) -> Choice:
        """What the model says of a run: the full window that its equation (1) allows, at the rate of equation (3)."""
        c = self.coefficients[layout]
        b = max(round(run.b), 1)
        return choice(c, max(int(c.most_rows(run.budget, b)), 1), b)

    def error(self, layout: str, run: Measured) -> float:
        """How far the prediction is off."""
        return abs(self.predicted(layout, run).rate / run.rate - 1)


@lru_cache(maxsize=2)
def sweep(setting: Setting, say: Say = lambda text: None) -> Outcome:
    """Every layout, page size and budget, once in a process for the same setting."""
    with _scratch() as folder:
        plain = folder / "plain"
        _write(setting, plain)
        found, runs = {}, {}
        for layout in setting.layouts:
            say(f"{layout}: measuring costs")
            own = _table(layout, plain, folder / "own", setting.page(layout, setting.own[layout == PARQUET]))
            variants = page_variants(
                own, folder / "variants", sample=setting.sample, sizes=_spread(setting.pages(layout))
            )
            found[layout] = calibrate(
                own,
                setting.row_bytes,
                seconds=setting.calibration,
                page_sizes=variants,
                windows=setting.windows,
            )
            shutil.rmtree(folder / "variants")
            shutil.rmtree(folder / "own")
            runs[layout] = []
            for page in setting.pages(layout):
                say(f"{layout}: pages of {page // KB} KB")
                written = _table(layout, plain, folder / "page", page)
                runs[layout] += _runs(setting, written, page, found[layout])
                shutil.rmtree(folder / "page")
        return Outcome(setting, found, runs)


def _runs(setting: Setting, written: Table, page: int, c: Coefficients) -> Iterator[Measured]:
    b = written.rows / len(written.pages) * c.v_R / c.v_P
    for budget in setting.budgets:
        if budget - reserve(written.pages) >= 4 * LEAST_WINDOW:
            window, rate = service_rate(setting, written, budget)
            yield Measured(page, budget, b, window, rate)


def service_rate(setting: Setting, written: Table, budget: int) -> tuple[int, float]:
    """Rows of a full window, and rows a second when windows are always full.

    Every page is timed by itself, so that pages during which something else disturbed the processor do not count.
    """
    portions = _stream(setting, 1)
    each = bytes_of(portions[0].rows) / portions[0].rows.num_rows + BYTES_PER_ROW
    window = int((budget - reserve(written.pages)) / each)
    portions = _stream(setting, window)
    kernel = MeshJoin(portions[0].rows.schema, written, on=written.key, budget=budget, pages_per_step=1)
    first, pages = [], []
    for number in range(setting.rounds + 1):
        admission = timed(partial(_step, kernel, portions))
        cycle = [timed(partial(_step, kernel, [])) for _ in written.pages[1:]]
        # The first cycle compiles and warms up.
        if number:
            first.append(admission)
            pages += cycle
    return window, window / (typical(first) + (len(written.pages) - 1) * typical(pages))


def _step(kernel: MeshJoin, portions: list[Portion]) -> None:
    for _ in kernel.step(Batch(portions), 0):
        pass


def _stream(setting: Setting, rows: int) -> list[Portion]:
    rows = max(rows, 1)
    keys = zipf_keys(rows, setting.rows, setting.skew, seed=17)
    whole = pa.record_batch({"id": keys, "quantity": np.arange(rows), "price": np.arange(rows)})
    return [Portion(0, whole.slice(at, _PORTION)) for at in range(0, rows, _PORTION)]


def _write(setting: Setting, place: Path) -> None:
    rng = np.random.default_rng(3)
    place.mkdir()
    columns = {f"v{i:02d}": rng.integers(0, 1 << 62, setting.rows) for i in range(1, setting.columns)}
    pq.write_table(pa.table({"id": rng.permutation(setting.rows), **columns}), place / "rows.parquet")


def _table(layout: str, plain: Path, place: Path, page: int) -> Table:
    if layout == PREPARED:
        return prepare(plain, place, key="id", page_bytes=page)
    place.mkdir()
    rows = pq.read_table(plain)
    width = 8 * rows.num_columns
    pq.write_table(rows, place / "rows.parquet", row_group_size=-(-page // width))
    return table(place, key="id")


def _spread(pages: tuple[int, ...]) -> list[int]:
    """Every other size, and both ends: what lies between is interpolated, so that the claim is about the model."""
    return sorted({*pages[::2], pages[-1]})


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-sweep-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
