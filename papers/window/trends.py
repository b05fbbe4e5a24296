"""Figures 3.9 to 3.13, 3.15 and 3.20 of 003: streams with a trend, and HEEB that knows it.

TOWER, ROOF and FLOOR follow a line with slope 1 and bounded noise, R one step behind S; WALK is two random walks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.window.simulate import HEEB, RAND, Table, simulate
from penstock.models.stream_models import LinearTrend, Noise, Now, RandomWalk, StreamModel, alpha_for
from penstock.quality.flowexpect import flow_expect
from penstock.quality.optoffline import opt_offline

BOUNDS = (10, 15)
#: Values are moved up so that keys are never negative.
BASE = 1_000


@dataclass(frozen=True)
class Setting:
    """How R and S are made: noise of each, or steps of a walk; and how far R is behind S."""

    name: str
    noises: tuple[Noise, Noise] | None
    lag: int = 1

    @property
    def window(self) -> int:
        """The bound on the noise, as the paper has it; a walk has none."""
        return BOUNDS[1] if self.noises else 100_000

    def models(self) -> tuple[StreamModel, StreamModel]:
        if self.noises is None:
            return RandomWalk(0.0, 1.0), RandomWalk(0.0, 1.0)
        return LinearTrend(1.0, BASE - self.lag, self.noises[0]), LinearTrend(1.0, float(BASE), self.noises[1])

    def make(self, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        if self.noises is None:
            walks = [BASE * 10 + np.cumsum(np.rint(rng.normal(0, 1, length)).astype(np.int64)) for _ in (0, 1)]
            return walks[0], walks[1]
        made = []
        for noise, start in zip(self.noises, (BASE - self.lag, BASE), strict=True):
            numbers = np.arange(-noise.bound, noise.bound + 1)
            made.append(start + np.arange(length) + rng.choice(numbers, length, p=noise.pmf))
        return made[0], made[1]


SETTINGS = (
    Setting("TOWER", (Noise.normal(1.0, 10), Noise.normal(2.0, 15))),
    Setting("ROOF", (Noise.normal(3.3, 10), Noise.normal(5.0, 15))),
    Setting("FLOOR", (Noise.uniform(10), Noise.uniform(15))),
    Setting("WALK", None),
)


def tables(setting: Setting, left: np.ndarray, right: np.ndarray, alpha: float) -> tuple[Table, Table]:
    """What HEEB scores rows by, from the model of the other stream: its curve, moved along with it."""
    made = []
    for side, (model, other) in enumerate(zip(setting.models()[::-1], (right, left), strict=True)):
        reach = 400
        offsets = np.arange(-reach, reach + 1, dtype=np.float64)
        if isinstance(model, LinearTrend):
            now = Now(1, 0.0)
            centre = model.start + model.slope * np.arange(len(left))
            heights = model.benefit(offsets + model.start, now, alpha)
        else:
            centre = other.astype(np.float64)
            heights = model.benefit(offsets, Now(1, 0.0), alpha)
        made.append(Table(heights, -reach, centre))
        assert side in (0, 1)
    return made[0], made[1]


def counted(side: np.ndarray) -> np.ndarray:
    """Key frequencies as a policy that only counts would know them at the end."""
    return np.bincount(side, minlength=int(side.max()) + 50) / len(side)


def online(setting: Setting, left: np.ndarray, right: np.ndarray, memory: int, warm: int, seed: int) -> dict[str, int]:
    top = int(max(left.max(), right.max())) + 50
    chances = tuple(np.bincount(side, minlength=top) / len(side) for side in (left, right))
    # Mean life of a row of k places when two come at each step.
    alpha = alpha_for(max(memory / 2, 2))

    def play(policy: int) -> int:
        return simulate(
            left, right, window=setting.window, memory=memory, policy=policy, chances=chances,  # type: ignore[arg-type]
            tables=tables(setting, left, right, alpha), fixed=False, warm_up=warm, seed=seed,
        ).results  # fmt: skip

    found = {"RAND": play(RAND), "PROB": past_only(left, right, setting.window, memory, warm)}
    if setting.noises is not None:
        found["LIFE"] = past_only(left, right, setting.window, memory, warm, life=True)
    return found | {"HEEB": play(HEEB)}


def past_only(left: np.ndarray, right: np.ndarray, window: int, memory: int, warm: int, life: bool = False) -> int:
    """PROB and LIFE with frequencies of the past, which is all they can know of a stream that moves on."""
    counts: list[dict[int, int]] = [{}, {}]
    held: list[tuple[int, int, int]] = []
    results = 0
    for t, pair in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        found = int(pair[0] == pair[1]) + sum(key == pair[1 - side] for side, key, came in held if t - came < window)
        results += found if t >= warm else 0
        for side, key in enumerate(pair):
            counts[side][key] = counts[side].get(key, 0) + 1
            held.append((side, key, t))

        def score(row: tuple[int, int, int], t: int = t) -> tuple[float, int]:
            rest = row[2] + window - 1 - t
            worth = counts[1 - row[0]].get(row[1], 0) * (rest if life else 1)
            return (-1.0 if rest < 0 else float(worth), row[2])

        if len(held) > memory:
            held.sort(key=score)
            del held[: len(held) - memory]
    return results


def expecting(setting: Setting, left: np.ndarray, right: np.ndarray, memory: int, ahead: int, warm: int) -> int:
    """FlowExpect with the same models."""
    models, held, results = setting.models(), [], 0
    spread = np.arange(-40.0, 41.0)
    for t in range(len(left)):
        pair = (int(left[t]), int(right[t]))
        found = int(pair[0] == pair[1]) + sum(key == pair[1 - side] for side, key in held)
        results += found if t >= warm else 0
        held = [*held, (0, pair[0]), (1, pair[1])]
        if len(held) <= memory:
            continue
        nows = [Now(t + 1, float(value)) for value in pair]
        chances = np.stack(
            [models[1 - side].chances(np.array([float(key)]), nows[1 - side], ahead)[0] for side, key in held]
        )
        arrivals = np.zeros((2, ahead, ahead))
        for side in (0, 1):
            values = spread + pair[side]
            coming = models[side].chances(values, nows[side], ahead)
            partner = models[1 - side].chances(values, nows[1 - side], ahead)
            arrivals[side] = coming.T @ partner
        keep = flow_expect(chances, arrivals, memory).keep
        held = [held[place] for place in keep]
    return results


@dataclass
class Bars:
    """Mean results of each algorithm in each setting."""

    found: dict[str, dict[str, float]] = field(default_factory=dict)


def run_algorithms(quick: bool, say: Say) -> Bars:
    length, runs, memory, short = (1_500, 2, 10, 150) if quick else (5_000, 10, 10, 1_000)
    bars = Bars()
    for setting in SETTINGS:
        sums: dict[str, list[float]] = {}
        for seed in range(runs):
            say(f"{setting.name}, run {seed + 1} of {runs}")
            left, right = setting.make(length, seed)
            warm = 4 * memory
            found: dict[str, float] = dict(online(setting, left, right, memory, warm, seed))
            found["OPT"] = opt_offline(
                left, right, window=min(setting.window, length), memory=memory, variable=True, warm_up=warm
            ).results
            if seed == 0:
                # Costly: over a shorter stream, and scaled by what HEEB has there.
                few = left[:short], right[:short]
                base = online(setting, *few, memory, warm, seed)["HEEB"]
                found["FlowExpect"] = expecting(setting, *few, memory, 5, warm) / max(base, 1)
            for name, count in found.items():
                sums.setdefault(name, []).append(count)
        bars.found[setting.name] = {name: float(np.mean(counts)) for name, counts in sums.items()}
        bars.found[setting.name]["FlowExpect"] *= bars.found[setting.name]["HEEB"]
    return bars


def claims_algorithms(bars: Bars) -> list[Claim]:
    found = []
    for name, means in bars.found.items():
        simple = {other: means[other] for other in ("RAND", "PROB", "LIFE") if other in means}
        best = max(simple, key=lambda other: simple[other])
        found.append(
            Claim("figure3.9", f"{name}: HEEB above RAND, PROB and LIFE; OPT-offline on top", "“consistently”",
                  f"HEEB {means['HEEB']:.0f}, {best} {simple[best]:.0f}, OPT {means['OPT']:.0f}",
                  means["HEEB"] > simple[best] and means["OPT"] >= max(means.values()) - 1e-9)
        )  # fmt: skip
    above = [name for name, means in bars.found.items() if means["HEEB"] >= means["FlowExpect"]]
    found.append(
        Claim("figure3.9", "HEEB is above FlowExpect in most settings", "“in most cases”",
              ", ".join(above) or "nowhere", len(above) >= 2)
    )  # fmt: skip
    return found


def plot_algorithms(bars: Bars, path: Path) -> None:
    canvas = Canvas(figsize=(9, 3.8), layout="constrained")
    panel = canvas.subplots()
    names = ["OPT", "FlowExpect", "HEEB", "RAND", "PROB", "LIFE"]
    for place, name in enumerate(names):
        heights = [means.get(name, 0.0) for means in bars.found.values()]
        panel.bar(np.arange(len(heights)) + 0.13 * place, heights, 0.13, label=name)
    panel.set_xticks(np.arange(len(bars.found)) + 0.3, list(bars.found))
    panel.set(ylabel="results")
    panel.legend(frameon=False, fontsize=8)
    canvas.savefig(path, dpi=110)


@dataclass
class Lines:
    """Numbers over something, one line for each name."""

    at: list[float]
    found: dict[str, list[float]] = field(default_factory=dict)


def run_cache_size(quick: bool, say: Say) -> dict[str, Lines]:
    sizes, length = ([4, 10, 30], 1_000) if quick else ([2, 4, 6, 10, 16, 24, 36, 50], 5_000)
    out = {}
    for setting in SETTINGS:
        lines = Lines([float(size) for size in sizes])
        left, right = setting.make(length, 3)
        for size in sizes:
            say(f"{setting.name}, memory {size}")
            found = online(setting, left, right, size, 200, 3)
            found["OPT"] = opt_offline(
                left, right, window=min(setting.window, length), memory=size, variable=True, warm_up=200
            ).results
            for name, count in found.items():
                lines.found.setdefault(name, []).append(count)
        out[setting.name] = lines
    return out


def claims_cache_size(found: dict[str, Lines]) -> list[Claim]:
    out = []
    for name in ("TOWER", "ROOF"):
        lines = found[name].found
        last = {policy: counts[-1] / lines["OPT"][-1] for policy, counts in lines.items()}
        ahead = sum(h >= max(lines[o][i] for o in ("RAND", "PROB", "LIFE")) for i, h in enumerate(lines["HEEB"]))
        out.append(
            Claim("figure3.10", f"{name}: HEEB comes to OPT-offline sooner than the others", "“much faster”",
                  f"ahead at {ahead} of {len(lines['HEEB'])} sizes; {last['HEEB']:.0%} of OPT at the largest",
                  ahead >= len(lines["HEEB"]) - 1)
        )  # fmt: skip
    return out


def plot_lines(found: dict[str, Lines], path: Path, across: str) -> None:
    canvas = Canvas(figsize=(4.2 * len(found), 3.6), layout="constrained")
    for panel, (name, lines) in zip(canvas.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        for policy, counts in lines.found.items():
            panel.plot(lines.at, counts, "--" if policy == "OPT" else "o-", label=policy)
        panel.set(title=name, xlabel=across, ylim=(0, None))
        panel.legend(frameon=False, fontsize=8)
    canvas.savefig(path, dpi=110)


def run_allocation(quick: bool, say: Say) -> Lines:
    """The share of memory of R, as R falls behind and as the noise of S grows."""
    length = 800 if quick else 5_000
    noise = Noise.normal(1.0, 15)
    lines = Lines([0.0, 1.0, 2.0])
    for name, settings in {
        "R 0, 2, 4 steps behind": [Setting("", (noise, noise), lag) for lag in (0, 2, 4)],
        "deviation of S 1, 2, 4": [Setting("", (noise, Noise.normal(d, 15)), 0) for d in (1.0, 2.0, 4.0)],
    }.items():
        say(name)
        for setting in settings:
            left, right = setting.make(length, 5)
            got = simulate(
                left, right, window=setting.window, memory=10, policy=HEEB, fixed=False,
                tables=tables(setting, left, right, alpha_for(5.0)),
            )  # fmt: skip
            lines.found.setdefault(name, []).append(float(got.left_share[100:].mean()))
    return lines


def claims_allocation(lines: Lines) -> list[Claim]:
    behind, noisy = lines.found.values()
    return [
        Claim("figure3.15", "less memory for the stream that is behind", "“allocates less”",
              " → ".join(f"{share:.0%}" for share in behind), behind[0] > behind[1] > behind[2]),
        Claim("figure3.15", "more memory for R as the variance of S grows", "“low-variance stream”",
              " → ".join(f"{share:.0%}" for share in noisy), noisy[0] < noisy[1] < noisy[2]),
    ]  # fmt: skip


def run_look_ahead(quick: bool, say: Say) -> Lines:
    steps, length, runs = ([1, 3, 5], 160, 1) if quick else ([1, 2, 3, 5, 8, 12], 500, 50)
    # §3.5.3, which the chapter names here, has both streams on one line; those of Figure 3.9 have R a step behind.
    setting = Setting("FLOOR", SETTINGS[2].noises, lag=0)
    lines = Lines([float(step) for step in steps])
    for step in steps:
        say(f"look-ahead {step}")
        found = [expecting(setting, *setting.make(length, seed), 20, step, 80) for seed in range(1, runs + 1)]
        lines.found.setdefault("FlowExpect", []).append(float(np.mean(found)))
    return lines


def claims_look_ahead(lines: Lines) -> list[Claim]:
    found = dict(zip(lines.at, lines.found["FlowExpect"], strict=True))
    last = found[max(found)]
    return [
        Claim("figure3.20", "FlowExpect gains by looking 5 steps ahead, and no more by more", "“indistinguishable”",
              ", ".join(f"{step:.0f}: {count:.0f}" for step, count in found.items()),
              found[5.0] >= found[1.0] and last <= 1.05 * found[5.0]),
    ]  # fmt: skip


def _lines_plot(across: str) -> Callable[[Lines, Path], None]:
    return lambda lines, path: plot_lines({"": lines}, path, across)


FIGURE9 = Figure(
    "figure3.9", "003, Figure 3.9: algorithms beside each other, memory 10", run_algorithms, claims_algorithms,
    plot_algorithms,
)  # fmt: skip
FIGURE10 = Figure(
    "figure3.10", "003, Figures 3.10 to 3.13: results over memory", run_cache_size, claims_cache_size,
    lambda found, path: plot_lines(found, path, "memory (rows)"),
)  # fmt: skip
FIGURE15 = Figure(
    "figure3.15", "003, Figure 3.15: how HEEB shares memory", run_allocation, claims_allocation,
    _lines_plot("lag or noise"),
)  # fmt: skip
FIGURE20 = Figure(
    "figure3.20", "003, Figure 3.20: FlowExpect over look-ahead", run_look_ahead, claims_look_ahead,
    _lines_plot("look-ahead (steps)"),
)  # fmt: skip
