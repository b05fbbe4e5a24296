"""Models of streams: probabilities that add up, quick sums equal to sums by definition, fits that find the model."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from penstock.errors import BadOption
from penstock.models import stream_models
from penstock.models.fitting import Fit
from penstock.models.heeb_steps import cached_benefit, next_cached, next_join, reseed_after
from penstock.models.stream_models import (
    AutoRegressive,
    Known,
    LinearTrend,
    Noise,
    Now,
    RandomWalk,
    Stationary,
    StreamModel,
    alpha_for,
    weights,
)

MODELS = [
    Stationary((0.5, 0.3, 0.2), 7),
    LinearTrend(1.0, 3.0, Noise.uniform(10)),
    LinearTrend(0.5, 3.0, Noise.normal(2.0, 15)),
    LinearTrend(-2.0, 900.0, Noise.normal(3.3)),
    RandomWalk(0.3, 1.0),
    AutoRegressive(5.59, 0.72, 4.22),
    AutoRegressive(30.0, -0.6, 4.22),
]
NOW = Now(50, 20.0)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_probabilities_of_all_values_add_up(model):
    values = np.arange(-400.0, 1_200.0)
    assert model.chances(values, NOW, 5).sum(axis=0) == pytest.approx(np.ones(5), abs=1e-6)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_quick_sums_equal_their_definition(model):
    values = np.arange(-30.0, 90.0)
    for alpha in (3.0, 20.0, 700.0):
        want = StreamModel.benefit(model, values, NOW, alpha)
        close = 0.02 * want.max() if isinstance(model, AutoRegressive) else 1e-5
        if alpha > 100 and isinstance(model, RandomWalk):
            close = 2e-3 * want.max()
        assert model.benefit(values, NOW, alpha) == pytest.approx(want, abs=close)


def test_a_window_ends_the_sum():
    for model in MODELS[:3]:
        values, life = np.arange(0.0, 90.0), np.full(90, 7.0)
        want = model.chances(values, NOW, 7) @ weights(5.0, 7)
        assert model.benefit_within(values, NOW, 5.0, life) == pytest.approx(want, abs=1e-8)


def test_the_surface_of_25_points_is_the_papers_approximation():
    model = AutoRegressive(5.59, 0.72, 4.22)
    values = np.arange(8.0, 33.0)
    fine = model.surface(20.0, 25)(values, 18.0)
    coarse = model.surface(20.0, 5)(values, 18.0)
    assert np.abs(fine - coarse).max() < 0.35 * fine.max()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_rows_that_live_long_cost_no_more(model, monkeypatch):
    """A window of a million rows; step by step a sum over it would have twenty million parts for each value."""
    done = []

    def counted(plain):
        def count(*given):
            done.append(max(np.size(one) for one in given))
            assert sum(done) < 20_000_000
            return plain(*given)

        return count

    monkeypatch.setattr(Noise, "at", counted(Noise.at))
    monkeypatch.setattr(stream_models, "_normal_cells", counted(stream_models._normal_cells))
    values, alpha = np.arange(-3_000.0, 3_000.0), 1e6
    found = model.benefit(values, NOW, alpha)
    assert found.max() > 0
    assert model.benefit_within(values, NOW, alpha, np.full(len(values), 1e6)) == pytest.approx(found, rel=1)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_value_is_worth_the_same_whatever_stands_beside_it(model):
    """To the last bit: which of two rows goes may not depend on how rows were cut."""
    values = np.random.default_rng(1).integers(-30, 90, 3_000).astype(np.float64)
    whole = model.benefit(values, NOW, 300.0)
    for size in (1, 7, 500):
        parts = [model.benefit(values[begin : begin + size], NOW, 300.0) for begin in range(0, 1_000, size)]
        assert np.array_equal(np.concatenate(parts)[:1_000], whole[:1_000])


def test_noise_of_any_width_is_told_by_some_hundred_cells():
    rng = np.random.default_rng(0)
    for draw in (lambda size: rng.normal(0, 1e6, size), lambda size: rng.uniform(-1e6, 1e6, size)):
        fit = Fit()
        for begin in range(0, 2_000, 500):
            fit.add(np.rint(10_000.0 * np.arange(begin, begin + 500) + draw(500)))
        model = fit.model()
        assert isinstance(model, LinearTrend)
        assert len(model.noise.pmf) < 200
        assert model.noise.at(np.arange(-9e6, 9e6, 100.0)).sum() * 100 == pytest.approx(1, rel=0.01)


def test_known_streams_are_known():
    model = Known((4, 5, 4))
    assert model.chances(np.array([4.0, 5.0]), Now(1, 4.0), 3).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_incremental_sums_drift_and_are_taken_anew_in_time():
    """Corollaries 3 and 4: exact at first, useless long after; `reseed_after` is in time."""
    alpha, model = 10.0, LinearTrend(1.0, 0.0, Noise.normal(3.0, 15))
    value = np.array([400.0])
    steps = reseed_after(alpha)
    h, errors = model.benefit(value, Now(0, 0.0), alpha), []
    for t in range(1, 600):
        h = next_join(h, model.chances(value, Now(t - 1, 0.0), 1)[:, 0], alpha)
        want = StreamModel.benefit(model, value, Now(t, 0.0), alpha)
        errors.append(abs(float(h[0] - want[0])))
    assert max(errors[: steps // 2]) < 1e-6
    assert max(errors) > 1e-3, "without taking it anew the error grows"
    # A cache: the row is known not to have been referenced.
    chances = np.array([0.05, 0.2, 0.1, 0.3, *[0.02] * 400])
    fades = weights(alpha, len(chances))
    now = cached_benefit(chances[None, :], fades)
    later = cached_benefit(chances[None, 1:], fades[:-1])
    assert next_cached(now, chances[:1], alpha) == pytest.approx(later, abs=1e-6)


def test_alpha_gives_the_mean_life_it_is_made_for():
    for life in (1.5, 10.0, 400.0):
        assert 1 / (1 - math.exp(-1 / alpha_for(life))) == pytest.approx(life)


def stream(kind, rng, count=5_000):
    if kind == "trend":
        return np.arange(count) + rng.integers(-10, 11, count)
    if kind == "slow trend":
        return np.rint(0.1 * np.arange(count) + rng.normal(0, 3.3, count))
    if kind == "walk":
        return np.rint(np.cumsum(rng.normal(0, 1, count)))
    if kind == "chain":
        values = [20.0]
        for noise in rng.normal(0, 4.22, count):
            values.append(0.72 * values[-1] + 5.59 + noise)
        return np.rint(values[1:])
    return rng.zipf(1.5, count) % 1_000


KINDS = {
    "trend": LinearTrend,
    "slow trend": LinearTrend,
    "walk": RandomWalk,
    "chain": AutoRegressive,
    "none": type(None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fit_finds_the_model(kind):
    for seed in range(4):
        fit = Fit()
        values = stream(kind, np.random.default_rng(seed)).astype(np.float64)
        for begin in range(0, len(values), 100):
            fit.add(values[begin : begin + 100])
        found = fit.model()
        assert isinstance(found, KINDS[kind]), (seed, found)
        if kind == "trend":
            assert abs(found.slope - 1) < 0.01
            assert found.noise == Noise.uniform(found.noise.bound), "flat noise is told from normal noise"
        if kind == "chain":
            assert abs(found.factor - 0.72) < 0.1


def test_fit_goes_on_alike():
    values = stream("chain", np.random.default_rng(9)).astype(np.float64)
    one, other = Fit(), Fit()
    for begin in range(0, 4_000, 250):
        one.add(values[begin : begin + 250])
        other.add(values[begin : begin + 250])
        again = Fit()
        again.restore(json.loads(json.dumps(other.head())))
        other = again
    assert one.model() == other.model()
    assert one.now == other.now


def test_models_that_make_no_sense_are_refused():
    with pytest.raises(BadOption, match="no mean to return to"):
        AutoRegressive(1.0, 1.0, 1.0)
    with pytest.raises(BadOption, match="deviation"):
        Noise.normal(0.0)
