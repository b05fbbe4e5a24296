"""`./dev reproduce` without a name: every family runs, whatever becomes of the others, and one page tells of all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAPERS = Path(__file__).parents[2] / "papers"

FAMILY = '''"""A family that {about}."""
import os
from papers.claims import Claim
from papers.figure import Figure


def run(quick, say):
    say("half way")
    {does}
    return quick


def claims(quick):
    return [Claim("1", "more is <more>", "2 > 1", f"quick: {{quick}}", {holds}), Claim("1", "a number", "3", "4", None)]


def plot(quick, path):
    path.write_bytes(b"a picture")


FIGURES = (Figure("figure1", "what is more", run, claims, plot), Figure("figure2", "the rest", run, claims, plot))
'''


def build(place: Path, **families: str) -> None:
    """The machinery beside families of a few lines."""
    (place / "papers").mkdir()
    for module in PAPERS.glob("*.py"):
        shutil.copy(module, place / "papers")
    for name, text in families.items():
        (place / "papers" / name).mkdir()
        (place / "papers" / name / "__init__.py").write_text(text)


def family(about: str, does: str = "pass", holds: bool = True) -> str:
    return FAMILY.format(about=about, does=does, holds=holds)


def reproduce(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "papers", *arguments]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A run over families that hold, that do not, that raise, that die, and one that cannot even be loaded."""
    place = tmp_path_factory.mktemp("mixed")
    build(
        place,
        a_unloadable="import nothing_of_this_name",
        b_dies=family("is killed", "os._exit(9)"),
        c_raises=family("raises", "raise ValueError('out of <luck>')"),
        d_doubtful=family("says what is not so", holds=False),
        e_good=family("is as it says"),
    )
    done = reproduce(place, "--quick")
    return done, (place / "papers" / "results" / "quick" / "report.html").read_text(), place


def test_a_family_that_fails_does_not_hide_the_others(mixed):
    done, page, place = mixed
    assert done.returncode == 1
    assert "2 claims hold, 2 do not, 4 numbers are for comparison, 5 figures failed." in done.stdout
    assert "2 claims hold, 2 do not, 4 numbers are for comparison, 5 figures failed." in page
    for name in ("a_unloadable", "b_dies", "c_raises", "d_doubtful", "e_good"):
        assert f'<h2 id="{name}">' in page
    assert "No module named &#x27;nothing_of_this_name&#x27;" in page
    assert "ended with code 9 before it was done" in page
    assert "out of &lt;luck&gt;" in page
    kept = json.loads((place / "papers/results/quick/e_good/figure1.json").read_text())
    assert kept["quick"] is True
    assert [claim["holds"] for claim in kept["claims"]] == [True, None]


def test_the_page_needs_nothing_beside_it(mixed):
    _, page, _ = mixed
    assert page.count('src="data:image/png;base64,') == 4  # the plots of two families that drew them
    assert not re.search(r"(src|href)=[\"'](?!data:|#)", page)
    assert "<script" not in page
    assert page.count("more is &lt;more&gt;") == 4
    assert "./dev reproduce e_good figure1 --quick" in page


def test_progress_and_doubtful_claims_are_on_the_terminal(mixed):
    done, _, _ = mixed
    assert "e_good (5 of 5)" in done.stdout
    assert "figure1 · half way" in done.stderr
    assert "does not hold" in done.stdout.split("all families")[1]
    assert "report.html" in done.stdout


def test_all_is_well(tmp_path):
    build(tmp_path, one=family("is as it says"))
    done = reproduce(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 claims hold, 0 do not, 2 numbers are for comparison." in done.stdout
    assert "(quick)" not in (tmp_path / "papers" / "results" / "report.html").read_text()
