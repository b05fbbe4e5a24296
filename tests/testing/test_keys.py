"""Keys with a known distribution, the same for the same seed."""

import numpy as np
import pytest

from penstock.testing import uniform_keys, zipf_keys


@pytest.mark.parametrize("s", [0.0, 0.5, 0.99, 1.0, 1.5, 3.0])
def test_frequencies_follow_the_exponent(s):
    n, domain = 200_000, 50
    counts = np.bincount(zipf_keys(n, domain, s, seed=1, scramble=None), minlength=domain)
    weights = np.arange(1, domain + 1) ** -s
    expected = n * weights / weights.sum()
    # Chi-square with 49 degrees of freedom: beyond 100 less often than once in 40,000 draws.
    assert ((counts - expected) ** 2 / expected).sum() < 100


def test_scrambling_moves_keys_and_keeps_frequencies():
    plain, scrambled = (zipf_keys(10_000, 1_000, 1.2, seed=7, scramble=scramble) for scramble in (None, 0))
    assert sorted(np.bincount(plain, minlength=1_000)) == sorted(np.bincount(scrambled, minlength=1_000))
    assert (plain != scrambled).mean() > 0.9


def test_streams_with_other_seeds_share_their_hot_keys():
    hottest = {int(np.bincount(zipf_keys(10_000, 1_000, 1.2, seed)).argmax()) for seed in range(5)}
    assert len(hottest) == 1


def test_same_seed_same_keys():
    assert (zipf_keys(100, 1_000, 0.8, 3) == zipf_keys(100, 1_000, 0.8, 3)).all()
    assert (zipf_keys(100, 1_000, 0.8, 3) != zipf_keys(100, 1_000, 0.8, 4)).any()
    assert (uniform_keys(100, 1_000, 3) == uniform_keys(100, 1_000, 3)).all()


@pytest.mark.parametrize("keys", [zipf_keys(1_000, 3, 0.7, 1), uniform_keys(1_000, 3, 1)])
def test_keys_are_in_the_domain(keys):
    assert keys.dtype == np.int64
    assert set(keys) == {0, 1, 2}


def test_no_keys_and_a_domain_of_one():
    assert len(zipf_keys(0, 10, 1.0, 1)) == 0
    assert set(zipf_keys(10, 1, 1.0, 1)) == {0}


@pytest.mark.parametrize(("n", "domain", "s"), [(-1, 1, 1.0), (1, 0, 1.0), (1, 1, -0.1)])
def test_nonsense_is_refused(n, domain, s):
    with pytest.raises(ValueError, match="No Zipf distribution"):
        zipf_keys(n, domain, s, 1)
