import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.curve import Curve

POINTS = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e3), st.floats(0.1, 10)), min_size=1, max_size=12)


@given(POINTS)
def test_curve_never_falls(points):
    curve = Curve.fit(points)
    values = curve(np.linspace(0, 2e6, 500))
    assert np.all(np.diff(values) >= -1e-9)
    assert np.all(values >= 0)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e3)), min_size=1, max_size=12, unique_by=lambda p: p[0]))
def test_curve_goes_through_its_points(points):
    places = sorted(x for x, _ in points)
    values = sorted(y for _, y in points)
    curve = Curve.fit(zip(places, values, strict=True))
    assert curve(places) == pytest.approx(values)


def test_fit_is_the_nearest_that_does_not_fall():
    # Between 2 and 3 it falls from 5 to 1: both become their mean, weighted.
    assert Curve.fit([(1, 0.0), (2, 5.0), (3, 1.0), (4, 9.0)]).y == (0.0, 3.0, 3.0, 9.0)
    assert Curve.fit([(2, 5.0, 3.0), (3, 1.0, 1.0)]).y == (4.0, 4.0)


def test_places_measured_twice_count_with_their_mean():
    assert Curve.fit([(1, 2.0), (1, 4.0)]) == Curve.constant(3.0)


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 1e6))
def test_a_line_is_exact_everywhere(slope, at_zero, place):
    assert Curve.line(slope, at_zero)(place) == pytest.approx(slope * place + at_zero)


@pytest.mark.parametrize(("x", "y"), [((), ()), ((1, 2), (1,)), ((2, 1), (1, 1)), ((1, 2), (2, 1))])
def test_what_is_no_curve_is_refused(x, y):
    with pytest.raises(ValueError):
        Curve(x, y)
