"""Join two streams by day with less memory than the window needs, and find by night exactly what was missed.

./dev run python examples/day_and_night.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

ROWS, HOUR = 4_000, 3_600_000_000


def main(folder: Path) -> dict[str, int]:
    write_data(folder)
    spark = ps.session()
    schemas = {"asked": "id long, asked_at timestamp, question string", "answered": "id long, answered_at timestamp"}
    asked, answered = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name, schema in schemas.items()
    )
    join = {"on": "id", "within": "2 hours", "time": ("asked_at", "answered_at"), "lateness": "10 minutes"}

    # By day: results as memory allows, and every row goes to the archive.
    flow = ps.join_streams(asked, answered, memory="512KB", policy="prob", archive=True, **join)
    print(flow.explain())
    places = {name: str(folder / name) for name in ("results", "late_left", "late_right", "set_aside")}
    day = flow.start(
        **places, **ps.archive(folder / "archive"), checkpoint=str(folder / "ck"), trigger={"availableNow": True}
    )
    day.wait()
    last = flow.progress()["last"]
    print(f"by day    {_count(folder / 'results'):,} results; about {last['recall_estimate']:.0%} of all")

    # By night: what is missing, from the archive alone.
    night = ps.catch_up_streams(spark, folder / "archive", into=folder / "caught-up", **join)
    print(f"by night  {night.results:,} results of {night.left_early:,} rows that had to go too soon")

    # The judge: Spark's own join over all rows at once.
    exact = spark.read.parquet(str(folder / "asked")).join(spark.read.parquet(str(folder / "answered")), "id")
    wanted = exact.where("abs(timestampdiff(MICROSECOND, asked_at, answered_at)) <= 7200000000").count()
    found = {"day": _count(folder / "results"), "night": night.results}
    print(f"together  {sum(found.values()):,} of {wanted:,}")
    return found


def write_data(folder: Path) -> None:
    """A day of questions and answers, in eight files each; every answer comes within two hours or so."""
    rng = np.random.default_rng(1)
    at = np.sort(rng.integers(0, 24 * HOUR, ROWS))
    ids = rng.integers(0, 500, ROWS)
    later = at + rng.integers(0, 3 * HOUR, ROWS)
    order = np.argsort(later)
    start = 1_714_521_600_000_000
    tables = {
        "asked": {"id": ids, "asked_at": _moments(start + at), "question": ["why? " * 30] * ROWS},
        "answered": {"id": ids[order], "answered_at": _moments(start + later[order])},
    }
    for name, columns in tables.items():
        (folder / name).mkdir()
        for number, part in enumerate(np.array_split(np.arange(ROWS), 8)):
            path = folder / name / f"{number}.parquet"
            pq.write_table(pa.table(columns).take(pa.array(part)), path)
            # Spark reads files in the order of their times.
            os.utime(path, (1_700_000_000 + number,) * 2)


def _moments(micros: np.ndarray) -> pa.Array:
    return pa.array(micros).cast(pa.timestamp("us", tz="UTC"))


def _count(place: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in place.glob("*.parquet"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
