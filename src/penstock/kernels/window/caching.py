"""Caches of table rows for a stream of references: the classics, and HEEB beside them.

A stream that looks rows up in a table is a join with a cache (003 §3.2.1): number the occurrences of each value, and
the i-th reference of v is the pair of stream value (v, i - 1) and supply value (v, i).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from penstock.models.stream_models import F64, Now, StreamModel

#: Given the cached values, the step and all references so far: which to let go, the lowest score first.
Scores = Callable[[list[int], int, Sequence[int]], Sequence[float]]


class Hits(NamedTuple):
    """References that were answered from the cache, and those that were not."""

    hits: int
    misses: int


def simulate(references: Sequence[int], size: int, scores: Scores, warm_up: int = 0) -> Hits:
    """Run a cache of `size` values: a value that is missed comes in, and the lowest score of all goes.

    >>> simulate([1, 2, 1, 3, 1], 2, lru([1, 2, 1, 3, 1]))
    Hits(hits=2, misses=3)
    """
    cached: list[int] = []
    hits = counted = 0
    for step, value in enumerate(references):
        found = value in cached
        if step >= warm_up:
            hits, counted = hits + found, counted + 1
        if not found:
            cached.append(value)
        if len(cached) > size:
            each = scores(cached, step, references)
            cached.pop(min(range(len(cached)), key=lambda place: (each[place], place)))
    return Hits(hits, counted - hits)


def lru(references: Sequence[int]) -> Scores:
    """LRU: the least recently used goes."""
    last: dict[int, int] = {}
    seen = 0

    def scores(cached: list[int], step: int, _: Sequence[int]) -> list[float]:
        nonlocal seen
        for at in range(seen, step + 1):
            last[references[at]] = at
        seen = step + 1
        return [float(last[value]) for value in cached]

    return scores


def lfu(references: Sequence[int]) -> Scores:
    """LFU, perfect: the least often used so far goes; with known probabilities it is A0."""
    counts: Counter[int] = Counter()
    seen = 0

    def scores(cached: list[int], step: int, _: Sequence[int]) -> list[float]:
        nonlocal seen
        counts.update(references[seen : step + 1])
        seen = step + 1
        return [float(counts[value]) for value in cached]

    return scores


def a0(probability: Callable[[int], float]) -> Scores:
    """A0: the least likely goes, probabilities known; optimal for a stationary stream."""

    def scores(cached: list[int], step: int, _: Sequence[int]) -> list[float]:
        return [probability(value) for value in cached]

    return scores


def lfd(references: Sequence[int]) -> Scores:
    """LFD (Belady): the one that is used furthest in the future goes; the optimum, with the future known."""
    places: dict[int, list[int]] = {}
    for at, value in enumerate(references):
        places.setdefault(value, []).append(at)
    positions = {value: np.asarray(at) for value, at in places.items()}

    def scores(cached: list[int], step: int, _: Sequence[int]) -> list[float]:
        found = []
        for value in cached:
            at = int(np.searchsorted(positions[value], step, side="right"))
            found.append(-float(positions[value][at]) if at < len(positions[value]) else -np.inf)
        return found

    return scores


def random(seed: int) -> Scores:
    """RAND."""
    rng = np.random.default_rng(seed)

    def scores(cached: list[int], step: int, _: Sequence[int]) -> list[float]:
        return rng.random(len(cached)).tolist()

    return scores


def heeb(model: StreamModel, alpha: float) -> Scores:
    """HEEB: how likely each value is to be referenced *first* d steps from now, weighed by `e^{-d/α}` (003 §3.4.3).

    The join's sum h(v, x) counts every reference of v after the stream was at x. Those after the first begin anew at v,
    so h(v, x) = H (1 + h(v, v)): exact where the next value depends on the last alone, as in a walk or AR(1).
    """
    again: dict[int, float] = {}

    def scores(cached: list[int], step: int, references: Sequence[int]) -> list[float]:
        values: F64 = np.asarray(cached, np.float64)
        for value in cached:
            if value not in again:
                at = Now(step + 1, float(value))
                again[value] = float(model.benefit(np.array([float(value)]), at, alpha)[0])
        every = model.benefit(values, Now(step + 1, float(references[step])), alpha)
        return (every / (1.0 + np.array([again[value] for value in cached]))).tolist()

    return scores


def as_join(references: Iterable[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The two streams whose join is the cache: what is asked for, and what each answer supplies.

    >>> as_join([7, 7, 8])
    ([(7, 0), (7, 1), (8, 0)], [(7, 1), (7, 2), (8, 1)])
    """
    counts: Counter[int] = Counter()
    asked, supplied = [], []
    for value in references:
        asked.append((value, counts[value]))
        counts[value] += 1
        supplied.append((value, counts[value]))
    return asked, supplied
