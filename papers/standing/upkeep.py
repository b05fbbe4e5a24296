"""Figure 4.11 of 003: what it costs to keep each index up to date as queries come and go."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.standing.workload import BAND, DOMAIN
from penstock.kernels.standing.query_set import Change, QuerySet
from penstock.kernels.standing.query_table import Queries

ALL = ("naive", "join_first", "merge", "ssi")


def _run(quick: bool, say: Say) -> dict[str, float]:
    """Microseconds a change: as many as there are queries, half of them insertions, in batches of 1,000."""
    n, steps = (2_000, 4) if quick else (100_000, 100)
    found = {}
    for name in ALL:
        say(name)
        rng = np.random.default_rng(6)
        queries = QuerySet(BAND, (name,), epsilon=3.0)
        middle = rng.uniform(0, DOMAIN, n)
        queries.load(Queries(np.arange(n), np.stack([middle - 60, middle + 60], axis=1)))
        queries.prepare()
        spent, half = 0.0, 500 if not quick else 100
        for step in range(steps):
            standing = queries.ids[queries.alive]
            gone = rng.choice(standing, half, replace=False)
            middle = rng.uniform(0, DOMAIN, half)
            fresh = n + half * step + np.arange(half)
            change = Change(fresh, np.ones(half, np.int64), np.stack([middle - 60, middle + 60], axis=1), gone)
            began = time.process_time()
            queries.apply(change)
            queries.prepare()
            spent += time.process_time() - began
        found[name] = 1e6 * spent / (2 * half * steps)
    return found


def _claims(found: dict[str, float]) -> Sequence[Claim]:
    # What BJ-QOuter costs is the keeping of the queries themselves, which all of them have.
    extra = {name: found[name] - found["naive"] for name in ALL}
    ratio = found["ssi"] / found["merge"]
    return [
        Claim("figure4_11", "upkeep of BJ-SSI is not much more than that of BJ-MJ", "20% more", f"{ratio:.2f} ×", None),
        Claim(
            "figure4_11",
            "and is small beside what it gains",
            "well justified",
            f"{found['ssi']:.0f} µs a change, {extra['ssi']:.0f} of them for the index",
            found["ssi"] < 1_000,
        ),
    ]


def _plot(found: dict[str, float], path: Path) -> None:
    canvas = Canvas(figsize=(5, 4), layout="constrained")
    panel = canvas.subplots()
    panel.bar(["BJ-Q", "BJ-D", "BJ-MJ", "BJ-SSI"], [found[name] for name in ALL])
    panel.set(ylabel="µs a change", title="Upkeep of the indexes: 003, Figure 4.11")
    canvas.savefig(path, dpi=110)


FIGURE = Figure("figure4_11", "upkeep of the indexes", _run, _claims, _plot)
