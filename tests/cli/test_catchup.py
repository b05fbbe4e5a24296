"""`penstock catchup` refuses what it can before a JVM is started; what it does is in `tests/spark/test_catch_up.py`."""

from __future__ import annotations

import pytest

from penstock.spark.sink import Ledger


@pytest.fixture
def no_spark(monkeypatch):
    monkeypatch.setattr("penstock.cli.catchup.session", lambda *_: pytest.fail("Spark was started"))


@pytest.mark.usefixtures("no_spark")
def test_a_path_that_is_no_archive(run, products, tmp_path):
    options = ("--table", products, "--key", "product_id", "--into", tmp_path / "out")
    code, said = run("catchup", products, *options)
    assert (code, f"{products} is not an archive" in said) == (1, True)
    code, said = run("catchup", tmp_path / "none", *options)
    assert (code, "none does not exist" in said) == (1, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_spark")
def test_a_table_that_is_not_there(run, products, tmp_path):
    Ledger(tmp_path / "archive", "a-checkpoint").claim()
    options = ("--key", "product_id", "--into", tmp_path / "out")
    code, said = run("catchup", tmp_path / "archive", "--table", tmp_path / "product", *options)
    assert (code, "does not exist" in said, "'products'" in said) == (1, True, True)
    code, said = run("catchup", tmp_path / "archive", "--table", products, "--key", "id", *options[2:])
    assert (code, "UnknownColumn" in said) == (1, True)


@pytest.mark.usefixtures("no_spark")
def test_a_join_that_there_is_not(run, products, tmp_path):
    Ledger(tmp_path / "archive", "a-checkpoint").claim()
    options = ("--table", products, "--key", "product_id", "--into", tmp_path / "out")
    code, said = run("catchup", tmp_path / "archive", *options, "--how", "outer")
    assert (code, "inner, left, semi, anti" in said) == (1, True)
