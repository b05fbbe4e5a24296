"""Keys for tests and benchmarks, the same for the same seed on every machine."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]


def zipf_keys(n: int, domain: int, s: float, seed: int, *, scramble: int | None = 0) -> Keys:
    """Draw `n` keys from 0 … `domain` - 1, the r-th most frequent with a probability proportional to r ** -`s`.

    Any `s` from 0 (uniform) up, those below 1 included: ranks are drawn by inverting the exact distribution.
    Which key is how frequent depends on `domain` and `scramble` alone, so that streams with different seeds share their
    hot keys; with `scramble=None` key 0 is the most frequent, then 1, and so on.

    Two arrays of `domain` numbers are held until another distribution is asked for.

    >>> zipf_keys(10, 100, 1.0, seed=1, scramble=None)
    array([ 7, 77,  0, 76,  2,  4, 40,  4,  9,  0])
    """
    if domain < 1 or n < 0 or s < 0:
        raise ValueError(f"No Zipf distribution has n={n}, domain={domain}, s={s}: none may be negative, domain not 0.")
    ranks = np.searchsorted(_cumulated(domain, float(s)), np.random.default_rng(seed).random(n), side="right")
    # Rounding may leave the last cumulated probability a hair below 1.
    ranks = np.minimum(ranks, domain - 1).astype(np.int64, copy=False)
    return ranks if scramble is None else _permutation(domain, scramble)[ranks]


def uniform_keys(n: int, domain: int, seed: int) -> Keys:
    """Draw `n` keys from 0 … `domain` - 1, each as likely as any other.

    >>> uniform_keys(5, 10, seed=1)
    array([4, 5, 7, 9, 0])
    """
    return np.random.default_rng(seed).integers(0, domain, n, dtype=np.int64)


@lru_cache(maxsize=1)
def _cumulated(domain: int, s: float) -> npt.NDArray[np.float64]:
    weights = np.arange(1, domain + 1, dtype=np.float64) ** -s
    sums = np.cumsum(weights)
    return sums / sums[-1]


@lru_cache(maxsize=1)
def _permutation(domain: int, scramble: int) -> Keys:
    return np.random.default_rng(scramble).permutation(domain).astype(np.int64, copy=False)
