"""Figures 7, 8 and 9: response times over four distributions of windows, in a hash store and in nested loops.

The paper does not say how busy its machine was, and everything here depends on it. So Figures 7 and 9 (a) are run at
three loads, and what is said of them is judged at all three; Figures 8 and 9 (b), (c) show the middle one.
"""

from __future__ import annotations

from pathlib import Path

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.shared.drawing import bars
from papers.shared.simulate import SCHEDULERS, Load, Outcome, simulate

DISTRIBUTIONS: dict[str, tuple[float, ...]] = {
    "uniform": (1, 100, 200, 300, 400, 500, 600),
    "mostly small": (1, 5, 15, 30, 60, 300, 600),
    "mostly large": (1, 60, 300, 420, 510, 570, 600),
    "small-large": (1, 5, 15, 300, 510, 570, 600),
}
LOADS = (0.7, 0.8, 0.9)
MIDDLE = 0.8
#: Outcomes by load, distribution and scheduler.
Found = dict[float, dict[str, dict[str, Outcome]]]


def run_all(quick: bool, say: Say, *, loads: tuple[float, ...], rate: float, hashed: bool) -> Found:
    """Every distribution and scheduler at every load."""
    found: Found = {}
    for busy in loads:
        for name, windows in DISTRIBUTIONS.items():
            say(f"{name}, busy {busy:.0%} of the time")
            load = Load(windows, rate=rate, busy=busy, hashed=hashed, arrivals=20_000 if quick else 100_000)
            each = {who: simulate(load, scheduler) for who, scheduler in SCHEDULERS.items()}
            found.setdefault(busy, {})[name] = each
    return found


def _run_hash(quick: bool, say: Say) -> Found:
    return run_all(quick, say, loads=LOADS, rate=100, hashed=True)


def _run_middle(quick: bool, say: Say) -> Found:
    return run_all(quick, say, loads=(MIDDLE,), rate=100, hashed=True)


def _run_loops(quick: bool, say: Say) -> Found:
    return run_all(quick, say, loads=(MIDDLE,) if quick else LOADS, rate=15, hashed=False)


def _all(found: Found, name: str) -> str:
    """The means of the three at each load, in milliseconds."""
    said = [
        f"{busy:.0%}: " + ", ".join(f"{who} {each[name][who].overall * 1e3:.1f}" for who in SCHEDULERS)
        for busy, each in found.items()
    ]
    return "; ".join(said) + " ms"


def averages(figure: str, found: Found) -> list[Claim]:
    """Greedy is best on average, LWO second but where most windows are small."""
    claims = []
    for name in DISTRIBUTIONS:
        best = all(min(each[name], key=lambda who: each[name][who].overall) == "Greedy" for each in found.values())
        claims.append(Claim(figure, f"{name}: Greedy is the best on average", "best", _all(found, name), best))
    for name in DISTRIBUTIONS:
        first = "SWF" if name == "mostly small" else "LWO"
        other = "LWO" if first == "SWF" else "SWF"
        at = [busy for busy, each in found.items() if each[name][first].overall < each[name][other].overall]
        where = ", ".join(f"{busy:.0%}" for busy in at) or "none"
        claims.append(Claim(figure, f"{name}: {first} is second", "second", f"at loads {where}", len(at) == len(found)))
    means = {
        who: sum(each["mostly large"][who].by_result for each in found.values()) / len(found) for who in SCHEDULERS
    }
    told = ", ".join(f"{who} {1e3 * value:.1f}" for who, value in means.items())
    claims.append(
        Claim(figure, "mostly large, each result counted once instead of each window", "", f"{told} ms", None)
    )
    return claims


def _claims8(found: Found) -> list[Claim]:
    each = found[MIDDLE]
    flat = {name: by["LWO"].mean.max() / by["LWO"].mean.min() for name, by in each.items()}
    small = {name: max(by[who].mean[0] / by["LWO"].mean[0] for who in ("SWF", "Greedy")) for name, by in each.items()}
    large = each["mostly large"]
    poor = large["SWF"].mean[-1] / large["LWO"].mean[-1]
    behind = sum(large["LWO"].mean < large["Greedy"].mean)
    half = each["mostly small"]["SWF"].mean[-1] / each["uniform"]["SWF"].mean[-1]
    mixed = each["small-large"]
    alike = [
        mixed["Greedy"].mean[i] / mixed[who].mean[i] for i, who in ((0, "SWF"), (2, "SWF"), (3, "LWO"), (6, "LWO"))
    ]
    return [
        Claim("figure8", "LWO is about the same for all windows", "stable",
              f"largest to smallest at most {max(flat.values()):.2f}", max(flat.values()) < 1.5),
        Claim("figure8", "SWF and Greedy answer the smallest window far sooner than LWO", "faster",
              f"at most {max(small.values()):.2f} of its time", max(small.values()) < 0.25),
        Claim("figure8", "mostly large: SWF is very poor at the largest window", "extremely poor",
              f"{poor:.1f} times LWO", poor > 3),
        Claim("figure8", "mostly large: LWO is ahead of Greedy for all but the two smallest", "5 of 7",
              f"{behind} of 7", behind == 5),
        Claim("figure8", "SWF's largest window takes half as long for mostly small as for uniform", "half",
              f"{half:.2f}", 0.35 < half < 0.65),
        Claim("figure8", "small-large: Greedy is like SWF up to 15 s, like LWO from 300 s on", "similar",
              ", ".join(f"{one:.2f}" for one in alike), all(0.8 < one < 1.25 for one in alike)),
    ]  # fmt: skip


def _claims9(found: Found) -> list[Claim]:
    by = found[MIDDLE]["uniform"]
    flat = by["LWO"].mean.max() / by["LWO"].mean.min()
    return [
        *averages("figure9", found),
        Claim("figure9", "uniform: LWO is about the same for all windows", "resembles hash", f"{flat:.2f}", flat < 1.5),
        Claim("figure9", "uniform: Greedy's longest for the largest window is below SWF's", "always better",
              f"{by['Greedy'].worst[-1]:.2f} s against {by['SWF'].worst[-1]:.2f} s",
              bool(by["Greedy"].worst[-1] < by["SWF"].worst[-1])),
    ]  # fmt: skip


def _plot7(found: Found, path: Path) -> None:
    panels = {
        f"busy {busy:.0%} of the time": {
            who: [each[name][who].overall * 1e3 for name in DISTRIBUTIONS] for who in SCHEDULERS
        }
        for busy, each in found.items()
    }
    bars(path, panels, list(DISTRIBUTIONS), "ms", log=False)


def plot_windows(found: Found, path: Path, names: tuple[str, ...]) -> None:
    """The mean for each window, and the longest."""
    each = found[MIDDLE]
    panels = {}
    for what, title in (("mean", "average"), ("worst", "longest")):
        for name in names:
            lines = {who: (getattr(each[name][who], what) * 1e3).tolist() for who in SCHEDULERS}
            panels[f"{name}, {title}"] = lines
    bars(path, panels, [f"w{i}" for i in range(1, 8)], "ms")


FIGURE7 = Figure(
    "figure7", "average response over all windows, hash store", _run_hash, lambda found: averages("figure7", found),
    _plot7,
)  # fmt: skip
FIGURE8 = Figure(
    "figure8", "average and longest response for each window, hash store", _run_middle, _claims8,
    lambda found, path: plot_windows(found, path, tuple(DISTRIBUTIONS)),
)  # fmt: skip
FIGURE9 = Figure(
    "figure9", "response in nested loops", _run_loops, _claims9,
    lambda found, path: plot_windows(found, path, ("uniform",)),
)  # fmt: skip
