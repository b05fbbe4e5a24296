"""The picture of a demonstration: rate and memory over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.cli.demo.data import Arrivals
from penstock.cli.demo.meter import Meter

_RATE, _ARRIVED, _HELD, _WORKERS, _BUDGET = "#2a7f62", "#9aa5b1", "#1f6fb2", "#8e6bbf", "#c0392b"
_MB = 1 << 20


def draw(path: Path, meter: Meter, arrivals: Arrivals, budget: int, table_size: int, layout: str) -> None:
    """Write a PNG with two panels over the same time."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    batches = meter.batches()
    zero = batches[0].began
    end = batches[-1].ended - zero
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(9, 5.6), sharex=True, height_ratios=(1, 1), layout="constrained"
    )
    figure.suptitle(
        f"{arrivals.rows:,} orders joined live with a table of {table_size / _MB:,.0f} MB under {budget / _MB:,.0f} MB",
        fontsize=13,
        fontweight="bold",
        x=0.01,
        ha="left",
    )

    edges = [batch.began - zero for batch in batches] + [end]
    above.stairs([batch.rate / 1000 for batch in batches], edges, fill=True, color=_RATE, alpha=0.85, label="joined")
    seconds, rates = _arrival_rate(arrivals, zero)
    above.plot(seconds, rates, color=_ARRIVED, linewidth=1.5, label="arriving")
    above.set_ylabel("thousand orders a second")
    above.set_ylim(bottom=0)
    above.legend(loc="upper left", frameon=False, ncols=2)

    below.axhline(budget / _MB, color=_BUDGET, linestyle="--", linewidth=1.5)
    below.text(end, budget / _MB, f"budget {budget / _MB:,.0f} MB ", color=_BUDGET, ha="right", va="bottom")
    held = [batch.memory / _MB for batch in batches]
    below.stairs(held, edges, fill=True, color=_HELD, alpha=0.35)
    below.stairs(held, edges, color=_HELD, linewidth=1.5, label="held by the join, as it counts itself")
    start = batches[0].ended
    later = [sample for sample in meter.samples if sample.at >= start]
    if later:
        below.plot(
            [sample.at - zero for sample in later],
            [(sample.resident - later[0].resident) / _MB for sample in later],
            color=_WORKERS,
            linewidth=1.2,
            label="resident memory of all workers, above their start",
        )
    below.set_ylabel("MB")
    below.set_xlabel(f"seconds since the query started ({layout})")
    top = max([budget / _MB, *held, *below.get_ylim()])
    below.set_ylim(min(0, below.get_ylim()[0]), top * 1.3)
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
