"""Figures 4.7 and 4.8 of 003: select-joins over the number of queries, of groups, of queries selected, of partners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from papers.claims import Claim
from papers.figure import Say
from papers.standing.lines import Curves, figure, sweep
from papers.standing.workload import Bench, Load, slope

ALL = ("ssi", "select_first", "join_first", "naive")
#: SJ-SSI as the chapter has it. Ours passes by groups without an own range about an event's value.
EVERY_GROUP = "ssi, every group"


def _over_queries(quick: bool, say: Say) -> Curves:
    sizes = (10, 100, 1_000) if quick else (10, 100, 1_000, 10_000, 100_000)
    held = 2_000 if quick else 100_000
    bench = lru_cache(1)(lambda n: _many_partners(int(n), held))

    def rate(n: float, name: str) -> float:
        return _asking_every_group(int(n), held).rate("ssi") if name == EVERY_GROUP else bench(n).rate(name)

    return sweep(sizes, (EVERY_GROUP, *ALL), rate, say, "queries")


def _asking_every_group(queries: int, held: int) -> Bench:
    bench = _many_partners(queries, held)
    index = bench.set("ssi")[0].index(0, "ssi")
    assert index is not None
    for part in index.parts():
        part.layout.tree.extents[:] = -np.inf, np.inf
    return bench


def _many_partners(queries: int, held: int) -> Bench:
    """ "Each incoming R tuple on average joins with 1000 S tuples." """
    return Bench(Load(queries=queries, partners=1_000, held=held))


def _asked(queries: int) -> float:
    """How many groups an event asks on average: those with an own range about its value; others are passed by."""
    bench = _many_partners(queries, 1_000)
    index = bench.set("ssi")[0].index(0, "ssi")
    assert index is not None
    own = bench.rows(2_000).own[:, None]
    extents = [part.layout.tree.extents[: part.layout.groups] for part in index.parts()]
    return float(sum(((low <= own) & (own <= high)).sum() for low, high in (e.T for e in extents)) / len(own))


def _queries_claims(curves: Curves) -> Sequence[Claim]:
    ssi, every, first = curves.rates["ssi"], curves.rates[EVERY_GROUP], curves.over.index(100)
    few, many = _asked(100), _asked(int(curves.over[-1]))
    loss, ours = (1 - rates[-1] / rates[first] for rates in (every, ssi))
    falls = {name: slope(curves.over[first:], curves.rates[name][first:]) for name in ("naive", "select_first")}
    share = curves.last("join_first") / ssi[-1]
    # Too few queries to tell a line from a curve say nothing.
    full = curves.over[-1] >= 100_000
    return [
        Claim(
            "figure4_7i",
            "SJ-SSI, asking every group as the chapter has it, loses little from 100 queries to the most",
            "less than 20%",
            f"{loss:.0%}",
            loss < 0.2 if full else None,
        ),
        Claim(
            "figure4_7i",
            "… ours passes by groups without an own range about an event's value, of which few queries leave many",
            "less than 20%",
            f"{ours:.0%}: {ssi[first] / every[first]:.2f} × as fast with 100 queries, of which an event asks {few:.0f} "
            f"groups; {ssi[-1] / every[-1]:.2f} × with the most, of which it asks {many:.0f}",
            None,
        ),
        Claim(
            "figure4_7i",
            "NAIVE and SJ-SelectFirst fall linearly with the number of queries",
            "linear: exponent -1",
            ", ".join(f"{name} {p:.2f}" for name, p in falls.items()),
            all(-1.3 < p < -0.6 for p in falls.values()) if full else None,
        ),
        Claim(
            "figure4_7i",
            "SJ-JoinFirst ends far below SJ-SSI",
            "below 5%",
            f"{share:.1%}",
            share < 0.05 if full else None,
        ),
    ]


def _over_groups(quick: bool, say: Say) -> Curves:
    n = 2_000 if quick else 100_000
    groups = (10, 100) if quick else (30, 100, 250, 1_000, 3_000)
    load = Load(queries=n, selected=250 / n, held=2_000 if quick else 100_000)
    bench = lru_cache(1)(lambda g: Bench(replace(load, groups=int(g))))
    return sweep(groups, ("ssi", "select_first", "join_first"), lambda g, name: bench(g).rate(name), say, "groups")


def _groups_claims(curves: Curves) -> Sequence[Claim]:
    behind = [
        g
        for g, ours, theirs in zip(curves.over, curves.rates["ssi"], curves.rates["select_first"], strict=True)
        if ours < theirs
    ]
    full = curves.over[-1] >= 3_000
    fall = slope(curves.over, curves.rates["ssi"])
    return [
        Claim(
            "figure4_7ii",
            "SJ-SSI falls with the number of groups",
            "falls",
            f"exponent {fall:.2f}",
            fall < -0.5 if full else None,
        ),
        Claim(
            "figure4_7ii",
            "SJ-SelectFirst does not depend on it",
            "indifferent",
            f"{curves.ratio('select_first'):.1f} × between best and worst",
            curves.ratio("select_first") < 2 if full else None,
        ),
        Claim(
            "figure4_7ii",
            "SJ-SelectFirst, with 250 queries selected, overtakes SJ-SSI at some number of groups",
            "about 250",
            f"at {behind[0]:g}" if behind else "never",
            bool(behind) if full else None,
        ),
    ]


def _over_selected(quick: bool, say: Say) -> Curves:
    shares = (0.01, 0.1) if quick else (0.001, 0.01, 0.1, 0.3)
    load = Load(queries=2_000 if quick else 100_000, held=2_000 if quick else 100_000)
    bench = lru_cache(1)(lambda s: Bench(replace(load, selected=s)))
    return sweep(shares, ("ssi", "select_first"), lambda s, name: bench(s).rate(name), say, "selected")


def _selected_claims(curves: Curves) -> Sequence[Claim]:
    fall = slope(curves.over, curves.rates["select_first"])
    full = len(curves.over) > 2
    return [
        Claim(
            "figure4_8iii",
            "SJ-SelectFirst falls with the share of queries selected",
            "linear: exponent -1",
            f"{fall:.2f}",
            fall < -0.6 if full else None,
        ),
        Claim(
            "figure4_8iii",
            "SJ-SSI does not depend on it",
            "unaffected",
            f"{curves.ratio('ssi'):.1f} × between best and worst, {curves.over[-1] / curves.over[0]:.0f} × the share",
            curves.ratio("ssi") < 3 if full else None,
        ),
    ]


def _over_partners(quick: bool, say: Say) -> Curves:
    partners = (5, 50) if quick else (10, 100, 1_000)
    load = Load(queries=1_000 if quick else 20_000, held=2_000 if quick else 100_000)
    bench = lru_cache(1)(lambda k: Bench(replace(load, partners=int(k))))
    return sweep(partners, ALL, lambda k, name: bench(k).rate(name), say, "partners")


def _partners_claims(curves: Curves) -> Sequence[Claim]:
    fall = slope(curves.over, curves.rates["join_first"])
    others = {name: curves.ratio(name) for name in ALL if name != "join_first"}
    full = len(curves.over) > 2
    return [
        Claim(
            "figure4_8iv",
            "SJ-JoinFirst falls with the number of partners",
            "linear: exponent -1",
            f"{fall:.2f}",
            fall < -0.6 if full else None,
        ),
        Claim(
            "figure4_8iv",
            "the others hardly depend on it",
            "immune",
            ", ".join(f"{name} {ratio:.1f} ×" for name, ratio in others.items()) + " over 100 × the partners",
            all(ratio < 5 for ratio in others.values()) if full else None,
        ),
    ]


FIGURES = (
    figure("figure4_7i", "select-joins over the number of queries", "queries", _over_queries, _queries_claims),
    figure("figure4_7ii", "select-joins over the number of groups", "stabbing groups", _over_groups, _groups_claims),
    figure(
        "figure4_8iii",
        "select-joins over what is selected",
        "share of queries selected",
        _over_selected,
        _selected_claims,
    ),
    figure("figure4_8iv", "select-joins over joining rows", "partners of an event", _over_partners, _partners_claims),
)
