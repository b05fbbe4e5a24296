"""A micro-batch that is run again after a crash: its state is that of the second run, also at the next start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.workshop import STARTED, Program

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


def put(base: Path, first: int, last: int) -> None:
    for number in range(first, last):
        path = base / "in" / f"{number:03d}.parquet"
        pq.write_table(pa.table({"id": range(10 * number, 10 * number + 10)}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)


def run(base: Path, crash: str = "") -> Program:
    number = len(list(base.glob("run-*.log")))
    log, crashes = base / f"run-{number}.log", base / f"crashes-{number}"
    environment = os.environ | {"PENSTOCK_CRASH": crash, "PENSTOCK_CRASH_LOG": str(crashes), "PYTHONPATH": str(ROOT)}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.wild", str(base)],
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    STARTED.append(Program(process, log, crashes))
    STARTED[-1].wait()
    return STARTED[-1]


def test_what_a_replay_stores_replaces_what_was_there(tmp_path):
    for name in ("in", "tmp"):
        (tmp_path / name).mkdir()
    put(tmp_path, 0, 5)
    # The third micro-batch has stored its state and written its results, and Spark does not know yet.
    assert run(tmp_path, "after-sink:3:driver").code == -9
    program = run(tmp_path)
    assert program.code == 0, program.said
    put(tmp_path, 5, 7)
    program = run(tmp_path)
    assert program.code == 0, program.said
    found = [
        number for file in (tmp_path / "results").glob("*.parquet") for number in pq.read_table(file)["id"].to_pylist()
    ]
    assert sorted(found) == list(range(70))
