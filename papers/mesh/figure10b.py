"""Figure 10b of 000: the service rates of MESHJOIN and of index lookups (INL) over memory, from 0.1% to 10% of R.

R has 3.5 M rows of 120 B and S rows of 24 B, with keys drawn by a Zipf law with z_S = 0.5 (000, Table 3). M is what the
paper counts: for MESHJOIN the waiting rows, their index and the buffer b (the better of two parts of M); for INL the
pool of pages of the B+-tree. A slice of results, which the paper does not count, comes on top for both.

Both read from disk: before each cycle of MESHJOIN the table's files are dropped from the page cache, and INL has no
more of its file there than its pool. So the seconds are those of the wall, on a machine that should do nothing else,
and the folder for temporary files (`TMPDIR`) must be on a disk. Rates are taken as in §5.1: of a full window's cycle,
and of the last tenth of the lookups, in pieces; of several times the first quartile counts.

What a random read costs beside a sequential one decides the ratio, and disks have changed since: a random page takes
less than 0.1 ms now, and as much as 40 KB in a row. So the window must be larger before a shared scan pays; the last
claim computes what the same reads and scans would take on a disk with 8 ms a random read and 50 MB/s.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from penstock.kernels.contract import Batch, Kernel, Portion
from penstock.kernels.measure import measure as bytes_of
from penstock.kernels.mesh.budget import LEAST_WINDOW, reserve
from penstock.kernels.mesh.index import BYTES_PER_ROW
from penstock.kernels.mesh.inl import IndexNestedLoops
from penstock.kernels.mesh.inl import reserve as beside_pool
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.kernels.mesh.stopwatch import SLICE, typical
from penstock.tables import Table, prepare, system_cache, table
from penstock.tables.lmdb_index import LmdbIndex, build_index
from penstock.testing import zipf_keys

KB, MB = 1 << 10, 1 << 20
_PORTION = 32_768
_PIECES = 10
#: A disk of 2008.
SEEK, BYTES_A_SECOND = 0.008, 50e6
SEVERAL = 3


@dataclass(frozen=True)
class Setting:
    """What is run. `lookups` are made in all for each allocation; the last tenth is timed."""

    rows: int = 3_500_000
    columns: int = 15
    shares: tuple[float, ...] = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
    skew: float = 0.5
    cycles: int = 3
    lookups: int = 100_000

    @property
    def size(self) -> int:
        """Bytes of R."""
        return 8 * self.columns * self.rows


#: R is smaller, so the smallest shares of it are too small for one page and one packet.
QUICK = Setting(rows=700_000, shares=(0.005, 0.01, 0.025, 0.1), cycles=2, lookups=20_000)


@dataclass(frozen=True)
class Rate:
    """Rows a second, what came from disk for each row, and what that would take on a disk of 2008.

    `reads_a_row` are pages, each somewhere else; a scan has none.
    """

    rate: float
    bytes_a_row: float
    seconds_in_2008: float
    reads_a_row: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Both rates at each allocation."""

    setting: Setting
    mesh: list[Rate]
    inl: list[Rate]

    @property
    def ratios(self) -> list[float]:
        """How many times faster MESHJOIN is."""
        return [ours.rate / theirs.rate for ours, theirs in zip(self.mesh, self.inl, strict=True)]

    @property
    def ratios_in_2008(self) -> list[float]:
        """The same where disks are slow and nothing else takes time."""
        return [b.seconds_in_2008 / a.seconds_in_2008 for a, b in zip(self.mesh, self.inl, strict=True)]


def run(quick: bool, say: Say) -> Outcome:
    """Both joins at every allocation."""
    return measure(QUICK if quick else Setting(), say)


