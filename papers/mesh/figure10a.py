"""Figure 10a of 000: predicted and measured service rate over b, at a budget of 5% of R; 001, Figure 10.

Every b has its own w, the largest that fits beside it. The model's coefficients are measured once, on a table with
pages of one size and on samples of it in some others; the rates it predicts are then compared with those of the join
itself, also for sizes and budgets that were never measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.mesh.sweep import KB, MB, PARQUET, QUICK, Measured, Outcome, Setting, sweep

NAMES = {"prepared": "prepared table", PARQUET: "plain Parquet"}
#: What the mean error may be.
ALLOWED = 0.15


def run(quick: bool, say: Say) -> Outcome:
    """The sweep over b and budgets."""
    return sweep(QUICK if quick else Setting(), say)


def claims(outcome: Outcome) -> Sequence[Claim]:
    """What §5.2 says of the figure, for each layout of the table."""
    found = []
    for layout, runs in outcome.runs.items():
        name = NAMES[layout]
        smallest = _at(runs, outcome.setting.budgets[0])
        error = mean(outcome.error(layout, run) for run in smallest)
        overall = mean(outcome.error(layout, run) for run in runs)
        worst = max(outcome.error(layout, run) for run in runs)
        best = max(smallest, key=lambda run: outcome.predicted(layout, run).rate)
        loss = 1 - best.rate / max(run.rate for run in smallest)
        found += [
            Claim(
                "figure10a",
                f"{name}: the model tracks the measured rate over b, at 5% of R",
                "“tracks accurately”",
                f"mean error {error:.1%}",
                error <= ALLOWED,
            ),
            Claim(
                "figure10a",
                f"{name}: the same over all budgets (001, Figure 10)",
                "“closely resembles”",
                f"mean error {overall:.1%}, worst {worst:.0%}",
                overall <= ALLOWED,
            ),
            Claim(
                "figure10a",
                f"{name}: the b that the model prefers is the one to take",
                "",
                f"{loss:.1%} slower than the best measured",
                loss <= ALLOWED,
            ),
        ]
    return found


def plot(outcome: Outcome, path: Path) -> None:
    """One panel for each layout: a line as the model has it, dots as measured, one colour a budget."""
    canvas = Canvas(figsize=(5.5 * len(outcome.runs), 4.4), layout="constrained")
    panels = canvas.subplots(1, len(outcome.runs), squeeze=False)[0]
    for panel, (layout, runs) in zip(panels, outcome.runs.items(), strict=True):
        for number, budget in enumerate(outcome.setting.budgets):
            here = _at(runs, budget)
            sizes = [run.page / KB for run in here]
            predicted = [outcome.predicted(layout, run).rate / 1e6 for run in here]
            panel.plot(sizes, predicted, color=f"C{number}", linewidth=1.2)
            measured = [run.rate / 1e6 for run in here]
            panel.plot(sizes, measured, "o", color=f"C{number}", label=f"{budget // MB} MB")
        panel.plot([], [], color="0.4", label="predicted")
        panel.plot([], [], "o", color="0.4", label="measured")
        panel.set(xscale="log", xlabel="b: page of the table (KB)", title=NAMES[layout], ylim=(0, None))
        panel.set_xticks([run.page / KB for run in _at(runs, outcome.setting.budgets[-1])])
        panel.set_xticklabels([f"{run.page / KB:.0f}" for run in _at(runs, outcome.setting.budgets[-1])], fontsize=8)
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("service rate (million rows/s)")
    panels[-1].legend(frameon=False, fontsize=9)
    size = outcome.setting.rows * 8 * outcome.setting.columns // MB
    canvas.suptitle(
        f"Predicted and measured service rate, R of {size} MB: 000, Figure 10a; 001, Figure 10", fontsize=11
    )
    canvas.savefig(path, dpi=110)


def _at(runs: Sequence[Measured], budget: int) -> list[Measured]:
    return [run for run in runs if run.budget == budget]


FIGURE = Figure("figure10a", "predicted against measured service rate over b", run, claims, plot)
