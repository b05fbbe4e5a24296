"""Figure 4.10 of 003: band joins over the number of queries and of groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from papers.claims import Claim
from papers.figure import Say
from papers.standing.lines import Curves, figure, sweep
from papers.standing.workload import DOMAIN, BandBench, Load

ALL = ("ssi", "merge", "naive", "join_first")


def _bands(queries: int, groups: int, held: int) -> BandBench:
    """Bands in that many places; one in so many that about ten are affected reaches a partner."""
    rng = np.random.default_rng(4)
    place = (rng.integers(0, groups, queries) + 0.5) * DOMAIN / groups
    gap = DOMAIN / held
    far = rng.random(queries) < min(1.0, 10 / queries)
    half = np.where(far, 2 * gap, rng.exponential(1e-6 * gap, queries))
    return BandBench(Load(queries=queries, held=held), np.stack([place - half, place + half], axis=1))


def _over_queries(quick: bool, say: Say) -> Curves:
    sizes = (50, 500) if quick else (50, 500, 5_000, 50_000, 500_000)
    bench = lru_cache(1)(lambda n: _bands(int(n), 10 if n < 1_000 else 60, 1_000 if quick else 100_000))
    return sweep(sizes, ALL, lambda n, name: bench(n).rate(name), say, "queries")


def _queries_claims(curves: Curves) -> Sequence[Claim]:
    best = max(curves.last(name) for name in ALL if name != "ssi")
    full = curves.over[-1] >= 500_000
    return [
        Claim(
            "figure4_10i",
            "BJ-SSI is ahead of the others by orders of magnitude",
            "orders of magnitude",
            f"{curves.last('ssi') / best:.0f} ×",
            curves.last("ssi") > 10 * best if full else None,
        ),
        Claim(
            "figure4_10i",
            "BJ-SSI hardly falls over 10,000 times the queries",
            "to a third",
            f"to {curves.last('ssi') / curves.rates['ssi'][0]:.2f}",
            curves.last("ssi") > curves.rates["ssi"][0] / 10 if full else None,
        ),
        Claim(
            "figure4_10i",
            "BJ-MJ is stable while queries are few, and falls then",
            "from 50,000 on",
            f"{curves.rates['merge'][0] / curves.last('merge'):.1f} × slower at the end",
            curves.rates["merge"][0] > 1.5 * curves.last("merge") if full else None,
        ),
    ]


def _over_groups(quick: bool, say: Say) -> Curves:
    groups = (10, 100) if quick else (50, 500, 5_000)
    n, held = (1_000, 1_000) if quick else (100_000, 100_000)
    bench = lru_cache(1)(lambda g: _bands(n, int(g), held))
    return sweep(groups, ("ssi", "merge", "join_first"), lambda g, name: bench(g).rate(name), say, "groups")


def _groups_claims(curves: Curves) -> Sequence[Claim]:
    best = max(curves.last("merge"), curves.last("join_first"))
    full = curves.over[-1] >= 5_000
    return [
        Claim(
            "figure4_10ii",
            "BJ-SSI is ahead even with 5,000 groups",
            "ahead",
            f"{curves.last('ssi') / best:.1f} ×",
            curves.last("ssi") > best if full else None,
        ),
        Claim(
            "figure4_10ii",
            "BJ-MJ does not depend on the groups",
            "insensitive",
            f"{curves.ratio('merge'):.1f} ×",
            curves.ratio("merge") < 2 if full else None,
        ),
    ]


FIGURES = (
    figure("figure4_10i", "band joins over the number of queries", "queries", _over_queries, _queries_claims),
    figure("figure4_10ii", "band joins over the number of groups", "stabbing groups", _over_groups, _groups_claims),
)
