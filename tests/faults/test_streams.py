"""Killed and started again: live results and what catch-up finds are the exact window join, each once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.workshop import STARTED, Program, same_bag

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = Path(__file__).parent / "streams_driver.py"
COLUMNS = "k, epoch_us(lt), v, epoch_us(rt), w"


def write(base, files=6, rows=200):
    """Two minutes of rows, out of order by up to three seconds."""
    rng = np.random.default_rng(7)
    (base / "tmp").mkdir()
    for side, time, value in (("left", "lt", "v"), ("right", "rt", "w")):
        (base / side).mkdir()
        at = np.sort(rng.integers(0, 120_000_000, files * rows))
        at = at[np.argsort(at + rng.integers(0, 3_000_000, len(at)))]
        columns = {
            "k": rng.integers(0, 60, len(at)),
            time: pa.array(1_700_000_000_000_000 + at).cast(pa.timestamp("us", "UTC")),
            value: np.arange(len(at)),
        }
        table = pa.table(columns | ({"pad": ["x" * 250] * len(at)} if side == "left" else {}))
        for number in range(files):
            path = base / side / f"{number}.parquet"
            pq.write_table(table.slice(number * rows, rows), path)
            os.utime(path, (1_700_000_000 + number,) * 2)


def run(base, crash=""):
    number = len(list(base.glob("run-*.log")))
    log, crashes = base / f"run-{number}.log", base / f"crashes-{number}"
    environment = os.environ | {"PENSTOCK_CRASH": crash, "PENSTOCK_CRASH_LOG": str(crashes)}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(base)],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    STARTED.append(Program(process, log, crashes))
    STARTED[-1].wait()
    assert crash.split(",") == (STARTED[-1].crashed or [""])
    return STARTED[-1]


def bag(*places):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        files = [str(file) for place in places for file in place.glob("*.parquet")]
        found = connection.sql(f"SELECT {COLUMNS} FROM read_parquet({files})").fetchall() if files else []
    from collections import Counter

    return Counter(found)


def exact(base):
    from collections import Counter

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        query = f"""SELECT {COLUMNS} FROM '{base}/left/*.parquet' JOIN '{base}/right/*.parquet' USING (k)
            WHERE abs(epoch_us(rt) - epoch_us(lt)) <= 20000000"""
        return Counter(connection.sql(query).fetchall())


def test_killed_by_day_and_by_night(tmp_path):
    base = tmp_path
    write(base)
    want = exact(base)
    # The driver when the sink has written and Spark has not; a worker while it stores state; the catch-up at its end.
    for crash in ("after-sink:3:driver", "between-chunks:9:worker,before-commit:20:driver"):
        assert run(base, crash).code == -9
        assert not bag(base / "results") - want
    program = run(base)
    assert program.code == 0, program.said
    live, found = bag(base / "results"), bag(base / "found")
    same_bag(live + found, want, "live and caught up")
    assert sum(live.values()) < sum(want.values())
    assert sum(found.values()) > 0
