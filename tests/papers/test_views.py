"""Chapter 2 of 003 at a reduced size: the claims that hang on no clock, and the run of those that do."""

import pytest

from papers.views import FIGURES, curves, figure2_1, figure2_4, figure2_5, figure2_6, figure2_7, opening, planners
from papers.views.tpch import JOIN, VIEW
from penstock.kernels.views.costs import Stepwise

SETTING = curves.Setting(scale=0.01, sizes=(1, 20, 100), repeats=2, upto=1200)


@pytest.fixture
def fixed(monkeypatch):
    """Curves as they were measured once, so that the claims about plans do not hang on this machine's hour."""
    points = {
        "PartSupp": [(1.0, 2.58e-3), (50.0, 2.75e-3), (100.0, 2.8e-3), (400.0, 2.99e-3)],
        "Supplier": [(1.0, 0.24e-3), (10.0, 0.42e-3), (50.0, 1.7e-3), (400.0, 13e-3)],
    }
    costs = {name: Stepwise.from_points([*p, curves.beyond(p, 1500)], 1500) for name, p in points.items()}
    made = curves.Curves(SETTING, points, costs)
    for module in (figure2_4, figure2_6, figure2_7):
        monkeypatch.setattr(module, "view_curves", lambda quick: made)
    return made


def broken(figure):
    found = figure.claims(figure.run(True, lambda text: None))
    assert any(claim.holds is not None for claim in found)
    return [claim for claim in found if claim.holds is False]


@pytest.mark.parametrize("module", [opening, figure2_4, figure2_6, figure2_7])
def test_claims_hold(fixed, module, tmp_path):
    figure = module.FIGURE
    data = figure.run(True, lambda text: None)
    assert [claim for claim in figure.claims(data) if claim.holds is False] == []
    figure.plot(data, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_curves_are_measured_and_plans_carried_out(monkeypatch, tmp_path):
    """Everything that has to do with the database, once, small; what its clock says is not judged here."""
    view = curves.measured(SETTING, VIEW, lambda text: None)
    join = curves.measured(SETTING, JOIN, lambda text: None)
    assert all(seconds > 0 for found in (view, join) for points in found.points.values() for _, seconds in points)
    monkeypatch.setattr(figure2_5, "view_curves", lambda quick: view)
    monkeypatch.setattr(figure2_1, "join_curves", lambda quick: join)
    for module in (figure2_1, figure2_5):
        data = module.FIGURE.run(True, lambda text: None)
        assert module.FIGURE.claims(data)
        module.FIGURE.plot(data, tmp_path / "x.png")


def test_unsteady_arrivals_are_as_the_chapter_has_them():
    for kind, (p, sigma) in planners.KINDS.items():
        found = [sum(1 for n in column if n) for column in zip(*planners.unsteady(kind, 2000, seed=1), strict=True)]
        assert all(abs(count / 2000 - p) < 0.04 for count in found), kind
        largest = max(max(step) for step in planners.unsteady(kind, 2000, seed=1))
        assert (largest > 8) == (sigma == 5), kind


def test_every_figure_has_a_name_of_its_own():
    assert len({figure.name for figure in FIGURES}) == len(FIGURES) == 6
