"""A sift against sorting all rows, and what a gate lets in."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.fingerprint import fingerprints
from penstock.kernels.mesh.shed.gate import Gate, Overload, ResultCounts
from penstock.kernels.mesh.shed.sift import Sift

ROWS = st.lists(
    st.tuples(st.sampled_from([-2.5, -0.0, 0.0, 1.0, 1e300]), st.integers(0, 3), st.sampled_from([1, 2, 7])),
    max_size=40,
)


def as_batch(rows):
    schema = pa.schema([("score", pa.float64()), ("x", pa.int64()), ("size", pa.int64())])
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def sifted(rows, allowed, pieces=3):
    batch = as_batch(rows)
    ends = [len(rows) * n // pieces for n in range(pieces + 1)]
    with Sift(
        lambda part: part["size"].to_numpy().astype(float),
        lambda part: (part["score"].to_numpy(), fingerprints(part)),
    ) as sift:
        sift.fill(batch.slice(begin, end - begin) for begin, end in pairwise(ends))
        sift.divide(allowed)
        return tuple(
            sorted(row for part in parts() for row in zip(*part.to_pydict().values(), strict=True))
            for parts in (sift.kept, sift.shed)
        )


def by_sorting(rows, allowed):
    """Best first, up to the first that does not fit."""
    draws = fingerprints(as_batch(rows))
    order = sorted(range(len(rows)), key=lambda i: (rows[i][0], draws[i]), reverse=True)
    kept, left = [], allowed
    for i in order:
        if rows[i][2] > left:
            break
        kept.append(rows[i])
        left -= rows[i][2]
    return sorted(kept)


@given(ROWS, st.integers(0, 120))
def test_sift_keeps_the_best_that_fit(rows, allowed):
    kept, shed = sifted(rows, allowed)
    assert kept == by_sorting(rows, allowed)
    assert sorted(kept + shed) == sorted(rows)


@given(ROWS, st.integers(0, 120), st.randoms(use_true_random=False), st.integers(1, 5))
def test_what_is_kept_depends_on_the_bag_alone(rows, allowed, random, pieces):
    other = list(rows)
    random.shuffle(other)
    assert sifted(rows, allowed) == sifted(other, allowed, pieces)


def test_what_is_taken_in_follows_the_time_that_steps_take():
    gate = Gate(Overload("keepw", max_lag=2.0), ("k",), None)
    gate.open(None)
    assert gate.allowed(100) == float("inf")  # nothing is known yet
    gate.close(40, 100)
    gate.open(9.0)  # the window was not half full: says nothing of full ones
    assert gate.allowed(100) == float("inf")
    gate.close(1000, 100)
    gate.open(4.0)
    assert gate.allowed(100) == 500  # 250 bytes a second, for two seconds
    assert gate.allowed(800) == 800  # one pass is the least
    gate.close(500, 100)
    again = Gate(Overload("keepw", max_lag=2.0), ("k",), None)
    again.restore(gate.head())
    for one in (gate, again):
        one.open(1.0)
        assert one.allowed(100) == 750  # between the old rate and the new one


@pytest.mark.parametrize(
    ("how", "worth"), [("inner", [0, 1, 5]), ("left", [1, 1, 5]), ("semi", [0, 1, 1]), ("anti", [1, 0, 0])]
)
def test_what_a_row_is_worth_depends_on_the_join(how, worth):
    class Counts:
        def estimate(self, hashes):
            return np.array([0.0, 1.0, 5.0])

    assert ResultCounts(Counts(), how).estimate(np.zeros(3, np.uint64)).tolist() == worth
