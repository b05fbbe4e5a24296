"""The static join: which rows of two finite relations to keep so that their join keeps most.

002 §3.1. Rows with one key form a group of m rows of A and n rows of B, whose join has m·n results. Of `p` rows of a
group it is best to keep as many of A as of B, as far as there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Groups = Sequence[tuple[int, int]]
F64 = npt.NDArray[np.float64]


def best_of_group(m: int, n: int, kept: int) -> int:
    """`C_{m,n}(p)`: the most results that `kept` rows of a group can give.

    >>> [best_of_group(4, 2, kept) for kept in range(7)]
    [0, 0, 1, 2, 4, 6, 8]
    """
    small = min(m, n)
    return (kept // 2) * ((kept + 1) // 2) if kept <= 2 * small else small * (kept - small)


def keep_best(groups: Groups, kept: int) -> tuple[int, list[tuple[int, int]]]:
    """The most results with `kept` rows of both relations together, and how many rows of each to keep of every group.

    Dynamic program over groups, `T(i, j)` of 002 §3.1.1: O(groups · kept²).

    >>> keep_best([(3, 1), (2, 2)], 4)
    (4, [(0, 0), (2, 2)])
    """
    best = np.full(kept + 1, -np.inf)
    best[0] = 0
    choices = []
    for m, n in groups:
        gains = np.array([best_of_group(m, n, p) for p in range(min(m + n, kept) + 1)], np.float64)
        table = np.full((kept + 1, len(gains)), -np.inf)
        for p, gain in enumerate(gains):
            table[p:, p] = best[: kept + 1 - p] + gain
        choices.append(table.argmax(axis=1))
        best = table.max(axis=1)
    # Where there are fewer rows than may be kept, all of them are.
    j = int(np.flatnonzero(best > -np.inf)[-1])
    result, split = int(best[j]), []
    for (m, n), choice in zip(reversed(groups), reversed(choices), strict=True):
        p = int(choice[j])
        split.append(_split(m, n, p))
        j -= p
    return result, split[::-1]


def _split(m: int, n: int, kept: int) -> tuple[int, int]:
    ours = min(m, max((kept + 1) // 2, kept - n))
    return ours, kept - ours


def keep_best_apart(groups: Groups, kept_a: int, kept_b: int) -> int:
    """The most results with `kept_a` rows of A and `kept_b` of B: the same program with two sums.

    >>> keep_best_apart([(3, 1), (2, 2)], 2, 2)
    4
    """
    best = np.full((kept_a + 1, kept_b + 1), -np.inf)
    best[0, 0] = 0
    for m, n in groups:
        better = best.copy()
        for a in range(min(m, kept_a) + 1):
            for b in range(min(n, kept_b) + 1):
                reached = best[: kept_a + 1 - a, : kept_b + 1 - b] + a * b
                better[a:, b:] = np.maximum(better[a:, b:], reached)
        best = better
    return int(best[best > -np.inf].max())


def drop_cheapest(relations: Sequence[Sequence[int]], drop: Sequence[int]) -> list[list[int]]:
    """For any number of relations: drop of each the rows that take part in the fewest results.

    Relations are lists of keys; returned are the places of the rows that go. The results that are lost are at most as
    many times those of an optimal choice as there are relations (002 §3.1.2); for three or more the optimum is NP-hard.

    >>> drop_cheapest([[1, 1, 2], [1, 2], [1, 2, 2]], [1, 0, 1])
    [[0], [], [1]]
    """
    counts = [{key: list(relation).count(key) for key in set(relation)} for relation in relations]
    gone = []
    for number, relation in enumerate(relations):
        others = [count for place, count in enumerate(counts) if place != number]
        worth = [int(np.prod([count.get(key, 0) for count in others])) for key in relation]
        gone.append(sorted(sorted(range(len(relation)), key=lambda place: (worth[place], place))[: drop[number]]))
    return gone
