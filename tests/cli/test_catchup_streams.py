"""`penstock catchup-streams` refuses what it can before a JVM is started; what it does is in `tests/spark`."""

from __future__ import annotations

import pytest

from penstock.spark.sink import Ledger

OPTIONS = ("--on", "id", "--within", "2 hours", "--time", "asked_at,answered_at")


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    monkeypatch.setattr("penstock.cli.catchup_streams.session", lambda *_: pytest.fail("Spark was started"))


def test_a_path_that_is_no_archive(run, tmp_path):
    code, said = run("catchup-streams", tmp_path / "none", *OPTIONS, "--into", tmp_path / "out")
    assert (code, "does not exist" in said) == (1, True)


def test_a_window_that_is_none(run, tmp_path):
    for channel in ("archive_left", "archive_right", "residence"):
        Ledger(tmp_path / channel, "a-checkpoint").claim()
    options = [*OPTIONS, "--into", tmp_path / "out"]
    options[3] = "two hours"
    code, said = run("catchup-streams", tmp_path, *options)
    assert (code, "within='two hours' is not a duration" in said) == (1, True)
