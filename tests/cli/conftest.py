"""Small tables for the commands, and a way to run these as on a terminal of a fixed width."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from penstock.cli.app import app


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output

    return run


@pytest.fixture
def products(tmp_path: Path) -> Path:
    """Five thousand products in five pages."""
    place = tmp_path / "products"
    place.mkdir()
    ids = np.random.default_rng(1).permutation(5000)
    table = pa.table(
        {
            "product_id": ids,
            "shop": ids % 7,
            "price": ids / 100,
            "name": [f"product number {i} of this catalogue" for i in ids],
        }
    )
    pq.write_table(table, place / "a.parquet", row_group_size=1000)
    return place
