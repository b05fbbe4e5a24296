"""The benchmarks themselves, small: every contestant runs, and its results are right (a wrong one raises)."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.machine import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(1800)
def test_quick_run(tmp_path):
    names = ["runtime", "join_table/discard", "join_table/write", "join_table/keys"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *names, "--quick", "--results", str(tmp_path / "results")],
        cwd=ROOT,
        env=os.environ | {"PENSTOCK_BENCH_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    [kept] = (tmp_path / "results").glob("*.json")
    measured = json.loads(kept.read_text())["benchmarks"]
    assert [one["name"] for one in measured] == ["runtime/rate", "runtime/floor", *names[1:]]
    for benchmark in measured:
        assert benchmark["missing"] == {}
        assert all(one["seconds"]["count"] for one in benchmark["contestants"])
        assert len(benchmark["contestants"]) >= 3
