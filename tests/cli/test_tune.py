"""`penstock tune`, without measuring: what it shows, and what it refuses."""

import re

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.kernels.mesh import tune_cache
from penstock.kernels.mesh.calibrate import calibrate
from tests.kernels.mesh_cost.tables import plain, prepared


@pytest.fixture(autouse=True)
def quickly(monkeypatch, tmp_path):
    """Small windows, one round, no other page sizes."""
    few = {"seconds": 0.1, "windows": (1 << 10, 1 << 13)}
    monkeypatch.setattr(tune_cache, "calibrate", lambda table, width, **_: calibrate(table, width, **few))
    monkeypatch.setattr(tune_cache, "page_variants", lambda *_: [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def tune(*words):
    done = CliRunner().invoke(app, ["tune", *map(str, words)])
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize("make", [plain, prepared])
def test_memory_gives_a_rate(make, tmp_path):
    table = make(tmp_path / "t")
    code, said = tune(table.path, "--key", "id", "--memory", "16MB", "--slots", 2)
    assert code == 0, said
    for word in ("c_IO", "c_O", "rows served, by 2 slots together", "share one pass", "this table", "/s"):
        assert word in said
    again = tune(table.path, "--key", "id", "--memory", "32MB", "--slots", 2)[1]
    assert "measured before" in again


def test_rate_takes_memory(tmp_path):
    code, said = tune(plain(tmp_path / "t").path, "--key", "id", "--rate", 1_000, "--slots", 1)
    assert code == 0, said
    assert "1 slots together" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--memory", "64MB", "--rate", "5"), "exclude each other"),
        (("--rate", "1e15"), "more than this join can serve"),
        (("--rate", "-1"), "more than 0"),
        (("--memory", "1KB"), "Give at least"),
        (("--memory", "lots"), "is not a size"),
        (("--slots", "0"), "slots=0 is not between 1 and 64"),
        (("--row", "-1"), "is not a size"),
    ],
)
def test_what_cannot_be_is_refused(words, message, tmp_path):
    code, said = tune(plain(tmp_path / "t").path, "--key", "id", *words)
    assert code == 1
    assert message in said


def test_as_much_memory_as_it_says_is_enough(tmp_path):
    table = plain(tmp_path / "t")
    said = tune(table.path, "--key", "id", "--memory", "1KB", "--slots", 3)[1]
    enough = re.search(r"at least --memory (\S+),", said)[1]
    code, said = tune(table.path, "--key", "id", "--memory", enough, "--slots", 3)
    assert code == 0, said


def test_an_empty_table_is_refused(tmp_path):
    import pyarrow.parquet as pq

    from tests.kernels.mesh_cost.tables import rows

    (tmp_path / "t").mkdir()
    pq.write_table(rows().slice(0, 0), tmp_path / "t" / "none.parquet")
    code, said = tune(tmp_path / "t", "--key", "id")
    assert code == 1
    assert "is empty" in said
