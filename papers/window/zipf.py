"""Figures 3 to 6 and 9 to 11 of 002: Zipf keys, results over memory, skew and domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.window.simulate import LIFE, PROB, RAND, exact, simulate
from penstock.quality.optoffline import opt_offline
from penstock.testing import zipf_keys

SHARES = (0.1, 0.25, 0.5, 1.0, 1.5)
ALIKE = "correlated, skew 1"
NAMES = {"RAND": RAND, "LIFE": LIFE, "PROB": PROB}


@dataclass
class Sweep:
    """Results of each policy by what was varied."""

    at: list[float]
    found: dict[str, list[int]] = field(default_factory=dict)

    def ratio(self, one: str, other: str) -> list[float]:
        return [a / b for a, b in zip(self.found[one], self.found[other], strict=True)]


def streams(
    length: int, domain: int, skew: float, alike: bool = False
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Two streams, and the probabilities of keys in each, which the paper's policies know.

    They are uncorrelated, or `alike`: the frequent keys of one are those of the other.
    """
    ranks = {1: 1, 2: 1 if alike else 2}
    sides = [zipf_keys(length, domain, skew, seed, scramble=ranks[seed]) for seed in ranks]
    likely = [np.full(domain, 1 / domain)] * 2
    if skew:
        many = 1_000_000
        drawn = [zipf_keys(many, domain, skew, seed + 10, scramble=ranks[seed]) for seed in ranks]
        likely = [np.bincount(side, minlength=domain) / many for side in drawn]
    return sides[0], sides[1], (likely[0], likely[1])


def measure(
    length: int, domain: int, skew: float, window: int, memory: int, names: Sequence[str], alike: bool = False
) -> dict[str, int]:
    left, right, chances = streams(length, domain, skew, alike)
    warm = 2 * window
    found = {
        name: simulate(
            left, right, window=window, memory=memory, policy=NAMES[name], chances=chances, warm_up=warm
        ).results
        for name in names
    }
    found["OPT"] = opt_offline(left, right, window=window, memory=memory, warm_up=warm).results
    found["EXACT"] = exact(left, right, window, warm)
    return found


def over_memory(length: int, domain: int, skew: float, window: int, say: Say) -> Sweep:
    sweep = Sweep(list(SHARES))
    for share in SHARES:
        say(f"domain {domain}, skew {skew}, window {window}, memory {share} w")
        for name, count in measure(length, domain, skew, window, 2 * round(share * window / 2), list(NAMES)).items():
            sweep.found.setdefault(name, []).append(count)
    return sweep


def _length(window: int, quick: bool) -> int:
    """Rows of each stream: the paper's, the warm-up of two windows among them."""
    return 2 * window + 600 if quick else 5_600


def run_memory(quick: bool, say: Say) -> dict[str, Sweep]:
    windows = (100,) if quick else (400, 800)
    return {f"w = {w}": over_memory(_length(w, quick), 50, 1.0, w, say) for w in windows}


def claims_memory(sweeps: dict[str, Sweep]) -> list[Claim]:
    found = []
    for name, sweep in sweeps.items():
        half = sweep.at.index(0.5)
        close, rand, life = (sweep.ratio("PROB", other) for other in ("OPT", "RAND", "LIFE"))
        found += [
            Claim("figure3", f"{name}: PROB is close to OPT", "“very close”",
                  f"{min(close):.0%} to {max(close):.0%} of OPT", min(close) > 0.8),
            Claim("figure3", f"{name}: PROB is far above RAND at M = w / 2", "“by far outperforms”",
                  f"{rand[half]:.2f} times", rand[half] > 1.3),
            Claim("figure3", f"{name}: PROB is far above LIFE at M = w / 2", "“by far outperforms”",
                  f"{life[half]:.2f} times; LIFE is t · p of §3.3.2, all else as in §4.1", life[half] > 1.15),
            Claim("figure3", f"{name}: no policy is above OPT, nor OPT above EXACT", "by definition", "",
                  all(max(sweep.ratio(n, "OPT")) <= 1 for n in NAMES) and max(sweep.ratio("OPT", "EXACT")) <= 1),
        ]  # fmt: skip
    return found


def run_uniform(quick: bool, say: Say) -> dict[str, Sweep]:
    window = 100 if quick else 400
    return {"uniform": over_memory(_length(window, quick), 50, 0.0, window, say)}


