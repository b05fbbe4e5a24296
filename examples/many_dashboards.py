"""Three dashboards ask which clicks followed an impression, each within another time; a fourth comes, one goes.

    ./dev run python examples/many_dashboards.py

One join serves them all. Each gets what it would get alone, in the order of its later rows, and the one over ten
seconds does not wait for the one over ten minutes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

WINDOWS = {"at_once": "10 seconds", "soon": "1 minute", "ever": "10 minutes"}
ADS = 50


def main(folder: Path) -> dict[str, int]:
    spark = ps.session()
    for number in range(2):
        write(folder, number)
        flow = ps.join_shared(
            spark.readStream.schema("ad long, shown_at timestamp").parquet(str(folder / "impressions")),
            spark.readStream.schema("ad long, clicked_at timestamp, person long").parquet(str(folder / "clicks")),
            on="ad",
            windows=WINDOWS,
            time=("shown_at", "clicked_at"),
            memory="64MB",
            slots=1,
            changes=folder / "queries",
        )
        if number == 0:
            print(
                flow.explain(),
                "\n\nResults of each query, and how much work (rows looked at, pairs found) came before them:",
            )
        else:
            # From the next micro-batch on.
            flow.add("half", "5 minutes")
            flow.remove("soon")
        places = {name: str(folder / name) for name in flow.channels}
        flow.start(**places, checkpoint=str(folder / "checkpoint"), trigger={"availableNow": True}).wait()
        for name, said in flow.progress()["queries"].items():
            print(f"  {name:8} {said['results']:>7,.0f} results, after {said['work_mean']:,.0f} units of work")
    return {name: rows(folder / name) for name in (*WINDOWS, "added")}


def write(folder: Path, number: int) -> None:
    """Half an hour of impressions and clicks."""
    rng = np.random.default_rng(number)
    for side, time, count in (("impressions", "shown_at", 1_500), ("clicks", "clicked_at", 600)):
        (folder / side).mkdir(exist_ok=True)
        seconds = 1_800 * number + np.sort(rng.random(count)) * 1_800
        moments = pa.array((1_700_000_000e6 + seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
        columns = {"ad": rng.integers(0, ADS, count), time: moments}
        if side == "clicks":
            columns["person"] = rng.integers(0, 100, count)
        pq.write_table(pa.table(columns), folder / side / f"{number}.parquet")


def rows(place: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in place.glob("*.parquet"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(main(Path(folder)))
