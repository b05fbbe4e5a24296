"""Stream equals batch, however the input is cut into files, in whatever order, with any number of slots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.faults.workshop import Workshop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(("seed", "cuts", "slots", "memory"), [(1, 1, 1, "8MB"), (2, 4, 3, "16MB"), (3, 7, 2, "8MB")])
def test_results_do_not_depend_on_cuts(
    spark: SparkSession, tmp_path: Path, seed: int, cuts: int, slots: int, memory: str
) -> None:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    shop = Workshop(tmp_path / "shop", files=2)
    rows = [json.dumps(row) for row in shop.orders.to_pylist()]
    rng.shuffle(rows)
    for path in (shop.base / "orders").iterdir():
        path.unlink()
    shop.aside.clear()
    for number, part in enumerate(np.split(np.array(rows), np.sort(rng.integers(0, len(rows), cuts - 1)))):
        (shop.base / "orders" / f"{number}.json").write_text("\n".join([*part, ""]))
    shop.begin(spark, slots=slots, memory=memory, pages_per_step=int(rng.integers(1, 12))).wait()
    shop.check("ledger")
