"""Figures 10c and 10d of 000: MESHJOIN and index lookups where a row of the stream has many partners.

10c: R has 3.5 M rows of 120 B whose keys follow a Zipf law with z_R from 0.1 to 1, over as many keys; the stream's
follow one with z_S = 0.5; memory is 5% of R. The frequent keys are the same ones on both sides, as in the paper.

10d: the paper's cloud reports of two months, 10 M rows a side of 32 B, keys from 36,000 values, are not to be had. Here
is a generator of their shape: stations at fixed places report every three hours; what is joined by is the place in
cells, so keys of crowded cells are frequent on both sides. R is smaller than the paper's, with as many partners a row.

Both are measured as in Figure 10b: from disk, by the wall, on a machine that should do nothing else.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.mesh.figure10b import Rate, buffers, inl_rate, mesh_rate
from penstock.tables import Table, prepare, table
from penstock.tables.lmdb_index import build_index
from penstock.testing import zipf_keys

SEVERAL = 3
Draw = Callable[[int, int], pa.RecordBatch]


@dataclass(frozen=True)
class Skewed:
    """What Figure 10c runs."""

    rows: int = 1_000_000
    columns: int = 15
    skews: tuple[float, ...] = (0.1, 0.5, 0.8, 1.0)
    share: float = 0.05
    cycles: int = 2
    lookups: int = 20_000

    @property
    def size(self) -> int:
        """Bytes of R."""
        return 8 * self.columns * self.rows


@dataclass(frozen=True)
class Weather:
    """What Figure 10d runs: R has so many rows of four 8-byte columns, and a key about `rows / cells` of them."""

    rows: int = 2_000_000
    cells: int = 36_000
    stations: int = 7_000
    shares: tuple[float, ...] = (0.01, 0.025, 0.05, 0.1)
    cycles: int = 2
    lookups: int = 20_000

    @property
    def size(self) -> int:
        """Bytes of R."""
        return 32 * self.rows


QUICK_SKEWED = Skewed(rows=150_000, skews=(0.1, 1.0), cycles=1, lookups=3_000)
QUICK_WEATHER = Weather(rows=300_000, cells=5_400, stations=1_000, shares=(0.05, 0.1), cycles=1, lookups=3_000)


@dataclass(frozen=True)
class Outcome:
    """Both rates at each point of the axis."""

    axis: tuple[float, ...]
    mesh: list[Rate]
    inl: list[Rate]

    @property
    def ratios(self) -> list[float]:
        """How many times faster MESHJOIN is."""
        return [ours.rate / theirs.rate for ours, theirs in zip(self.mesh, self.inl, strict=True)]


def run_skewed(quick: bool, say: Say) -> Outcome:
    """Both joins at every z_R."""
    setting = QUICK_SKEWED if quick else Skewed()
    mesh, inl = [], []
    for skew in setting.skews:
        say(f"z_R = {skew}")
        keys = zipf_keys(setting.rows, setting.rows, skew, seed=3)
        draw = partial(_stream, lambda rows, seed: zipf_keys(rows, setting.rows, 0.5, seed=seed))
        memory = int(setting.share * setting.size)
        ours, theirs = _both(keys, setting.columns, draw, [memory], setting.cycles, setting.lookups)
        mesh += ours
        inl += theirs
    return Outcome(setting.skews, mesh, inl)


def run_weather(quick: bool, say: Say) -> Outcome:
    """Both joins at every allocation."""
    setting = QUICK_WEATHER if quick else Weather()
    say("writing reports")
    rng = np.random.default_rng(7)
    # Stations crowd where people do: a few cells have many.
    cell_of = zipf_keys(setting.stations, setting.cells, 0.5, seed=5)
    draw = partial(_stream, lambda rows, seed: cell_of[np.random.default_rng(seed).integers(0, setting.stations, rows)])
    keys = cell_of[rng.integers(0, setting.stations, setting.rows)]
    memories = [int(share * setting.size) for share in setting.shares]
    ours, theirs = _both(keys, 4, draw, memories, setting.cycles, setting.lookups)
    return Outcome(setting.shares, ours, theirs)


def _stream(keys: Callable[[int, int], npt.NDArray[np.int64]], rows: int, seed: int) -> pa.RecordBatch:
    return pa.record_batch({"id": keys(rows, seed), "quantity": np.arange(rows), "price": np.arange(rows)})


def _both(
    keys: npt.NDArray[np.int64], columns: int, draw: Draw, memories: list[int], cycles: int, lookups: int
) -> tuple[list[Rate], list[Rate]]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-figure10-"))
    try:
        plain = _write(keys, columns, folder / "plain")
        index = build_index(plain, folder / "index.lmdb")
        inl = [inl_rate(index, memory, draw(lookups, 17)) for memory in memories]
        mesh = []
        for memory in memories:
            prepared = prepare(plain, folder / "prepared", key="id", page_bytes=buffers(memory)[0])
            mesh.append(mesh_rate(prepared, memory, draw, cycles))
            shutil.rmtree(folder / "prepared")
        return mesh, inl
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(keys: npt.NDArray[np.int64], columns: int, place: Path) -> Table:
    rng = np.random.default_rng(3)
    place.mkdir()
    others = {f"v{i:02d}": rng.integers(0, 1 << 62, len(keys)) for i in range(1, columns)}
    pq.write_table(pa.table({"id": keys, **others}), place / "rows.parquet", row_group_size=1 << 17)
    return table(place, key="id")


def claims_skewed(outcome: Outcome) -> Sequence[Claim]:
    """What the paper says of Figure 10c."""
    ours, theirs = ([one.rate for one in runs] for runs in (outcome.mesh, outcome.inl))
    found = [
        (
            "both rates fall as R is more skewed",
            "“a decreasing trend”",
            f"from z_R = {outcome.axis[0]} to {outcome.axis[-1]}: MESHJOIN to {ours[-1] / ours[0]:.0%} of its rate, "
            f"INL to {theirs[-1] / theirs[0]:.0%}",
            ours[-1] < ours[0] and theirs[-1] < theirs[0],
        ),
        (
            "MESHJOIN stays well ahead at every skew",
            "“a significant performance improvement”",
            f"{min(outcome.ratios):.1f} to {max(outcome.ratios):.0f} times",
            min(outcome.ratios) >= SEVERAL,
        ),
    ]
    return [Claim("figure10c", *each) for each in found]


def claims_weather(outcome: Outcome) -> Sequence[Claim]:
    """What the paper says of Figure 10d."""
    said = ", ".join(f"{r:.1f} times at {s:.1%}" for s, r in zip(outcome.axis, outcome.ratios, strict=True))
    return [
        Claim(
            "figure10d",
            "on weather reports MESHJOIN outperforms INL by a large margin, at small allocations",
            "“by a large margin”",
            said,
            min(outcome.ratios) >= SEVERAL,
        )
    ]


def _plot(outcome: Outcome, path: Path, axis: str, title: str, scale: float = 1.0) -> None:
    canvas = Canvas(figsize=(6.2, 4.2), layout="constrained")
    panel = canvas.subplots()
    points = [scale * point for point in outcome.axis]
    for runs, name, colour in ((outcome.mesh, "MESHJOIN", "tab:blue"), (outcome.inl, "INL (LMDB)", "tab:red")):
        panel.plot(points, [one.rate for one in runs], "o-", color=colour, label=name)
    for point, ratio, ours in zip(points, outcome.ratios, outcome.mesh, strict=True):
        panel.annotate(f"{ratio:.1f}×", (point, ours.rate), (0, 7), textcoords="offset points", ha="center", fontsize=8)
    panel.set(yscale="log", ylabel="service rate (rows/s)", xlabel=axis)
    panel.set_title(title, fontsize=10)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=9)
    canvas.savefig(path, dpi=110)


def plot_skewed(outcome: Outcome, path: Path) -> None:
    """Rates over the skew of R."""
    _plot(outcome, path, "z_R, the skew of R", "Service rate over the skew of R: 000, Figure 10c")


def plot_weather(outcome: Outcome, path: Path) -> None:
    """Rates over memory."""
    _plot(outcome, path, "memory (% of R)", "Service rate on weather reports: 000, Figure 10d", 100)


FIGURES = (
    Figure("figure10c", "service rates over the skew of the table", run_skewed, claims_skewed, plot_skewed),
    Figure("figure10d", "service rates on weather reports", run_weather, claims_weather, plot_weather),
)
