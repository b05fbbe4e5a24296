"""Figure 11 of 000: the share of results that is kept when the stream is faster than the join.

Table 3 and §5.2 give the data: 3.5 M rows of R with keys from a domain of 3.5 M, Zipf with z_R; streams of ρ · 20,000
rows, z_S = 0.5; the mean over 10 streams. Not given, and chosen here: w = 200, so that a stream is 100 packets; and
that the value with rank r in R has rank r in S ("more R-tuples probe the buckets that contain the majority of stream
tuples", §5.2). What other readings give is in the last claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.mesh.overload import admitted
from penstock.kernels.mesh.shed.optofflineshed import optofflineshed
from penstock.kernels.mesh.shed.policy import MatchCounts
from penstock.kernels.mesh.shed.shedder import Shedder, make_policy
from penstock.models.frequency import Frequencies
from penstock.tables.keys import hash_keys
from penstock.testing import zipf_keys

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

_PAGE = 65_536
OPTIMUM = "optofflineshed"
POLICIES = ("topw", "keepw", "samplew", "cluster")


@dataclass(frozen=True)
class Setting:
    """What is run."""

    ratios: tuple[float, ...] = (1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0)
    skews: tuple[float, ...] = (0.1, 0.5, 1.0)
    table_rows: int = 3_500_000
    domain: int = 3_500_000
    served: int = 20_000
    streams: int = 10
    stream_skew: float = 0.5
    w: int = 200
    sketch_bytes: int = 14_000_000


QUICK = Setting(ratios=(1.1, 1.5, 2.0), table_rows=350_000, domain=350_000, streams=2, w=100, sketch_bytes=1_400_000)


@dataclass(frozen=True)
class Outcome:
    """Share of the results that is kept: by policy and z_R, one number for each ρ, the mean over the streams.

    `furthest` is the greatest distance from TOPW to the optimum in one stream; `others` has the shares of both by other
    readings of the set-up, at the greatest ρ.
    """

    setting: Setting
    kept: dict[tuple[str, float], list[float]]
    furthest: float
    others: dict[str, tuple[float, float]]


def run(quick: bool, say: Say) -> Outcome:
    """Every policy on every stream."""
    return measure(QUICK if quick else Setting(), say)


def measure(setting: Setting, say: Say) -> Outcome:
    kept: dict[tuple[str, float], list[float]] = {}
    furthest = 0.0
    for skew in setting.skews:
        say(f"z_R = {skew}: counting matches")
        keys_of_r = table(setting, skew)
        worth = np.bincount(keys_of_r, minlength=setting.domain)
        matches = counted(keys_of_r, budget=64 * setting.domain)
        for ratio in setting.ratios:
            say(f"z_R = {skew}, ρ = {ratio}")
            shares: dict[str, list[float]] = {}
            for seed in range(setting.streams):
                keys = stream(setting, ratio, seed)
                results, hashes = worth[keys], hashed(keys)
                c_loop = round(ratio * setting.w)
                for name in POLICIES:
                    shedder = Shedder(make_policy(name, matches), seed=seed)
                    mask = admitted(shedder, hashes, w=setting.w, c_loop=c_loop)
                    shares.setdefault(name, []).append(float(results[mask].sum() / results.sum()))
                best = optofflineshed(results, setting.w, c_loop)
                shares.setdefault(OPTIMUM, []).append(float(1 - best.loss / results.sum()))
                furthest = max(furthest, 1 - shares["topw"][-1] / shares[OPTIMUM][-1])
            for name, values in shares.items():
                kept.setdefault((name, skew), []).append(float(np.mean(values)))
    say("other readings of the set-up")
    return Outcome(setting, kept, furthest, other_readings(setting))


def other_readings(setting: Setting) -> dict[str, tuple[float, float]]:
    """TOPW at z_R = 0.5 and the greatest ρ where the paper leaves a choice, and with a sketch for exact counts."""
    keys_of_r = table(setting, 0.5)
    drawn = np.bincount(keys_of_r, minlength=setting.domain).astype(np.float64)
    smooth = np.arange(1, setting.domain + 1) ** -0.5
    smooth *= setting.table_rows / smooth.sum()
    apart = np.random.default_rng(1).permutation(setting.domain)
    sketch = counted(keys_of_r, setting.sketch_bytes)

    def share(worth: F64, matches: MatchCounts, w: int = setting.w) -> tuple[float, float]:
        keys, c_loop = stream(setting, setting.ratios[-1], seed=0), round(setting.ratios[-1] * w)
        results = worth[keys]
        mask = admitted(Shedder(make_policy("topw", matches), seed=0), hashed(keys), w=w, c_loop=c_loop)
        best = optofflineshed(results, w, c_loop)
        return float(results[mask].sum() / results.sum()), float(1 - best.loss / results.sum())

    return {
        "the hot keys of R and S unrelated": share(drawn[apart], Known(drawn[apart])),
        "match counts not drawn, but as r ** -0.5": share(smooth, Known(smooth)),
        "both": share(smooth[apart], Known(smooth[apart])),
        f"w = {setting.w // 4}": share(drawn, Known(drawn), setting.w // 4),
        f"w = {setting.w * 5}": share(drawn, Known(drawn), setting.w * 5),
        f"match counts by a sketch in {setting.sketch_bytes / setting.domain:.0f} bytes a key": share(drawn, sketch),
    }


def table(setting: Setting, skew: float) -> I64:
    """The keys of R."""
    return zipf_keys(setting.table_rows, setting.domain, skew, seed=11, scramble=None)


def stream(setting: Setting, ratio: float, seed: int) -> I64:
    """The keys of one stream."""
    return zipf_keys(round(ratio * setting.served), setting.domain, setting.stream_skew, seed=100 + seed, scramble=None)


def hashed(keys: I64) -> U64:
    """The hashes of keys, as pages and streams have them."""
    return hash_keys([pa.array(keys)])


def counted(keys: I64, budget: int) -> Frequencies:
    """Match counts as a scan finds them, page by page."""
    counts = Frequencies(budget)
    for start in range(0, len(keys), _PAGE):
        counts.add(hashed(keys[start : start + _PAGE]))
    return counts


class Known:
    """Match counts that are given: `worth[k]` for key k."""

    def __init__(self, worth: F64) -> None:
        hashes = hashed(np.arange(len(worth)))
        order = np.argsort(hashes)
        self._hashes, self._worth = hashes[order], worth[order]

    def estimate(self, hashes: U64) -> F64:
        """The count of each hash, all of which must be there."""
        return self._worth[np.searchsorted(self._hashes, hashes)]


def claims(outcome: Outcome) -> Sequence[Claim]:
    """What §5.2 says about the figure."""
    setting, kept = outcome.setting, outcome.kept
    top = {skew: kept["topw", skew] for skew in setting.skews}
    means = max(1 - ours / best for z in setting.skews for ours, best in zip(top[z], kept[OPTIMUM, z], strict=True))
    rest = max(kept[name, z][-1] / top[z][-1] for z in setting.skews for name in ("keepw", "samplew"))
    rising = all(a < b for a, b in pairwise([top[z][-1] for z in sorted(setting.skews)]))
    falling = all(a > b - 0.001 for z in setting.skews for a, b in pairwise(top[z]))
    ends = ", ".join(f"{top[z][-1]:.1%}" for z in sorted(setting.skews))
    found = [
        ("TOPW keeps most of the results at ρ = 2, z_R = 0.5", "> 80%", f"{top[0.5][-1]:.1%}", top[0.5][-1] > 0.8),
        ("TOPW and OPTOFFLINESHED are the same curve", "within 2%", f"within {means:.2%}", means <= 0.02),
        ("… in every single stream", "", f"within {outcome.furthest:.2%}", None),
        ("TOPW keeps more the greater z_R is (0.1, 0.5, 1.0; ρ = 2)", "rising", ends, rising),
        ("TOPW keeps less the greater ρ is", "falling", "falling" if falling else "not falling", falling),
        ("TOPW keeps more than any choice without match counts", "", f"they reach {rest:.0%} of it at most", rest < 1),
    ]
    found += [
        (f"ρ = 2, z_R = 0.5, {how}", "", f"TOPW {share:.1%}, optimum {best:.1%}", None)
        for how, (share, best) in outcome.others.items()
    ]
    return [Claim("figure11", *claim) for claim in found]


def plot(outcome: Outcome, path: Path) -> None:
    """One panel for each z_R; TOPW on the dots of the optimum."""
    setting = outcome.setting
    canvas = Canvas(figsize=(11, 3.8), layout="constrained")
    panels = canvas.subplots(1, len(setting.skews), sharey=True)
    for panel, skew in zip(panels, setting.skews, strict=True):
        for name, label, style in _STYLES:
            panel.plot(setting.ratios, [100 * share for share in outcome.kept[name, skew]], label=label, **style)
        panel.axhline(80, color="0.8", linewidth=0.8, zorder=0)
        panel.set(title=f"$z_R$ = {skew}", xlabel="ρ = λ / μ", ylim=(0, 103))
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("results kept (%)")
    panels[0].legend(frameon=False, loc="lower left", fontsize=9)
    canvas.suptitle(f"Results kept by a join that is ρ times too slow: 000, Figure 11 (w = {setting.w})", fontsize=11)
    canvas.savefig(path, dpi=130)


_STYLES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (OPTIMUM, "OPTOFFLINESHED", {"color": "black", "marker": "o", "linestyle": "", "fillstyle": "none"}),
    ("topw", "TOPW", {"color": "tab:blue"}),
    ("cluster", "cluster sampling", {"color": "tab:green", "linestyle": "-."}),
    ("samplew", "Sample-w (random)", {"color": "tab:orange", "linestyle": "--"}),
    ("keepw", "Keep-w", {"color": "tab:red", "linestyle": ":"}),
)

FIGURE = Figure("figure11", "results kept by TOPW when the stream is too fast", run, claims, plot)
