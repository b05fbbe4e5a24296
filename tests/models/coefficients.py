"""Random coefficients for tests of the mesh join's cost model."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from penstock.models.curve import Curve
from penstock.models.mesh_cost import Coefficients

COST = st.floats(1e-9, 1e-5)


@st.composite
def curves(draw: DrawFn, low: float, high: float, places: st.SearchStrategy[float]) -> Curve:
    xs = sorted(draw(st.sets(places, min_size=1, max_size=5)))
    return Curve.fit([(x, draw(st.floats(low, high))) for x in xs])


@st.composite
def coefficients(draw: DrawFn, most_pages: int = 60) -> Coefficients:
    """Small enough for brute force over every b and w."""
    pages, page_rows = draw(st.integers(1, most_pages)), draw(st.integers(1, 50))
    windows = st.floats(1, 5_000)
    v_P = draw(st.floats(50, 2_000))
    return Coefficients(
        n_R=pages * page_rows - draw(st.integers(0, page_rows - 1)),
        v_R=v_P / page_rows,
        v_P=v_P,
        v_S=draw(st.floats(4, 100)),
        ptr=draw(st.floats(0, 16)),
        f=draw(st.floats(1, 5)),
        buffer=Curve.line(v_P, draw(st.floats(0, 1_000))),
        c_IO=draw(curves(1e-5, 1e-2, st.floats(1, 60))),
        c_A=draw(curves(1e-8, 1e-5, windows)),
        c_H=draw(curves(1e-9, 1e-6, windows)),
        c_O=draw(curves(1e-8, 1e-5, windows)),
        c_E=draw(COST),
        c_S=draw(COST),
        c_P=draw(curves(0, 1e-4, st.floats(1, 60))),
        c_G=draw(curves(0, 1e-4, windows)),
        m=draw(st.floats(0, 5)),
        false_candidates=draw(st.floats(0, 1e-3)),
        fixed=draw(st.floats(0, 5_000)),
        stream_copies=draw(st.sampled_from([0.0, 1.0])),
        slice_rows=draw(st.sampled_from([float("inf"), 500.0])),
        c_MB=draw(st.floats(0, 1)),
        batch_rows=draw(st.sampled_from([float("inf"), 1_000.0])),
    )
