"""The router's cost model: it fits what it is made of, and tells apart what differs by much."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.models.standing_cost import CHOICES, Coefficients, Load, cheapest, costs, fit, for_all, terms


@pytest.mark.parametrize("name", CHOICES)
def test_coefficients_are_found_again(name):
    rng = np.random.default_rng(0)
    partners, selected = rng.integers(1, 500, 60).astype(float), rng.uniform(0, 5_000, 60)
    loads = [Load(n, n, g) for n, g in zip(rng.integers(100, 10**6, 60), rng.integers(1, 90, 60), strict=True)]
    wanted = getattr(Coefficients(), name)
    seconds = np.concatenate(
        [terms(name, partners[i : i + 1], selected[i : i + 1], load) @ np.array(wanted) for i, load in enumerate(loads)]
    )
    assert fit(name, partners, selected, loads, seconds / 1e9) == pytest.approx(wanted, rel=1e-6)


def choice(partners, selected, load):
    weights = Coefficients().weights(load)
    return CHOICES[int(cheapest(np.array([float(partners)]), np.array([float(selected)]), weights)[0])]


def test_rows_go_where_the_paper_sends_them():
    many = Load(500_000, 500_000, 30)
    assert choice(1_000, 50_000, many) == "hotspot", "many partners, many queries selected, few groups"
    assert choice(1_000, 2, many) == "select_first", "hardly a query wants the value"
    assert choice(1, 50_000, Load(500_000, 500_000, 50_000)) == "join_first", "one partner, and too many groups"
    assert choice(1_000, 10, Load(10, 0, 0)) in ("join_first_scan", "select_first", "hotspot"), "ten queries: no matter"


def test_scattered_queries_cost_what_select_first_costs():
    model = Coefficients()
    partners, selected = np.array([100.0]), np.array([1_000.0])
    hot = costs(partners, selected, model.weights(Load(10_000, 10_000, 20)))[0]
    half = costs(partners, selected, model.weights(Load(10_000, 5_000, 20)))[0]
    none = costs(partners, selected, model.weights(Load(10_000, 0, 0)))
    assert hot < half < none[0]
    assert none[0] == pytest.approx(none[1])


def test_rows_without_partners_cost_nothing():
    assert not costs(np.zeros(3), np.full(3, 99.0), Coefficients().weights(Load(1_000, 1_000, 5))).any()


def test_bands_are_merged_where_groups_are_too_many():
    partners, nothing = np.array([1_000.0]), np.zeros(1)
    few, many = (Coefficients().band_weights(Load(100_000, 0, groups)) for groups in (30, 50_000))
    assert cheapest(partners, nothing, few).tolist() == [0]
    assert cheapest(partners, nothing, many).tolist() == [1]


def test_the_best_for_all_and_the_best_for_each_are_sums_of_costs():
    rng = np.random.default_rng(2)
    partners, selected = rng.integers(0, 1_000, 500).astype(float), rng.exponential(2_000, 500)
    weights = Coefficients().weights(Load(50_000, 30_000, 40))
    each = costs(partners, selected, weights)
    assert for_all(partners, selected, weights) == pytest.approx(
        (each.sum(axis=1).argmin(), each.sum(axis=1).min(), each.min(axis=0).sum())
    )
    assert (cheapest(partners, selected, weights) == each.argmin(axis=0)).all()
