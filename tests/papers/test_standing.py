"""The figures of chapter 4, small: they run, say what they find, and draw; and a claim that is wrong does not pass."""

from __future__ import annotations

import pytest

from papers.claims import save
from papers.standing import FIGURES
from papers.standing.lines import Curves
from papers.standing.select_joins import EVERY_GROUP, _queries_claims

QUICK = ("figure4_2", "figure4_12")
MARKED = [pytest.param(f, marks=[] if f.name in QUICK else pytest.mark.slow, id=f.name) for f in FIGURES]


@pytest.mark.parametrize("figure", MARKED)
def test_figure_runs_small(figure, tmp_path):
    outcome = figure.run(True, lambda text: None)
    claims = figure.claims(outcome)
    assert claims
    assert all(claim.holds is not False for claim in claims)
    save(tmp_path / "claims.json", claims)
    figure.plot(outcome, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_strategy_that_does_not_scale_does_not_pass():
    sizes = [100.0, 1_000.0, 10_000.0, 100_000.0]
    falling = [1e6 / size for size in sizes]
    curves = Curves(
        sizes, {name: list(falling) for name in ("ssi", EVERY_GROUP, "select_first", "join_first", "naive")}
    )
    judged = {claim.text: claim.holds for claim in _queries_claims(curves)}
    assert (
        judged["SJ-SSI, asking every group as the chapter has it, loses little from 100 queries to the most"] is False
    )
