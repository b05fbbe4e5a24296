"""Entries of a change log are taken in the order in which they got their names, however a listing falls out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.plan.view import Changing
from penstock.spark.views.logs import Log

#: Gives files their names, in order, some at a time.
WRITER = """
import os, sys, time
for number in range(int(sys.argv[2])):
    os.rename(f"{sys.argv[1]}/.{number:06d}.parquet", f"{sys.argv[1]}/{number:06d}.parquet")
    if number % 5 == 4:
        time.sleep(0.002)
"""


def log(place: Path) -> Log:
    return Log("t", place, Changing(place, place), pa.schema([("k", pa.int64())]))


def test_an_entry_that_a_listing_missed_is_not_overtaken(tmp_path: Path, monkeypatch: Any) -> None:
    listings = iter([["b", "d"], ["e", "d", "c", "b", ".f"]])
    monkeypatch.setattr(Path, "iterdir", lambda self: iter([self / name for name in next(listings)]))
    # `c` was there before `d`; whether something came before `e` is not known yet.
    assert log(tmp_path).names() == ["b", "c", "d"]


def test_listings_have_no_gaps_while_files_come(tmp_path: Path) -> None:
    count = 2_000
    for number in range(count):
        (tmp_path / f".{number:06d}.parquet").touch()
    with subprocess.Popen([sys.executable, "-c", WRITER, os.fspath(tmp_path), str(count)]) as writer:
        while writer.poll() is None:
            names = log(tmp_path).names()
            assert names == [f"{number:06d}.parquet" for number in range(len(names))]
    assert writer.returncode == 0
    assert len(log(tmp_path).names()) == count
