"""The whole demonstration, small: it verifies itself, draws, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.spark

SMALL = ["demo", "--rows", "20000", "--orders", "20000", "--memory", "16MB"]


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    """A demonstration with a temporary directory of its own; its processes carry a mark."""
    (folder / "tmp").mkdir()
    environment = os.environ | {"TMPDIR": str(folder / "tmp"), "PENSTOCK_TEST_MARK": str(folder), "COLUMNS": "150"}
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *SMALL, *more],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def still_running(folder: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PENSTOCK_TEST_MARK") == str(folder):
                found.append(" ".join(process.cmdline())[:100])
        except psutil.Error:
            continue
    return found


def nothing_is_left(folder: Path) -> None:
    assert list((folder / "tmp").iterdir()) == []
    until = time.monotonic() + 120
    while still_running(folder) and time.monotonic() < until:
        time.sleep(0.2)
    assert still_running(folder) == []


@pytest.mark.slow
def test_demo_verifies_draws_and_leaves_nothing(tmp_path):
    demo = start(tmp_path)
    said, _ = demo.communicate(timeout=500)
    assert demo.returncode == 0, said
    for words in ("prepared layout:", "verified", "0 missing, 0 too many", "rows/s", "penstock-demo.png"):
        assert words in said
    for noise in ("WARN", "ERROR", "Traceback", "TransformWithState"):
        assert noise not in said
    assert (tmp_path / "penstock-demo.png").stat().st_size > 10_000
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["penstock-demo.png", "tmp"]
    nothing_is_left(tmp_path)


@pytest.mark.slow
def test_demo_over_plain_parquet_keeps_what_it_made(tmp_path):
    demo = start(tmp_path, "--plain", "--keep", "kept")
    said, _ = demo.communicate(timeout=500)
    assert demo.returncode == 0, said
    assert "verified" in said
    assert {"products", "orders", "results", "penstock-demo.png"} <= {p.name for p in (tmp_path / "kept").iterdir()}
    nothing_is_left(tmp_path)


@pytest.mark.slow
def test_ctrl_c_stops_cleanly(tmp_path):
    demo = start(tmp_path, "--orders", "4000000")
    assert demo.stdout is not None
    lines = []
    for line in demo.stdout:
        lines.append(line)
        if "batch   1" in line:
            demo.send_signal(signal.SIGINT)
            break
    lines += demo.stdout.readlines()
    assert demo.wait(120) == 130, "".join(lines)
    said = "".join(lines)
    assert "interrupted" in said
    assert "Traceback" not in said
    nothing_is_left(tmp_path)
