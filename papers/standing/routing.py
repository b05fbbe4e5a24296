"""Figures 4.13 to 4.21 of 003: every event to the strategy that is estimated to cost it least.

Events are of a few *kinds*: how many partners, how many queries selected. The time of each strategy is measured kind
by kind, so that OPT, which always takes what is really best, can be told without timing single events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.standing.workload import DOMAIN, Bench, Load
from penstock.kernels.standing.calibrate import calibrate
from penstock.kernels.standing.search import Rows
from penstock.models.standing_cost import CHOICES, Coefficients


@dataclass
class Outcome:
    """Rates by method, shares of what was routed where, and how often that was the best, over a parameter."""

    over: list[float]
    rates: dict[str, list[float]] = field(default_factory=dict)
    routed: list[dict[str, float]] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)


class Events(Bench):
    """A load whose events have few or many partners, and values that few or many queries select."""

    def __init__(self, load: Load, coefficients: Coefficients, partners: Sequence[int], crowded: float) -> None:
        bounds = load.bounds()
        rng = np.random.default_rng(5)
        # Below the middle hardly a query; above it all the others.
        few = rng.random(load.queries) < 0.002
        own = np.where(few, rng.uniform(0, DOMAIN / 2, load.queries), rng.uniform(DOMAIN / 2, DOMAIN, load.queries))
        half = np.where(few, 2.0, load.selected * DOMAIN / 2)
        bounds[:, 0], bounds[:, 1] = own - half, own + half
        super().__init__(load, bounds=bounds, coefficients=coefficients)
        runs = [np.sort(rng.uniform(0, DOMAIN, count)) for count in partners for _ in range(20)]
        self.values = np.concatenate(runs)
        self._ends = np.cumsum([0, *(len(run) for run in runs)])
        self._partners, self._crowded = partners, crowded

    def kinds(self, count: int) -> list[Rows]:
        """Events by kind, as many of each as there are: partners by low or high value."""
        rng = np.random.default_rng(11)
        found = []
        for place in range(len(self._partners)):
            for share, (low, high) in ((1 - self._crowded, (0, DOMAIN / 2)), (self._crowded, (DOMAIN / 2, DOMAIN))):
                number = max(int(count * share / len(self._partners)), 1)
                key = rng.integers(0, 20, number) + 20 * place
                own = np.sort(rng.uniform(low, high, number))
                found.append(Rows(self._ends[key], self._ends[key + 1], np.zeros(number), own))
        return found


def _measure(bench: Events, outcome: Outcome, count: int) -> None:
    kinds = bench.kinds(count)
    times = np.array([[_per_event(bench, name, rows) for rows in kinds] for name in CHOICES])
    sizes = np.array([len(rows.own) for rows in kinds])
    total = int(sizes.sum())
    for number, name in enumerate(CHOICES):
        outcome.rates.setdefault(name, []).append(total / float(times[number] @ sizes))
    outcome.rates.setdefault("OPT", []).append(total / float(times.min(axis=0) @ sizes))
    whole = Rows(*(np.concatenate(columns) for columns in zip(*kinds, strict=True)))
    whole = whole.some(np.argsort(whole.own))
    best_fixed = max(CHOICES, key=lambda name: outcome.rates[name][-1])
    # Both in turns over the same events, so that neighbours on the machine meet both.
    turns = [[bench.seconds(name, whole) for name in ("dynamic", best_fixed)] for _ in range(7)]
    ours, fixed = (float(min(times)) for times in zip(*turns[1:], strict=True))
    outcome.rates.setdefault("DYNAMIC", []).append(total / ours)
    outcome.gains.append(fixed / ours)
    _, router = bench.set("dynamic")
    assert router is not None
    chosen = [router.choose(0, rows) for rows in kinds]
    counts = np.bincount(np.concatenate(chosen), minlength=len(CHOICES))
    outcome.routed.append({name: float(counts[number] / total) for number, name in enumerate(CHOICES)})
    best = times.argmin(axis=0)
    outcome.right.append(float(sum((own == best[at]).sum() for at, own in enumerate(chosen)) / total))


def _per_event(bench: Events, name: str, rows: Rows, repeat: int = 3) -> float:
    few = rows.some(np.linspace(0, len(rows.own) - 1, min(8, len(rows.own))).astype(np.int64))
    # The first time may lay out an index.
    once = min(bench.seconds(name, few) for _ in range(2))
    # Slow ones are judged by few events, all of them by the better of two turns.
    if once > 0.05:
        return once / len(few.own)
    return float(min(bench.seconds(name, rows) for _ in range(repeat)) / len(rows.own))


def _sizes(quick: bool, say: Say) -> Outcome:
    sizes = (2_000, 4_000) if quick else (100_000, 300_000, 500_000)
    outcome, model = Outcome([float(size) for size in sizes]), _model(quick)
    for size in sizes:
        say(f"{size:,} queries")
        load = Load(queries=size, groups=100, selected=0.05)
        _measure(Events(load, model, (2, 100, 1_000), 0.6), outcome, 300 if quick else 4_000)
    return outcome


def _partners(quick: bool, say: Say) -> Outcome:
    most = (10, 100) if quick else (10, 100, 1_000)
    outcome, model = Outcome([float(k) for k in most]), _model(quick)
    for partners in most:
        say(f"{partners} partners")
        load = Load(queries=2_000 if quick else 100_000, groups=100, selected=0.05)
        _measure(Events(load, model, (1, partners), 0.6), outcome, 300 if quick else 4_000)
    return outcome


def _selected(quick: bool, say: Say) -> Outcome:
    shares = (0.1, 0.9) if quick else (0.1, 0.5, 0.9)
    outcome, model = Outcome(list(shares)), _model(quick)
    for share in shares:
        say(f"{share:.0%} of events in the crowd")
        load = Load(queries=2_000 if quick else 100_000, groups=100, selected=0.05)
        _measure(Events(load, model, (2, 100, 1_000), share), outcome, 300 if quick else 4_000)
    return outcome


def _model(quick: bool) -> Coefficients:
    return Coefficients() if quick else calibrate()


def _claims(names: tuple[str, str, str], outcome: Outcome, full: int) -> Sequence[Claim]:
    used = [name for name in CHOICES if max(shares[name] for shares in outcome.routed) > 0.01]
    ready = len(outcome.over) >= full
    return [
        Claim(
            names[0],
            "DYNAMIC is at least as fast as the best fixed strategy (within 5%)",
            "above all, by up to 50%",
            ", ".join(f"{gain:.2f} ×" for gain in outcome.gains),
            min(outcome.gains) >= 0.95 if ready else None,
        ),
        Claim(
            names[1],
            "events go to several strategies",
            "70% HOTSPOT, 25% SJ-S, 5% SJ-J-E",
            ", ".join(used),
            len(used) > 1 if ready else None,
        ),
        Claim(
            names[2],
            "and often not to the very best one",
            "30–65% right",
            ", ".join(f"{share:.0%}" for share in outcome.right),
            None,
        ),
    ]


def _figure(names: tuple[str, str, str], about: str, axis: str, run) -> Figure:  # type: ignore[no-untyped-def]
    def plot(outcome: Outcome, path: Path) -> None:
        canvas = Canvas(figsize=(11, 4.2), layout="constrained")
        rates, shares = canvas.subplots(1, 2)
        for name, values in outcome.rates.items():
            rates.plot(outcome.over, values, "o-", label=name, linewidth=2.5 if name == "DYNAMIC" else 1)
        rates.set(xlabel=axis, ylabel="events/s", yscale="log", title=f"{about}: 003, {names[0]}")
        rates.legend(frameon=False, fontsize=8)
        floor = np.zeros(len(outcome.over))
        labels = [f"{value:g}" for value in outcome.over]
        for name in CHOICES:
            part = np.array([100 * routed[name] for routed in outcome.routed])
            shares.bar(labels, part, bottom=floor, label=name)
            floor += part
        shares.plot(labels, [100 * share for share in outcome.right], "k--", label="right choice")
        shares.set(xlabel=axis, ylabel="% of events", title=f"{names[1]} and {names[2]}")
        shares.legend(frameon=False, fontsize=8)
        canvas.savefig(path, dpi=110)

    return Figure(names[0], about, run, lambda outcome: _claims(names, outcome, 3), plot)


FIGURES = (
    _figure(("figure4_13", "figure4_14", "figure4_15"), "routing over the number of queries", "queries", _sizes),
    _figure(("figure4_17", "figure4_16", "figure4_20"), "routing over joining rows", "most partners", _partners),
    _figure(
        ("figure4_19", "figure4_18", "figure4_21"),
        "routing over what is selected",
        "share of events in the crowd",
        _selected,
    ),
)
