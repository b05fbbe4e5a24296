"""Killed and started again: live results and what catch-up finds are the exact window join, each once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
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
    for side, when, value in (("left", "lt", "v"), ("right", "rt", "w")):
        (base / side).mkdir()
        at = np.sort(rng.integers(0, 120_000_000, files * rows))
        at = at[np.argsort(at + rng.integers(0, 3_000_000, len(at)))]
        columns = {
            "k": rng.integers(0, 60, len(at)),
            when: pa.array(1_700_000_000_000_000 + at).cast(pa.timestamp("us", "UTC")),
            value: np.arange(len(at)),
        }
        table = pa.table(columns | ({"pad": ["x" * 250] * len(at)} if side == "left" else {}))
        for number in range(files):
            path = base / side / f"{number}.parquet"
            pq.write_table(table.slice(number * rows, rows), path)
            os.utime(path, (1_700_000_000 + number,) * 2)


def start(base, policy="prob", crash=""):
    number = len(list(base.glob("run-*.log")))
    log, crashes = base / f"run-{number}.log", base / f"crashes-{number}"
    environment = os.environ | {"PENSTOCK_CRASH": crash, "PENSTOCK_CRASH_LOG": str(crashes)}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(base), policy],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    STARTED.append(Program(process, log, crashes))
    return STARTED[-1]


def run(base, policy="prob", crash=""):
    program = start(base, policy, crash)
    program.wait()
    assert crash.split(",") == (program.crashed or [""])
    return program


def bag(*places):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        files = [str(file) for place in places for file in place.glob("*.parquet")]
        found = connection.sql(f"SELECT {COLUMNS} FROM read_parquet({files})").fetchall() if files else []
    return Counter(found)


def exact(base):
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
        assert run(base, crash=crash).code == -9
        assert not bag(base / "results") - want
    finish(base, want)


@pytest.mark.parametrize("policy", ["heeb"])
def test_killed_at_random_moments(tmp_path, policy):
    seed = 40
    rng = np.random.default_rng(seed)
    write(tmp_path)
    want = exact(tmp_path)
    for _ in range(2):
        program = start(tmp_path, policy)
        program.wait_for(program.started)
        delay = float(rng.uniform(0, 4))
        print(f"seed {seed}: killed after {delay:.3f} s")
        time.sleep(delay)
        program.kill()
        assert not bag(tmp_path / "results") - want
    finish(tmp_path, want, policy)


def finish(base, want, policy="prob"):
    program = run(base, policy)
    assert program.code == 0, program.said
    live, found = bag(base / "results"), bag(base / "found")
    same_bag(live + found, want, "live and caught up")
    assert sum(live.values()) < sum(want.values())
    assert sum(found.values()) > 0
