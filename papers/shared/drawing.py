"""Bars for each window or distribution, one colour for each scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

Panel = Mapping[str, Sequence[float]]


def bars(path: Path, panels: Mapping[str, Panel], across: Sequence[str], unit: str, *, log: bool = True) -> None:
    """One panel for each name; in it one group of bars for each label of `across`."""
    canvas = Canvas(figsize=(max(4.6, 3.9 * len(panels)), 3.6), layout="constrained")
    for axes, (title, lines) in zip(canvas.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        width = 0.8 / len(lines)
        for number, (name, values) in enumerate(lines.items()):
            places = np.arange(len(values)) + (number - (len(lines) - 1) / 2) * width
            axes.bar(places, values, width, label=name)
        axes.set_xticks(np.arange(len(across)), across, fontsize=7)
        axes.set(title=title, ylabel=unit, yscale="log" if log else "linear")
        axes.legend(frameon=False, fontsize=7)
    canvas.savefig(path, dpi=110)
