"""Figure 11 of 000: the share of results that is kept when the stream is faster than the join.

Table 3 and §5.2 give the data: 3.5 M rows of R with keys from a domain of 3.5 M, Zipf with z_R; streams of ρ · 20,000
rows, z_S = 0.5; the mean over 10 streams. Not given, and chosen here: w = 100, so that a stream is 200 packets; and
that the value with rank r in R has rank r in S ("more R-tuples probe the buckets that contain the majority of stream
tuples", §5.2).

Nor is it said how R was made, which matters: there are two readings, and the claims are checked in both. *Even*: the
match count of rank r is proportional to r ** -z_R, so that a low skew means "equal contributions from all stream
tuples". *Drawn*: every row of R is drawn by itself, so that many keys have no partner at all, and shedding their rows
costs nothing. What still other readings give is in the last claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
READINGS = {"even": "match counts even", "drawn": "match counts drawn"}


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
    w: int = 100
    sketch_bytes: int = 14_000_000


QUICK = Setting(ratios=(1.1, 1.5, 2.0), table_rows=350_000, domain=350_000, streams=2, w=50, sketch_bytes=1_400_000)


@dataclass(frozen=True)
class Outcome:
    """Share of the results that is kept: by reading, policy and z_R, one for each ρ, the mean over the streams.

    `furthest` is the greatest distance from TOPW to the optimum in one stream; `others` has the shares of both by other
    readings of the set-up, at the greatest ρ.
    """

    setting: Setting
    kept: dict[tuple[str, str, float], list[float]]
    furthest: dict[str, float]
    others: dict[str, tuple[float, float]]


def run(quick: bool, say: Say) -> Outcome:
    """Every policy on every stream."""
    return measure(QUICK if quick else Setting(), say)


def measure(setting: Setting, say: Say) -> Outcome:
    kept: dict[tuple[str, str, float], list[float]] = {}
    furthest = dict.fromkeys(READINGS, 0.0)
    for reading in READINGS:
        for skew in setting.skews:
            say(f"{reading}, z_R = {skew}: counting matches")
            worth, matches = relation(setting, reading, skew)
            for ratio in setting.ratios:
                say(f"{reading}, z_R = {skew}, ρ = {ratio}")
                shares: dict[str, list[float]] = {}
                for seed in range(setting.streams):
                    for name, share in one_stream(setting, worth, matches, ratio, seed).items():
                        shares.setdefault(name, []).append(share)
                far = max(1 - ours / best for ours, best in zip(shares["topw"], shares[OPTIMUM], strict=True))
                furthest[reading] = max(furthest[reading], far)
                for name, values in shares.items():
                    kept.setdefault((reading, name, skew), []).append(float(np.mean(values)))
    say("other readings of the set-up")
    return Outcome(setting, kept, furthest, other_readings(setting))


def one_stream(
    setting: Setting, worth: F64, matches: MatchCounts, ratio: float, seed: int, policies: Sequence[str] = POLICIES
) -> dict[str, float]:
    """The share of the results that each policy keeps of one stream, and the optimum."""
    keys, c_loop = stream(setting, ratio, seed), round(ratio * setting.w)
    results, hashes = worth[keys], hashed(keys)
    shares = {}
    for name in policies:
        mask = admitted(Shedder(make_policy(name, matches), seed=seed), hashes, w=setting.w, c_loop=c_loop)
        shares[name] = float(results[mask].sum() / results.sum())
    shares[OPTIMUM] = float(1 - optofflineshed(results, setting.w, c_loop).loss / results.sum())
    return shares


def other_readings(setting: Setting) -> dict[str, tuple[float, float]]:
    """TOPW at z_R = 0.5 and the greatest ρ where the paper leaves a choice, and with a sketch for exact counts."""
    even, drawn = (relation(setting, reading, 0.5)[0] for reading in READINGS)
    apart = np.random.default_rng(1).permutation(setting.domain)
    sketch = counted(table(setting, 0.5), setting.sketch_bytes)

    def share(worth: F64, matches: MatchCounts, w: int = setting.w) -> tuple[float, float]:
        found = one_stream(replace(setting, w=w), worth, matches, setting.ratios[-1], 0, ("topw",))
        return found["topw"], found[OPTIMUM]

    return {
        "drawn, the hot keys of R and S unrelated": share(drawn[apart], Known(drawn[apart])),
        "even, the hot keys of R and S unrelated": share(even[apart], Known(even[apart])),
        f"even, w = {setting.w // 4}": share(even, Known(even), setting.w // 4),
        f"even, w = {setting.w * 5}": share(even, Known(even), setting.w * 5),
        f"drawn, counts by a sketch of {setting.sketch_bytes / setting.domain:.0f} bytes a key": share(drawn, sketch),
    }


def relation(setting: Setting, reading: str, skew: float) -> tuple[F64, MatchCounts]:
    """The match count of each key, and something that knows it."""
    if reading == "even":
        counts = np.arange(1, setting.domain + 1, dtype=np.float64) ** np.float64(-skew)
        counts *= setting.table_rows / counts.sum()
        return counts, Known(counts)
    keys = table(setting, skew)
    return np.bincount(keys, minlength=setting.domain).astype(np.float64), counted(keys, budget=64 * setting.domain)


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
    """What §5.2 says about the figure, in both readings; then what it does not say."""
    found = [claim for reading in READINGS for claim in _claims_of(outcome, reading)]
    found += [
        (f"ρ = 2, z_R = 0.5, {how}", "", f"TOPW {share:.1%}, optimum {best:.1%}", None)
        for how, (share, best) in outcome.others.items()
    ]
    return [Claim("figure11", *claim) for claim in found]


def _claims_of(outcome: Outcome, reading: str) -> list[tuple[str, str, str, bool | None]]:
    skews, kept = sorted(outcome.setting.skews), outcome.kept
    top = {z: kept[reading, "topw", z] for z in skews}
    best = {z: kept[reading, OPTIMUM, z] for z in skews}
    far = max(1 - a / b for z in skews for a, b in zip(top[z], best[z], strict=True))
    rest = max(kept[reading, name, z][-1] / top[z][-1] for z in skews for name in ("keepw", "samplew"))
    rising = all(a < b for a, b in pairwise([top[z][-1] for z in skews]))
    # Where next to nothing is lost, the mean of a few streams may rise by a hair.
    falling = all(a > b - 0.001 for z in skews for a, b in pairwise(top[z]))
    ends = ", ".join(f"{top[z][-1]:.1%}" for z in skews)
    found: list[tuple[str, str, str, bool | None]] = [
        ("TOPW keeps most of the results at ρ = 2, z_R = 0.5", "> 80%", f"{top[0.5][-1]:.1%}", top[0.5][-1] > 0.8),
        ("TOPW and OPTOFFLINESHED are the same curve", "within 2%", f"within {far:.2%}", far <= 0.02),
        ("… in every single stream", "", f"within {outcome.furthest[reading]:.2%}", None),
        ("TOPW keeps more the greater z_R is (0.1, 0.5, 1.0; ρ = 2)", "rising", ends, rising),
        ("TOPW keeps less the greater ρ is", "falling", "falling" if falling else "not falling", falling),
        ("TOPW keeps more than Keep-w and Sample-w", "", f"they reach {rest:.0%} of it at most (ρ = 2)", rest < 1),
    ]
    return [(f"{reading}: {text}", paper, ours, holds) for text, paper, ours, holds in found]


def plot(outcome: Outcome, path: Path) -> None:
    """One row for each reading, one panel for each z_R; TOPW on the dots of the optimum."""
    setting = outcome.setting
    canvas = Canvas(figsize=(11, 6.8), layout="constrained")
    panels = canvas.subplots(len(READINGS), len(setting.skews), sharex=True, sharey=True)
    for row, (reading, about) in zip(panels, READINGS.items(), strict=True):
        for panel, skew in zip(row, setting.skews, strict=True):
            for name, label, style in _STYLES:
                shares = [100 * share for share in outcome.kept[reading, name, skew]]
                panel.plot(setting.ratios, shares, label=label, **style)
            panel.axhline(80, color="0.8", linewidth=0.8, zorder=0)
            panel.set(title=f"$z_R$ = {skew}, {about}", ylim=(0, 103))
            panel.title.set_fontsize(10)
            panel.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("results kept (%)")
    for panel in panels[-1]:
        panel.set_xlabel("ρ = λ / μ")
    panels[0][0].legend(frameon=False, loc="lower left", fontsize=9)
    canvas.suptitle(f"Results kept by a join that is ρ times too slow: 000, Figure 11 (w = {setting.w})", fontsize=11)
    canvas.savefig(path, dpi=110)


_STYLES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (OPTIMUM, "OPTOFFLINESHED", {"color": "black", "marker": "o", "linestyle": "", "fillstyle": "none"}),
    ("topw", "TOPW", {"color": "tab:blue"}),
    ("cluster", "cluster sampling", {"color": "tab:green", "linestyle": "-."}),
    ("samplew", "Sample-w (random)", {"color": "tab:orange", "linestyle": "--"}),
    ("keepw", "Keep-w", {"color": "tab:red", "linestyle": ":"}),
)

FIGURE = Figure("figure11", "results kept by TOPW when the stream is too fast", run, claims, plot)
