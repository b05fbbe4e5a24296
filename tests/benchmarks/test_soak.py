"""The soak: it sees what grows, and nothing does."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks.machine import ROOT
from benchmarks.soak import SLACK, Look, grown

FLAT = Look(1e9, 3e8, 1e9, 400, 300, 100, 50, 1000)


def test_what_stays_is_flat():
    assert grown([FLAT] * 30) == {}


@pytest.mark.parametrize("name", SLACK)
def test_what_grows_is_seen(name):
    looks = [replace(FLAT, **{name: getattr(FLAT, name) * (1 + at)}) for at in range(30)]
    assert list(grown(looks)) == [name]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_minute_of_evictions_leaves_nothing_behind(tmp_path):
    command = [sys.executable, "-m", "benchmarks.soak", "evicting", "--minutes", "1.2", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    looks = [Look(**each) for each in json.loads((tmp_path / "soak-evicting.json").read_text())]
    assert (tmp_path / "soak-evicting.png").exists()
    # A minute is too short to judge the heap of a JVM and how often Spark cleans checkpoints, and others use the cores.
    steady = {"worker_bytes", "open_files", "threads", "temporary_files"}
    assert not steady & set(grown(looks)), done.stdout
