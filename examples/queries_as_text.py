"""Five people ask about the same sensors, in SQL: three windows of one join, and two ranges of one aggregate.

    ./dev run python examples/queries_as_text.py

Two flows answer all five. What each of them is, and with whom it shares, is told by `explain`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

JOINED = "SELECT t.place, t.degrees, h.percent FROM temperature t, humidity h WHERE t.place = h.place"
TEXTS = {
    "sultry": f"{JOINED} AND t.degrees > 30 AND h.percent > 80 WINDOW 1 MINUTE",
    "dry": f"{JOINED} AND h.percent < 20 WINDOW 10 MINUTES",
    "all": f"{JOINED} WINDOW 30 SECONDS",
    "coldest_low": "SELECT MIN(degrees) AS coldest FROM temperature WHERE altitude < 500",
    "coldest_high": "SELECT MIN(degrees) AS coldest FROM temperature WHERE altitude BETWEEN 1500 AND 3000",
}


def main(folder: Path) -> dict[str, int]:
    spark = ps.session()
    write(folder)
    read = spark.readStream
    degrees = read.schema("place long, altitude long, degrees double, at timestamp").parquet(str(folder / "degrees"))
    percent = read.schema("place long, percent double, at timestamp").parquet(str(folder / "percent"))
    queries = ps.sql(
        TEXTS,
        streams={
            "temperature": ps.stream(degrees, time="at", key="place"),
            "humidity": ps.stream(percent, time="at"),
        },
    )
    print(queries.explain())
    places = {"results": folder / "out", "set_aside": folder / "aside", "checkpoint": folder / "checkpoint"}
    queries.start(**places, trigger={"availableNow": True}).wait()
    return {name: rows(folder / "out" / name) for name in TEXTS}


def write(folder: Path) -> None:
    """An hour of measurements at fifty places."""
    rng = np.random.default_rng(1)
    count, altitudes = 2_000, rng.integers(0, 3_000, 50)
    for name, column, values in (
        ("degrees", "degrees", rng.normal(20, 9, count).round(1)),
        ("percent", "percent", rng.uniform(0, 100, count).round()),
    ):
        (folder / name).mkdir()
        place = rng.integers(0, 50, count)
        moments = (1_700_000_000e6 + np.sort(rng.random(count)) * 3_600e6).astype(np.int64)
        columns = {"place": place, "altitude": altitudes[place]} if name == "degrees" else {"place": place}
        columns |= {column: values, "at": pa.array(moments).cast(pa.timestamp("us", "UTC"))}
        pq.write_table(pa.table(columns), folder / name / "0.parquet")


def rows(place: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in place.glob("*.parquet"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(main(Path(folder)))