def measure(setting: Setting, say: Say) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="penstock-figure10b-"))
    try:
        say("writing R")
        plain = write(setting, folder / "plain")
        say("building the index")
        index = build_index(plain, folder / "index.lmdb")
        mesh, inl = [], []
        for share in setting.shares:
            memory = int(share * setting.size)
            say(f"{share:.2%} of R: INL")
            inl.append(inl_rate(index, memory, lookups(setting)))
            say(f"{share:.2%} of R: MESHJOIN")
            found = []
            for page in buffers(memory):
                prepared = prepare(plain, folder / "prepared", key="id", page_bytes=page)
                found.append(mesh_rate(prepared, memory, partial(stream, setting), setting.cycles))
                shutil.rmtree(folder / "prepared")
            mesh.append(max(found, key=lambda one: one.rate))
        return Outcome(setting, mesh, inl)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write(setting: Setting, place: Path) -> Table:
    """R, as Parquet."""
    rng = np.random.default_rng(3)
    place.mkdir()
    columns = {f"v{i:02d}": rng.integers(0, 1 << 62, setting.rows) for i in range(1, setting.columns)}
    rows = pa.table({"id": rng.permutation(setting.rows), **columns})
    pq.write_table(rows, place / "rows.parquet", row_group_size=1 << 17)
    return table(place, key="id")


def stream(setting: Setting, rows: int, seed: int) -> pa.RecordBatch:
    """Rows of S."""
    keys = zipf_keys(rows, setting.rows, setting.skew, seed=seed)
    return pa.record_batch({"id": keys, "quantity": np.arange(rows), "price": np.arange(rows)})


def lookups(setting: Setting) -> pa.RecordBatch:
    """The stream that index lookups answer."""
    return stream(setting, setting.lookups, seed=17)


