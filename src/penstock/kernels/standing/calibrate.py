"""Fit the cost model of the router on this machine: each strategy timed on rows that differ in one thing at a time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from penstock.kernels.standing.index import Index
from penstock.kernels.standing.search import F64, Rows
from penstock.kernels.standing.strategies import Strategy, answers, grouping_of
from penstock.models.interval_histogram import stabbed
from penstock.models.standing_cost import Coefficients, Load, fit

_DOMAIN = 10_000.0
CALIBRATED: tuple[Strategy, ...] = ("hotspot", "select_first", "join_first", "join_first_scan")


def calibrate(
    sizes: tuple[int, ...] = (2_000, 20_000), clock: Callable[[], float] = time.process_time, seed: int = 0
) -> Coefficients:
    """Coefficients for this machine, from some two seconds of measurements.

    For each number of queries, rows with few or many partners and queries with short or long own ranges are answered
    by each strategy; the coefficients of each are fitted on its own times.
    """
    rng = np.random.default_rng(seed)
    fitted = {}
    for name in CALIBRATED:
        seconds, partners, selected, loads = [], [], [], []
        for size in sizes:
            for length in (20.0, 1_000.0):
                ranges = _queries(rng, size, length)
                # As the router has it: groups of all queries, none scattered, for the hotspot strategy.
                index = _index(name, ranges)
                for each in (4, 64, 512):
                    values, rows = _rows(rng, each, _count(name, size, each, length))
                    seconds.append(_seconds(name, index, ranges, rows, values, clock))
                    partners.append(each)
                    selected.append(stabbed(ranges[:, 0], ranges[:, 1], rows.own).mean())
                    groups = index.groups if index is not None else 0
                    loads.append(Load(size, size if groups else 0, groups))
        found = fit(name, np.array(partners, float), np.array(selected), loads, np.array(seconds))
        fitted[name] = found
    return Coefficients(**fitted)  # type: ignore[arg-type]


def _queries(rng: np.random.Generator, size: int, length: float) -> F64:
    own, across = rng.uniform(0, _DOMAIN, size), (rng.integers(0, 20, size) + 0.5) * _DOMAIN / 20
    reach = rng.exponential(2.0, (2, size))
    return np.stack([own - length / 2, own + length / 2, across - reach[0], across + reach[1]], axis=1)


def _rows(rng: np.random.Generator, partners: int, count: int) -> tuple[F64, Rows]:
    keys = 50
    values = np.sort(rng.uniform(0, _DOMAIN, (keys, partners)), axis=1).ravel()
    key = rng.integers(0, keys, count)
    return values, Rows(key * partners, (key + 1) * partners, np.zeros(count), np.sort(rng.uniform(0, _DOMAIN, count)))


def _count(name: str, size: int, partners: int, length: float) -> int:
    """As many rows as take a few milliseconds."""
    work = {
        "hotspot": 1_000.0,
        "select_first": 200 + size * length / _DOMAIN * 10,
        "join_first": 50.0 * partners * np.log2(size),
        "join_first_scan": float(size),
    }[name]
    return int(np.clip(8e6 / work, 20, 4_000))


def _index(name: Strategy, ranges: F64) -> Index | None:
    grouping = grouping_of(name)
    if grouping is None:
        return None
    index = Index("all" if grouping == "hot" else grouping, True)
    index.load(np.arange(len(ranges)), ranges)
    list(index.parts())
    return index


def _seconds(
    name: Strategy, index: Index | None, ranges: F64, rows: Rows, values: F64, clock: Callable[[], float]
) -> float:
    """Seconds a row: the better of two, after one that warms up."""
    alive = np.ones(len(ranges), np.bool_)
    walk: Strategy = "ssi" if name == "hotspot" else name
    times = []
    for _ in range(3):
        began = clock()
        for _piece in answers(walk, index, ranges, alive, True, rows, values):
            pass
        times.append(clock() - began)
    return max(min(times[1:]) / len(rows.own), 1e-9)
