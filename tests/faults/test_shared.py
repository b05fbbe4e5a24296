"""A shared join, killed with work left over in its queues: every query still gets its own results, each once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from tests.faults.test_streams import write
from tests.faults.workshop import STARTED, Program, same_bag

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = Path(__file__).parent / "shared_driver.py"
COLUMNS = "k, epoch_us(lt), v, epoch_us(rt), w"
SECONDS = {"fast": 1, "added": 5, "slow": 20}
SELECTED = {"added": "AND w > 600"}


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


def rows(query):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return Counter(connection.sql(query).fetchall())


def got(base, name):
    files = [str(file) for file in (base / name).glob("*.parquet")]
    return rows(f"SELECT {COLUMNS} FROM read_parquet({files})") if files else Counter()


def exact(base, name):
    return rows(
        f"""SELECT {COLUMNS} FROM '{base}/left/*.parquet' JOIN '{base}/right/*.parquet' USING (k)
            WHERE abs(epoch_us(rt) - epoch_us(lt)) <= {SECONDS[name]}000000 {SELECTED.get(name, "")}"""
    )


def test_killed_with_work_left_over(tmp_path):
    write(tmp_path)
    want = {name: exact(tmp_path, name) for name in SECONDS}
    assert want["added"]
    # The driver when the sink has written and Spark has not; a worker while it stores what waits.
    for crash in ("after-sink:3:driver", "between-chunks:9:worker,before-commit:8:driver"):
        assert run(tmp_path, crash).code == -9
        for name in SECONDS:
            assert not got(tmp_path, name) - want[name]
    program = run(tmp_path)
    assert program.code == 0, program.said
    for name in SECONDS:
        same_bag(got(tmp_path, name), want[name], name)