def inl_rate(index: LmdbIndex, memory: int, rows: pa.RecordBatch) -> Rate:
    """The service rate of index lookups with a pool of `memory` bytes, over the last tenth of the rows."""
    kernel = IndexNestedLoops(rows.schema, index, on=index.key, budget=memory + beside_pool(index))
    last = rows.num_rows // 10
    _step(kernel, rows.slice(0, rows.num_rows - last))
    before, pages, times = bytes_read(), 0.0, []
    piece = -(-last // _PIECES)
    for at in range(rows.num_rows - last, rows.num_rows, piece):
        times.append(_timed(lambda at=at: _step(kernel, rows.slice(at, piece))) / min(piece, rows.num_rows - at))
        pages += kernel.metrics()["pages_read"]
    spent = bytes_read() - before
    kernel.close()
    return Rate(1 / typical(times), spent / last, pages / last * SEEK, pages / last)


def buffers(memory: int) -> list[int]:
    """The buffers b to try: where memory is scarce, pages are dear to open and large ones leave no room for rows."""
    return sorted({min(max(memory * part // 8, 4 * KB), MB) for part in (1, 3)})


def mesh_rate(prepared: Table, memory: int, draw: Callable[[int, int], pa.RecordBatch], cycles: int) -> Rate:
    """The service rate of MESHJOIN: rows of a full window by the seconds of a cycle that reads everything from disk.

    `draw(rows, seed)` gives rows of the stream.
    """
    one = draw(1, 1)
    each = bytes_of(one) + BYTES_PER_ROW
    budget = memory + SLICE
    room = budget - reserve(prepared.pages)
    if room < LEAST_WINDOW:
        raise ValueError(f"{memory} bytes are too few for the pages of {prepared.path}")
    rows = draw(int(room / each), 19)
    kernel = MeshJoin(rows.schema, prepared, on=prepared.key, budget=budget)
    # The first cycle compiles and warms up.
    _step(kernel, rows)
    times, spent = [], []
    for _ in range(cycles):
        forget(Path(prepared.path))
        before = bytes_read()
        times.append(_timed(lambda: _step(kernel, rows)))
        spent.append(bytes_read() - before)
    scan = sum(path.stat().st_size for path in Path(prepared.path).iterdir()) / BYTES_A_SECOND
    return Rate(rows.num_rows / typical(times), median(spent) / rows.num_rows, scan / rows.num_rows)


def forget(folder: Path) -> None:
    """Take a folder's files out of the page cache."""
    for path in folder.iterdir():
        system_cache.forget(path)


def bytes_read() -> int:
    """Bytes that this process had from disk, as the system counts."""
    with open("/proc/self/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def _step(kernel: Kernel, rows: pa.RecordBatch) -> None:
    portions = [Portion(0, rows.slice(at, _PORTION)) for at in range(0, rows.num_rows, _PORTION)]
    for _ in kernel.step(Batch(portions), 0):
        pass
    for _ in kernel.tick(0):
        pass


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def claims(outcome: Outcome) -> Sequence[Claim]:
    """What §5.2 says of the figure; several times is enough where the paper has ten."""
    shares, ratios, old = outcome.setting.shares, outcome.ratios, outcome.ratios_in_2008
    ours, theirs = ([one.rate for one in runs] for runs in (outcome.mesh, outcome.inl))
    reads = [one.reads_a_row for one in outcome.inl]
    half, one = shares.index(0.005), shares.index(0.01)
    gained, given = ours[-1] / ours[-2], shares[-1] / shares[-2]
    found: list[tuple[str, str, str, bool | None]] = [
        (
            "at 0.5% of R MESHJOIN is several times as fast as INL",
            "12.8 times (3,500/s and 274/s)",
            f"{ratios[half]:.1f} times ({ours[half]:,.0f}/s and {theirs[half]:,.0f}/s)",
            ratios[half] >= SEVERAL,
        ),
        (
            f"… and at every allocation, {shares[0]:.1%} to {shares[-1]:.0%} of R",
            "10 times",
            f"{min(ratios):.1f} to {max(ratios):.0f} times",
            min(ratios) >= SEVERAL,
        ),
        (
            "MESHJOIN scales with memory from 1% to 10% of R",
            "4.3 times (6,000/s and 26,000/s)",
            f"{ours[-1] / ours[one]:.0f} times ({ours[one]:,.0f}/s and {ours[-1]:,.0f}/s)",
            ours[-1] / ours[one] >= SEVERAL,
        ),
        (
            "… with diminishing returns at the end",
            "“diminishing returns”",
            f"{given:.1f} times the memory gives {gained:.1f} times the rate",
            gained < given,
        ),
        (
            "the pool of INL does not absorb its random reads",
            "“not large enough”",
            f"{reads[0]:.1f} reads a row at {shares[0]:.1%} of R, {reads[-1]:.1f} at {shares[-1]:.0%}",
            min(reads) > 0.5,
        ),
    ]
    said = f"at least {min(old):.0f} times, from {shares[0]:.1%} of R on"
    found.append(("the same reads and scans on a disk with 8 ms and 50 MB/s, computed", "10 times", said, None))
    return [Claim("figure10b", text, paper, here, holds) for text, paper, here, holds in found]


def plot(outcome: Outcome, path: Path) -> None:
    """Rates over memory, both axes logarithmic; beside them what each row cost in reads."""
    canvas = Canvas(figsize=(11, 4.4), layout="constrained")
    rates, costs = canvas.subplots(1, 2)
    shares = [100 * share for share in outcome.setting.shares]
    for runs, name, colour in ((outcome.mesh, "MESHJOIN", "tab:blue"), (outcome.inl, "INL (LMDB)", "tab:red")):
        rates.plot(shares, [one.rate for one in runs], "o-", color=colour, label=name)
        costs.plot(shares, [one.bytes_a_row / 1e3 for one in runs], "o-", color=colour, label=name)
    for share, ratio, ours in zip(shares, outcome.ratios, outcome.mesh, strict=True):
        text = f"{ratio:.1f}×" if ratio < 10 else f"{ratio:.0f}×"
        rates.annotate(text, (share, ours.rate), (0, 7), textcoords="offset points", ha="center", fontsize=8)
    rates.set(yscale="log", ylabel="service rate (rows/s)", title="rows/s, and how many times INL")
    costs.set(ylim=(0, None), ylabel="read from disk (KB a row)", title="bytes from disk for each row")
    for panel in (rates, costs):
        panel.set(xscale="log", xlabel="memory (% of R)", xlim=(0.8 * shares[0], 1.25 * shares[-1]))
        panel.set_xticks(shares)
        panel.set_xticklabels([f"{share:g}" for share in shares])
        panel.minorticks_off()
        panel.title.set_fontsize(10)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=9)
    size = outcome.setting.size / 1e6
    canvas.suptitle(f"Service rate over memory, R of {size:.0f} MB on disk: 000, Figure 10b", fontsize=11)
    canvas.savefig(path, dpi=110)


FIGURE = Figure("figure10b", "service rates of MESHJOIN and of index lookups over memory", run, claims, plot)
