"""Faults planted on purpose must be found by the very checks that the other tests rely on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.driver import plant
from tests.faults.workshop import Workshop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("fault", "found"), [("drop-row", r"[12] rows missing"), ("repeat-batch", r"0 rows missing \[\], [1-9]")]
)
def test_planted_fault_is_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, found: str
) -> None:
    shop = Workshop(tmp_path / "shop", files=2)
    plant(fault, monkeypatch)
    shop.begin(spark).wait()
    with pytest.raises(AssertionError, match=found):
        shop.check("ledger")


@pytest.mark.slow
def test_sink_without_ledger_killed_after_its_write_repeats_rows(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "shop", files=4)
    options = ("--sinks", "ledger", "--fault", "no-ledger")
    shop.run(*options, crash="after-sink:2:driver")
    shop.finish(*options)
    with pytest.raises(AssertionError, match=r"results: 0 rows missing \[\], [1-9]\d* too many"):
        shop.check("ledger")
