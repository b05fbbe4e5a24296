"""The picture of a demonstration: rate and memory over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.cli.demo.data import Arrivals
from penstock.cli.demo.meter import Meter

_RATE, _ARRIVED, _HELD, _WORKERS = "#2a7f62", "#7b8794", "#1f6fb2", "#8e6bbf"
_BUDGET, _TABLE = "#c0392b", "#52606d"
_MB = 1 << 20


def draw(path: Path, meter: Meter, arrivals: Arrivals, budget: int, table_size: int, layout: str) -> None:
    """Write a PNG with two panels over the same time, from the first micro-batch's commit on."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    first, *batches = meter.batches()
    batches = batches or [first]
    zero = min(first.ended, batches[0].began)
    end = batches[-1].ended - zero
    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 5.6), sharex=True, layout="constrained")
    figure.suptitle(
        f"{arrivals.rows:,} orders joined live with a {table_size / _MB:,.0f} MB table under {budget / _MB:,.0f} MB",
        fontsize=13,
        fontweight="bold",
        x=0.01,
        ha="left",
    )

    edges = [batch.began - zero for batch in batches] + [end]
    rates = [batch.rate / 1000 for batch in batches]
    above.stairs(rates, edges, fill=True, color=_RATE, alpha=0.85, label="joined, by micro-batch")
    at, arriving = _arrival_rate(arrivals, zero)
    above.plot(at, arriving, color=_ARRIVED, linewidth=1.8, label="arriving")
    above.set_ylabel("thousand orders/s")
    above.set_ylim(0, 1.3 * max([1e-3, *rates, *arriving]))
    above.legend(loc="upper left", frameon=False, ncols=2)

    held = [batch.memory / _MB for batch in batches]
    below.stairs(held, edges, fill=True, color=_HELD, alpha=0.35)
    below.stairs(held, edges, color=_HELD, linewidth=1.5, label="held by the join, as it counts itself")
    later = [sample for sample in meter.samples if sample.at >= first.ended]
    if later:
        below.plot(
            [sample.at - zero for sample in later],
            [max(sample.resident - later[0].resident, 0) / _MB for sample in later],
            color=_WORKERS,
            linewidth=1.2,
            label="resident memory of all Python workers, above their start",
        )
    for size, text, color in ((budget, "budget", _BUDGET), (table_size, "the table", _TABLE)):
        below.axhline(size / _MB, color=color, linestyle="--", linewidth=1.4)
        below.annotate(
            f"{text}, {size / _MB:,.0f} MB",
            (0.995, size / _MB),
            (0, 2),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=color,
            ha="right",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1},
        )
    below.set_ylabel("memory, MB")
    below.set_xlabel(f"seconds since the first micro-batch was committed ({layout})")
    below.set_ylim(0, 1.35 * max(budget / _MB, table_size / _MB, below.get_ylim()[1] / 1.05))
    below.legend(loc="upper left", frameon=False, ncols=2)
    for panel in (above, below):
        _plain(panel)
    below.set_xlim(0, end)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plain(panel: Any) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="#e3e6ea", linewidth=0.8)
    panel.set_axisbelow(True)


def _arrival_rate(arrivals: Arrivals, zero: float) -> tuple[list[float], list[float]]:
    """Thousands of rows a second between deliveries, over about two seconds each."""
    seconds, rates = [], []
    log = [(at - zero, rows) for at, rows in arrivals.log]
    span = 4
    for (began, before), (ended, after) in zip(log[1:-span], log[1 + span :], strict=False):
        seconds.append((began + ended) / 2)
        rates.append((after - before) / max(ended - began, 1e-6) / 1000)
    return seconds, rates
