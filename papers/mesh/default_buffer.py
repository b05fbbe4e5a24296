"""Figures 5 to 10 of 001: one disk buffer for all budgets, instead of tuning it for each.

The paper takes the optimum of the smallest budget (0.93 MB at 20 MB, 5% of R) as the default and finds it 0.4% to 2%
slower than the optimum of budgets up to 320 MB (76% of R). Budgets here are the same shares of R. Checked on the cost
model over every b, and on the join itself over the page sizes that were written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.mesh.sweep import KB, MB, PREPARED, QUICK, Measured, Outcome, Setting, sweep
from penstock.models.mesh_cost import Coefficients
from penstock.models.mesh_tuner import Choice, curve, default_buffer, fastest, with_buffer

#: How much slower than the optimum the default may be: the paper's "less than 3 percent".
LOSS = 0.03


@dataclass(frozen=True)
class Compared:
    """One budget: the best buffer and the default one, by the model; the same of the join itself."""

    budget: int
    best: Choice
    default: Choice
    measured_best: Measured
    measured_default: Measured


@dataclass(frozen=True)
class Data:
    """The sweep, and each budget compared."""

    outcome: Outcome
    compared: list[Compared]

    @property
    def c(self) -> Coefficients:
        """The coefficients of the prepared table."""
        return self.outcome.coefficients[PREPARED]


def run(quick: bool, say: Say) -> Data:
    """The sweep (shared with Figure 10a), and the tuner on its coefficients."""
    return compare(sweep(QUICK if quick else Setting(), say))


def compare(outcome: Outcome) -> Data:
    """Default against optimum at every budget."""
    c, runs = outcome.coefficients[PREPARED], outcome.runs[PREPARED]
    budgets = outcome.setting.budgets
    default = default_buffer(c, budgets[0])
    compared = []
    for budget in budgets:
        here = [run for run in runs if run.budget == budget]
        nearest = min(here, key=lambda run: abs(np.log(run.b / default)))
        best = max(here, key=lambda run: run.rate)
        compared.append(Compared(budget, fastest(c, budget), with_buffer(c, budget, default), best, nearest))
    return Data(outcome, compared)


def claims(data: Data) -> Sequence[Claim]:
    """What §4 and §5 say."""
    c, compared = data.c, data.compared
    loss = [1 - one.default.rate / one.best.rate for one in compared]
    felt = [1 - one.measured_default.rate / one.measured_best.rate for one in compared]
    middle = data.outcome.setting.budgets[len(data.outcome.setting.budgets) // 2]
    steep, flat = _sides(c, middle)
    optimal = [one.best.b * c.v_P / MB for one in compared]
    each = _read_each(c)
    fall, rest = each[0] / each[-1], each[len(each) // 2] / each[-1]
    size = compared[0].default.b * c.v_P / MB
    return [
        Claim(
            "001, 5",
            "a knee: the rate grows drastically up to it, and hardly any more after",
            "drastic, then saturated",
            f"× {steep:.1f} up to the default, {flat:+.0%} beyond",
            steep > 1.5 and flat < 0.1,
        ),
        Claim(
            "001, 6",
            "the best buffer at budgets of 5% to 76% of R",
            "0.93 to 2.63 MB, growing",
            " · ".join(f"{each:.1f}" for each in optimal) + " MB",
            None,
        ),
        Claim(
            "001, 7 and 9",
            f"one default buffer ({size:.1f} MB here, 0.93 there) is nearly as fast as the best, by the model",
            "0.4% to 2% slower, < 3%",
            f"{min(loss):.1%} to {max(loss):.1%} slower",
            max(loss) < LOSS,
        ),
        Claim(
            "001, 7 and 9",
            "the same, measured: the page nearest the default against the fastest page",
            "< 3%",
            " · ".join(f"{each:.1%}" for each in felt),
            # Two runs that do the same differ by as much on a busy machine.
            max(felt) < 0.1,
        ),
        Claim(
            "001, 8",
            "I/O cost of a page falls with the buffer, then stays",
            "falls, then flat",
            f"÷ {fall:.0f} over all, ÷ {rest:.1f} over the second half",
            fall > 3 and rest < fall / 2,
        ),
    ]


def _sides(c: Coefficients, budget: int) -> tuple[float, float]:
    """How much faster the knee is than the smallest buffer, and the best than the knee."""
    points = curve(c, budget)
    at = with_buffer(c, budget, default_buffer(c, budget / 4))
    return at.rate / points[0].rate, max(point.rate for point in points) / at.rate - 1


def _read_each(c: Coefficients) -> list[float]:
    b = np.geomspace(1, c.c_IO.x[-1], 16)
    return [float(each) for each in c.c_IO(b) / b]


def plot(data: Data, path: Path) -> None:
    """Rate over the buffer; default against best; I/O cost of a page; where memory goes."""
    canvas = Canvas(figsize=(11, 7.6), layout="constrained")
    (over_b, over_m), (reading, split) = canvas.subplots(2, 2)
    c, setting = data.c, data.outcome.setting
    for number, one in enumerate(data.compared):
        points = curve(c, one.budget, 60)
        sizes = [point.b * c.v_P / KB for point in points]
        over_b.plot(sizes, [point.rate / 1e6 for point in points], color=f"C{number}", label=f"{one.budget // MB} MB")
        here = [run for run in data.outcome.runs[PREPARED] if run.budget == one.budget]
        over_b.plot(
            [run.b * c.v_P / KB for run in here], [run.rate / 1e6 for run in here], "o", color=f"C{number}", ms=4
        )
        over_b.plot([one.best.b * c.v_P / KB], [one.best.rate / 1e6], "^", color=f"C{number}")
    over_b.axvline(data.compared[0].default.b * c.v_P / KB, color="0.6", linestyle=":", label="default buffer")
    over_b.set(xscale="log", xlabel="disk buffer (KB)", ylabel="million rows/s", title="Rate over the buffer (5, 7)")
    over_b.legend(frameon=False, fontsize=8)
    budgets = [one.budget / MB for one in data.compared]
    over_m.plot(budgets, [one.best.rate / 1e6 for one in data.compared], "k-", label="best buffer, predicted")
    over_m.plot(budgets, [one.default.rate / 1e6 for one in data.compared], "C0--", label="default, predicted")
    over_m.plot(budgets, [one.measured_best.rate / 1e6 for one in data.compared], "k^", label="best page, measured")
    over_m.plot(
        budgets, [one.measured_default.rate / 1e6 for one in data.compared], "C0o", ms=5, label="default, measured"
    )
    over_m.set(xscale="log", xlabel="budget (MB)", title="Default against best (9, 10b)", ylim=(0, None))
    over_m.set_xticks(budgets)
    over_m.set_xticklabels([f"{budget:g}" for budget in budgets])
    over_m.minorticks_off()
    over_m.legend(frameon=False, fontsize=8)
    b = np.geomspace(1, c.c_IO.x[-1], 60)
    reading.plot(b * c.v_P / KB, c.c_IO(b) / b * 1e6, color="C2")
    reading.set(
        xscale="log",
        xlabel="disk buffer (KB)",
        title=f"Time to read the keys of {c.v_P / KB:.0f} KB (8)",
        ylim=(0, None),
    )
    reading.set_ylabel("µs")
    bottom = np.zeros(len(budgets))
    names = {"disk_buffer": "disk buffer", "fixed": "results", "queue": "index", "hash_table": "waiting rows"}
    for name, label in names.items():
        part = np.array([getattr(one.default.memory, name) / one.budget for one in data.compared]) * 100
        split.bar([f"{budget:g}" for budget in budgets], part, bottom=bottom, label=label)
        bottom += part
    split.set(xlabel="budget (MB)", ylabel="%", title="Where memory goes, with the default buffer")
    split.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), reverse=True)
    for panel in (over_b, over_m, reading, split):
        panel.spines[["top", "right"]].set_visible(False)
    size = setting.rows * 8 * setting.columns // MB
    canvas.suptitle(f"One disk buffer for all budgets, R of {size} MB: 001, Figures 5 to 10", fontsize=11)
    canvas.savefig(path, dpi=110)


FIGURE = Figure("default_buffer", "one disk buffer for all budgets (001, Figures 5 to 10)", run, claims, plot)
