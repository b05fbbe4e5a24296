"""The join of the papers: one row a side at each instant, a memory of so many rows, results counted.

The kernel's rules with the papers' clock: rows that come together meet; then rows go until memory holds the rest, first
those that have left the window, then the lowest score, of equal ones the oldest (`test_the_simulation_is_the_kernel`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

RAND, PROB, LIFE, HEEB = range(4)


class Outcome(NamedTuple):
    """Results after the warm-up, and the share of memory that left rows have at each instant."""

    results: int
    left_share: F64


class Table(NamedTuple):
    """Scores by the distance between a row's value and where the other stream is at each instant."""

    heights: F64
    first: int
    centre: F64


NO_TABLE = Table(np.zeros(1), 0, np.zeros(1))


def simulate(
    left: I64,
    right: I64,
    *,
    window: int,
    memory: int,
    policy: int,
    chances: tuple[F64, F64] | None = None,
    tables: tuple[Table, Table] = (NO_TABLE, NO_TABLE),
    fixed: bool = True,
    warm_up: int = 0,
    seed: int = 0,
) -> Outcome:
    """Run one policy. `chances` are the probabilities of keys (from 0 on) on the left and on the right; `tables` what
    HEEB scores rows of the left and of the right by.
    """
    likely = chances or (np.zeros(1), np.zeros(1))
    draws = np.random.default_rng(seed).random(64 * len(left) if policy == RAND else 1)
    shares = np.zeros(len(left))
    results = _run(
        left, right, window, memory, policy, likely[0], likely[1], tables[0], tables[1], fixed, warm_up, draws, shares
    )
    return Outcome(int(results), shares)


def exact(left: I64, right: I64, window: int, warm_up: int = 0) -> int:
    """With room for everything."""
    chances = np.ones(int(max(left.max(), right.max())) + 1)
    everything = 2 * min(window, len(left)) + 2
    return simulate(
        left, right, window=window, memory=everything, policy=PROB, chances=(chances, chances), warm_up=warm_up
    ).results


@njit(cache=True)
def _height(table: Any, value: int, t: int) -> float:
    place = np.int64(np.rint(value - table.centre[t])) - table.first
    return table.heights[place] if 0 <= place < table.heights.size else 0.0


@njit(cache=True)
def _run(
    left: I64, right: I64, window: int, memory: int, policy: int, p_left: F64, p_right: F64, t_left: Any, t_right: Any,
    fixed: bool, warm_up: int, draws: F64, shares: F64,
) -> int:  # fmt: skip
    sides = np.empty(memory + 2, np.int64)
    keys = np.empty(memory + 2, np.int64)
    times = np.empty(memory + 2, np.int64)
    scores = np.empty(memory + 2, np.float64)
    held, results, drawn = 0, 0, 0
    for t in range(left.size):
        found = 1 if left[t] == right[t] else 0
        for i in range(held):
            if t - times[i] < window and keys[i] == (right[t] if sides[i] == 0 else left[t]):
                found += 1
        if t >= warm_up:
            results += found
        for side in range(2):
            sides[held], keys[held], times[held] = side, (left[t] if side == 0 else right[t]), t
            held += 1
        for i in range(held):
            life = times[i] + window - 1 - t
            if policy in (PROB, LIFE):
                scores[i] = p_right[keys[i]] if sides[i] == 0 else p_left[keys[i]]
                if policy == LIFE:
                    scores[i] *= life
            elif policy == HEEB:
                scores[i] = _height(t_left, keys[i], t) if sides[i] == 0 else _height(t_right, keys[i], t)
            else:
                scores[i] = draws[drawn % draws.size]
                drawn += 1
            if life < 0:
                scores[i] = -1.0
        for pool in range(2 if fixed else 1):
            room = memory // 2 if fixed else memory
            count = 0
            for i in range(held):
                count += 1 if not fixed or sides[i] == pool else 0
            while count > room:
                worst = -1
                for i in range(held):
                    if fixed and sides[i] != pool:
                        continue
                    if worst < 0 or scores[i] < scores[worst]:
                        worst = i
                for i in range(worst, held - 1):
                    sides[i], keys[i], times[i], scores[i] = sides[i + 1], keys[i + 1], times[i + 1], scores[i + 1]
                held -= 1
                count -= 1
        ours = 0
        for i in range(held):
            ours += 1 if sides[i] == 0 else 0
        shares[t] = ours / max(held, 1)
    return results
