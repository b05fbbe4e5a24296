"""A disk that is full, then has room again; directories that cannot be written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadOption
from tests.faults.workshop import Workshop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here (it takes root)")
    yield place
    # Spark may still have files of the failed attempt open.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"\0" * 4096)
        except OSError:
            return ballast


@pytest.mark.parametrize("full", ["out", "ck"])
def test_disk_full_then_room_again(spark: SparkSession, tmp_path: Path, small_disk: Path, full: str) -> None:
    """The output's disk, and the checkpoint's: the query stops with what the system says, and then goes on exactly."""
    shop = Workshop(tmp_path / "shop", files=6)
    (small_disk / "on-disk").mkdir()
    (shop.base / full).symlink_to(small_disk / "on-disk")
    shop.leave_waiting(spark, 3)
    ballast = fill(small_disk)
    with pytest.raises(Exception, match="No space left on device"):
        shop.begin(spark).wait()
    shop.check_so_far()
    ballast.unlink()
    shop.begin(spark).wait()
    shop.check("ledger")


def test_directory_that_cannot_be_made_is_refused_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "shop", files=1)
    (shop.base / "out").write_text("a file where a directory should be")
    with pytest.raises(BadOption, match="out cannot be written"):
        shop.begin(spark)
    (shop.base / "out").unlink()
    (shop.base / "ck2").write_text("")
    with pytest.raises(BadOption, match=r"checkpoint .* cannot be written"):
        shop.flow(spark).start(checkpoint=str(shop.base / "ck2"), results=str(shop.base / "out2"))


def test_one_place_for_two_channels_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "shop", files=1)
    flow = shop.flow(spark)
    for other in ("out", "out/aside"):
        with pytest.raises(BadOption, match="directory"):
            flow.start(checkpoint=str(tmp_path / "ck"), results=str(tmp_path / "out"), set_aside=str(tmp_path / other))
