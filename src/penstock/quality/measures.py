"""How like two bags of results are.

002 §2.2. For a part X of the exact result Y all of the set measures grow with X alone, so each of them is MAX-subset
in another dress; overlap is then 1 and the earth mover's distance 0, which is why neither says anything about a join
that only loses results.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Distance = Callable[[Any, Any], float]


def _sizes(x: Iterable[Hashable], y: Iterable[Hashable]) -> tuple[int, int, int]:
    one, other = Counter(x), Counter(y)
    return one.total(), other.total(), (one & other).total()


def symmetric_difference(x: Iterable[Hashable], y: Iterable[Hashable]) -> int:
    """Results that only one of the two has; for a part of the exact result, how many are missing: MAX-subset.

    >>> symmetric_difference([1, 1, 2], [1, 2, 2, 3])
    3
    """
    ours, theirs, both = _sizes(x, y)
    return ours + theirs - 2 * both


def matching(x: Iterable[Hashable], y: Iterable[Hashable]) -> int:
    """Results that both have.

    >>> matching([1, 1, 2], [1, 2, 2, 3])
    2
    """
    return _sizes(x, y)[2]


def dice(x: Iterable[Hashable], y: Iterable[Hashable]) -> float:
    """Twice the common ones, over both sizes together.

    >>> dice([1, 2], [1, 2, 3, 4])
    0.6666666666666666
    """
    ours, theirs, both = _sizes(x, y)
    return 2 * both / (ours + theirs) if ours + theirs else 1.0


def jaccard(x: Iterable[Hashable], y: Iterable[Hashable]) -> float:
    """The common ones, over those that any has.

    >>> jaccard([1, 2], [1, 2, 3, 4])
    0.5
    """
    ours, theirs, both = _sizes(x, y)
    return both / (ours + theirs - both) if ours + theirs else 1.0


def cosine(x: Iterable[Hashable], y: Iterable[Hashable]) -> float:
    """The common ones, over the root of the product of both sizes (002 prints a sum under the root).

    >>> cosine([1], [1, 2, 3, 4])
    0.5
    """
    ours, theirs, both = _sizes(x, y)
    return both / math.sqrt(ours * theirs) if ours and theirs else float(ours == theirs)


def overlap(x: Iterable[Hashable], y: Iterable[Hashable]) -> float:
    """The common ones, over the smaller size: 1 for any part.

    >>> overlap([1, 2], [1, 2, 3, 4])
    1.0
    """
    ours, theirs, both = _sizes(x, y)
    return both / min(ours, theirs) if min(ours, theirs) else 1.0


def _table(x: Sequence[Any], y: Sequence[Any], distance: Distance) -> npt.NDArray[np.float64]:
    return np.array([[distance(a, b) for b in y] for a in x], np.float64).reshape(len(x), len(y))


def earth_movers_distance(x: Sequence[Any], y: Sequence[Any], distance: Distance) -> float:
    """The least work that moves every result of the smaller bag onto one of the larger: 0 for any part.

    >>> earth_movers_distance([1, 5], [1, 4, 9], lambda a, b: abs(a - b))
    1.0
    """
    from scipy.optimize import linear_sum_assignment

    work = _table(x, y, distance)
    return float(work[linear_sum_assignment(work)].sum()) if work.size else 0.0


def match_and_compare(x: Sequence[Any], y: Sequence[Any], distance: Distance) -> float:
    """The cheapest cover of both bags by pairs, each pair weighed by how many others share its more shared end.

    A cover has every result of either bag in at least one pair. The cheapest one is found by way of a matching: a pair
    is worth taking if it costs less than what its two ends would pay on their own.

    >>> match_and_compare([0], [1, 3], lambda a, b: abs(a - b))
    8.0
    """
    from scipy.optimize import linear_sum_assignment

    work = _table(x, y, distance)
    if not work.size:
        return math.inf if len(x) != len(y) else 0.0
    alone, others = work.min(axis=1), work.min(axis=0)
    saved = np.minimum(work - alone[:, None] - others[None, :], 0.0)
    pairs = {(int(i), int(j)) for i, j in zip(*linear_sum_assignment(saved), strict=True) if saved[i, j] < 0}
    covered, covering = {i for i, _ in pairs}, {j for _, j in pairs}
    pairs |= {(i, int(work[i].argmin())) for i in range(len(x)) if i not in covered}
    pairs |= {(int(work[:, j].argmin()), j) for j in range(len(y)) if j not in covering}
    left, right = Counter(i for i, _ in pairs), Counter(j for _, j in pairs)
    return float(sum(work[i, j] * max(left[i], right[j]) for i, j in pairs))