def claims_uniform(sweeps: dict[str, Sweep]) -> list[Claim]:
    sweep = sweeps["uniform"]
    spread = max(abs(r - 1) for name in ("RAND", "LIFE") for r in sweep.ratio(name, "PROB"))
    return [
        Claim("figure5", "uniform keys: all online policies alike", "“perform equally poorly”",
              f"within {spread:.0%} of PROB", spread < 0.15),
    ]  # fmt: skip


def run_skew(quick: bool, say: Say) -> dict[str, Sweep]:
    window = 100 if quick else 400
    skews = [0.0, 0.5, 1.0, 1.5, 2.0]
    sweep = Sweep(skews)
    for skew in skews:
        say(f"skew {skew}")
        for name, count in measure(_length(window, quick), 50, skew, window, window, ["RAND", "PROB"]).items():
            sweep.found.setdefault(name, []).append(count)
    say("skew 1.0, correlated")
    alike = measure(_length(window, quick), 50, 1.0, window, window, ["RAND", "PROB"], alike=True)
    return {"M = w": sweep, ALIKE: Sweep([1.0], {name: [count] for name, count in alike.items()})}


def claims_skew(sweeps: dict[str, Sweep]) -> list[Claim]:
    prob, rand = (sweeps["M = w"].ratio(name, "OPT") for name in ("PROB", "RAND"))
    alike = sweeps[ALIKE].ratio("PROB", "OPT")[0]
    return [
        Claim("figure6", "PROB above 96% of OPT for moderate to high skew, M = w", "over 96%",
              " / ".join(f"{part:.1%}" for part in prob[2:]) + " at skews 1, 1.5, 2", min(prob[2:]) > 0.96),
        Claim("figure6", "the same where the frequent keys of both streams are the same", "“almost identical”",
              f"{alike:.1%} at skew 1; uncorrelated, it hangs on which frequent keys happen to meet", alike > 0.96),
        Claim("figure6", "RAND falls away from PROB as skew grows", "“gap increases rapidly”",
              f"{rand[0] / prob[0]:.0%} of PROB at skew 0, {rand[-1] / prob[-1]:.0%} at 2",
              rand[0] / prob[0] > 0.9 and rand[-1] / prob[-1] < 0.75),
    ]  # fmt: skip


def run_domain(quick: bool, say: Say) -> dict[str, Sweep]:
    window = 100 if quick else 400
    return {f"domain {d}": over_memory(_length(window, quick), d, 1.0, window, say) for d in (10, 50, 200)}


def claims_domain(sweeps: dict[str, Sweep]) -> list[Claim]:
    at = sweeps["domain 200"].at.index(1.0)
    gaps = [sweep.ratio("OPT", "EXACT")[at] for sweep in sweeps.values()]
    behind = [sweep.ratio("PROB", "OPT")[at] for sweep in sweeps.values()]
    return [
        Claim("figure9", "OPT comes nearer to EXACT as the domain grows, and meets it at 200 and M = w", "“meet”",
              " / ".join(f"{gap:.1%}" for gap in gaps), gaps == sorted(gaps) and gaps[-1] > 0.99),
        Claim("figure9", "PROB falls behind OPT as the domain grows", "“more and more separated”",
              " / ".join(f"{part:.1%}" for part in behind), behind[-1] < behind[0]),
    ]  # fmt: skip


def plot(sweeps: dict[str, Sweep], path: Path) -> None:
    canvas = Canvas(figsize=(4.6 * len(sweeps), 3.8), layout="constrained")
    for panel, (name, sweep) in zip(canvas.subplots(1, len(sweeps), squeeze=False)[0], sweeps.items(), strict=True):
        for policy, counts in sweep.found.items():
            panel.plot(sweep.at, counts, "--" if policy in ("OPT", "EXACT") else "o-", label=policy)
        skewed = sweep.at[0] == 0.0
        panel.set(title=name, xlabel="Zipf exponent" if skewed else "memory (windows)", ylim=(0, None))
        panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=8)
    canvas.axes[0].set_ylabel("results")
    canvas.savefig(path, dpi=110)


def plot_skew(sweeps: dict[str, Sweep], path: Path) -> None:
    plot({name: sweep for name, sweep in sweeps.items() if name != ALIKE}, path)


FIGURE3 = Figure("figure3", "002, Figures 3 and 4: results over memory, Zipf(1)", run_memory, claims_memory, plot)
FIGURE5 = Figure("figure5", "002, Figure 5: results over memory, uniform keys", run_uniform, claims_uniform, plot)
FIGURE6 = Figure("figure6", "002, Figure 6: results over skew", run_skew, claims_skew, plot_skew)
FIGURE9 = Figure("figure9", "002, Figures 9 to 11: results over memory and domain", run_domain, claims_domain, plot)
