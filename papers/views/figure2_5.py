"""Figure 2.5: the simulated cost of a plan, and what carrying it out really takes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.views.curves import database, view_curves
from papers.views.planners import compare, instance, uniform
from papers.views.tpch import VIEW
from penstock.kernels.views.lgm import Action

#: What simulated and real cost may differ by.
ALLOWED = 0.2
_TABLES = ("Supplier", "PartSupp")
_SHOWN = ("NAIVE", "ONLINE", "OPT-LGM")


@dataclass(frozen=True)
class Outcome:
    """Seconds, simulated and real, and the number of actions of NAIVE."""

    simulated: dict[str, float]
    real: dict[str, float]
    naive_actions: int


def run(quick: bool, say: Say) -> Outcome:
    curves = view_curves(quick)
    # So that NAIVE refreshes more than 20 times for 1,000 changes of each table, as the chapter has it.
    bound = sum(cost(45) for cost in curves.costs.values())
    steps = 200 if quick else 1000
    found = compare(instance(curves, uniform(steps), bound))
    data = database(curves.setting.scale)
    rows = {name: data.changes(VIEW[name], steps) for name in _TABLES}
    say("carrying the plans out")
    runs = [[_carry_out(found[name][1], rows, data) for name in _SHOWN] for _ in range(7)]
    real = {name: statistics.median(run[place] for run in runs) for place, name in enumerate(_SHOWN)}
    return Outcome({name: found[name][0] for name in _SHOWN}, real, len(found["NAIVE"][1]))


def _carry_out(actions: Sequence[Action], rows: dict[str, list[tuple[object, ...]]], data: object) -> float:
    """Seconds for all batches of a plan, with one change of each table arriving at each step."""
    spent, done = 0.0, dict.fromkeys(_TABLES, 0)
    for action in actions:
        for table in action.tables:
            name = _TABLES[table]
            spent += data.join(VIEW[name], rows[name][done[name] : action.step + 1])  # type: ignore[attr-defined]
            done[name] = action.step + 1
    return spent


def claims(found: Outcome) -> Sequence[Claim]:
    worst = max(abs(found.real[name] / found.simulated[name] - 1) for name in _SHOWN)
    shown = ", ".join(f"{name} {found.simulated[name]:.3f} s / {found.real[name]:.3f} s" for name in _SHOWN)
    return [
        Claim(
            "figure2_5",
            "simulated and real cost agree",
            "“negligible discrepancy”",
            f"{worst:.0%} at most: {shown}",
            worst <= ALLOWED,
        ),
        Claim("figure2_5", "actions of NAIVE", "more than 20", str(found.naive_actions), None),
    ]


def plot(found: Outcome, path: Path) -> None:
    canvas = Canvas(figsize=(5.5, 3.6), layout="constrained")
    axes = canvas.subplots()
    places = range(len(_SHOWN))
    axes.bar([p - 0.2 for p in places], [found.simulated[name] for name in _SHOWN], 0.4, label="simulated")
    axes.bar([p + 0.2 for p in places], [found.real[name] for name in _SHOWN], 0.4, label="real")
    axes.set_xticks(list(places), _SHOWN)
    axes.set(ylabel="seconds", title="Simulated and real cost of three plans")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(path, dpi=110)


FIGURE = Figure("figure2_5", "simulated against real cost", run, claims, plot)
