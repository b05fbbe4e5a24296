"""Figure 11 of 000 at a reduced size: every claim of the paper, and the files that a run leaves."""

import pytest
from rich.console import Console
from typer.testing import CliRunner

from papers import __main__ as papers
from papers.claims import Claim, load
from papers.mesh import figure11

SETTING = figure11.Setting(
    ratios=(1.1, 1.5, 2.0), table_rows=100_000, domain=100_000, streams=2, served=5_000, w=50, sketch_bytes=400_000
)


@pytest.fixture(scope="module")
def outcome():
    return figure11.measure(SETTING, lambda text: None)


def test_figure_11(outcome):
    judged = [claim for claim in figure11.claims(outcome) if claim.holds is not None]
    assert len(judged) == 10
    assert [claim for claim in judged if not claim.holds] == []


def test_topw_is_never_better_than_the_optimum(outcome):
    for (reading, name, skew), shares in outcome.kept.items():
        best = outcome.kept[reading, figure11.OPTIMUM, skew]
        assert all(ours <= most + 1e-9 for ours, most in zip(shares, best, strict=True)), name


def test_keeping_at_random_keeps_the_share_that_is_served(outcome):
    for reading in figure11.READINGS:
        for ratio, share in zip(SETTING.ratios, outcome.kept[reading, "samplew", 0.1], strict=True):
            assert share == pytest.approx(1 / ratio, abs=0.03)


def test_a_run_leaves_a_plot_and_its_claims(outcome, tmp_path):
    figure = papers.Figure("figure11", "reduced", lambda quick, say: outcome, figure11.claims, figure11.plot)
    found = papers.reproduce(Console(quiet=True), figure, tmp_path, quick=True)
    assert load(tmp_path / "figure11.json") == found
    assert (tmp_path / "figure11.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def run():
    import typer

    app = typer.Typer()
    app.command()(papers.main)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_the_list_and_what_is_not_in_it(run):
    assert "figure11" in run("--list").output
    assert "there are: mesh" in " ".join(run("nets").output.split())
    assert "no figure 'figure99'" in " ".join(run("mesh", "figure99").output.split())


@pytest.mark.parametrize(("holds", "code"), [(True, 0), (None, 0), (False, 1)])
def test_a_claim_that_does_not_hold_is_a_failure(run, monkeypatch, tmp_path, holds, code):
    claim = Claim("figure1", "a claim", "so", "so", holds)
    figure = papers.Figure("figure1", "", lambda quick, say: None, lambda data: [claim], lambda data, path: None)
    monkeypatch.setattr(papers, "figures", lambda family: (figure,))
    assert run("mesh", "--out", str(tmp_path)).exit_code == code
