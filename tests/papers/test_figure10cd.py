"""Figures 10c and 10d of 000 at a reduced size. A test machine is busy: rates are compared where they are far apart."""

import pytest

from papers.mesh import figure10cd
from papers.mesh.figure10cd import Outcome


@pytest.mark.slow
def test_claims_hold_and_are_drawn(tmp_path):
    skewed, weather = figure10cd.run_skewed(True, print), figure10cd.run_weather(True, print)
    assert [claim.holds for claim in figure10cd.claims_skewed(skewed) if "well ahead" in claim.text] == [True]
    assert [claim.holds for claim in figure10cd.claims_weather(weather)] == [True]
    figure10cd.plot_skewed(skewed, tmp_path / "c.png")
    figure10cd.plot_weather(weather, tmp_path / "d.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    slow = Outcome(skewed.axis, skewed.inl, skewed.inl)
    assert False in [claim.holds for claim in figure10cd.claims_skewed(slow)]
    assert False in [claim.holds for claim in figure10cd.claims_weather(slow)]
