"""What a start leaves: nothing where it fails, columns where there are no rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from tests.spark.conftest import FINITE, Desk

pytestmark = pytest.mark.spark


def test_a_start_that_fails_keeps_nothing_and_no_rows_still_have_columns(desk: Desk) -> None:
    """No order has a partner, and none is bad: both folders are empty, and can be read."""
    rows = pa.table({"id": [1, 2], "k": [5_000, 6_000]})
    stock = pa.table({"k": np.arange(2_000), "n": np.arange(2_000) * 3})
    flow = ps.join_table(desk.stream(rows), desk.table(stock, "k"), on="k", memory="64MB")
    places = {name: str(desk.folder / name) for name in flow.channels}
    other = desk.spark.readStream.format("rate").load().writeStream.format("noop").queryName("taken").start()
    try:
        with pytest.raises(Exception, match="taken"):
            flow.start(**places, checkpoint=str(desk.folder / "first"), trigger=FINITE, name="taken")
    finally:
        other.stop()
    flow.start(**places, checkpoint=str(desk.folder / "second"), trigger=FINITE).wait()
    for name, place in places.items():
        assert desk.spark.read.parquet(place).columns == flow._channels[name].names
        assert desk.spark.read.parquet(place).count() == 0
