"""What is set aside can be told, also where Python has no such value; it stopped the query."""

import json

import numpy as np
import pyarrow as pa
import pytest

from penstock.kernels.mesh.pairing import set_aside
from penstock.kernels.standing.reading import as_set_aside
from penstock.kernels.window.intake import aside

FAR = 1 << 60
INNER = pa.struct([("at", pa.timestamp("us")), ("name", pa.string())])
ROW = pa.record_batch(
    {
        "n": [1],
        "at": pa.array([FAR], pa.timestamp("us", "UTC")),
        "day": pa.array([1 << 25], pa.int32()).cast(pa.date32()),
        "within": pa.array([[{"at": FAR, "name": "é"}, None]], pa.list_(INNER)),
    }
)
EMITTERS = {
    "mesh": lambda: set_aside(ROW, "wide").rows,
    "window": lambda: next(aside(ROW, np.array([False]), "late", {"rows_set_aside": 0.0})).rows,
    "standing": lambda: as_set_aside(ROW, ["no time"], "left"),
}


@pytest.mark.parametrize("kernel", EMITTERS)
def test_times_beyond_the_year_9999_are_set_aside(kernel):
    (raw,) = EMITTERS[kernel]()["raw"].to_pylist()
    assert json.loads(raw) == {
        "n": 1,
        "at": "38504-08-17T21:30:06.846976+00:00",
        "day": "93838-12-01",
        "within": [{"at": "38504-08-17T21:30:06.846976", "name": "é"}, None],
    }
