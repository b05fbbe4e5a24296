"""A refresh that is killed anywhere leaves the last version readable, and the next run goes on from it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from penstock.spark.views.store import Store
from tests.spark.views.world import World, same

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
SQL = "SELECT name, COUNT(*) AS n, MIN(amount) AS lo, SUM(qty) AS s FROM orders JOIN customers USING (c) GROUP BY name"
USED = ("orders", "customers")
FILES = 4


@pytest.fixture
def world(spark, tmp_path):
    made = World(tmp_path, seed=5, rows=40)
    made.maintainer(spark, SQL, USED)._store.close()
    return made


def run(world: World, crash: str = "", kill_after: float | None = None) -> int:
    """The driver, in a session of its own, until it ends or is killed with all it started."""
    number = len(list(world.folder.glob("run-*")))
    environment = os.environ | {"PENSTOCK_CRASH": crash, "PENSTOCK_CRASH_LOG": str(world.folder / f"crash-{number}")}
    command = [sys.executable, "-m", "tests.spark.views.driver", str(world.folder), SQL, ",".join(USED)]
    with (world.folder / f"run-{number}").open("wb") as out:
        program = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    said = world.folder / f"run-{number}"
    try:
        if kill_after is not None:
            until = time.monotonic() + 300
            while b"opened" not in said.read_bytes() and program.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(kill_after)
        else:
            program.wait(300)
    finally:
        end_session(program.pid)
        code = program.wait(30)
    if crash:
        assert (world.folder / f"crash-{number}").exists(), said.read_text()[-3000:]
    elif kill_after is None:
        assert code == 0, said.read_text()[-3000:]
    return code


def end_session(session: int) -> None:
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session:
                process.kill()
        except (OSError, psutil.Error):
            continue


def changes(world: World) -> None:
    for _ in range(FILES // 2):
        for name in USED:
            world.change(name, 6)


def check(spark, world: World, whole: bool) -> None:
    """The last version is the query over exactly the changes that its manifest says; none is lost, none is twice."""
    view = world.maintainer(spark, SQL, USED)
    try:
        left = {name: len(view.waiting(name)) for name in USED}
        for name in USED:
            world.taken[name] = world.after(name, FILES // 2 - left[name])
        same(view.answer(view.manifest).toArrow(), world.judge(SQL), {"left": left})
        assert not (whole and any(left.values()))
        for name in USED:
            view.advance(name)
            world.take(name)
        same(view.answer(view.manifest).toArrow(), world.judge(SQL), {"end": True})
    finally:
        view._store.close()


@pytest.mark.slow
def test_killed_before_the_commit_and_after(spark, world):
    """The two moments that matter, in one run each: everything is written but the manifest; the manifest is there."""
    changes(world)
    run(world, crash="view-before-manifest:2:driver")
    before = Store(world.folder / "view").last()
    assert before is not None
    assert before.version == 1
    check(spark, world, whole=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_again_and_again(spark, world):
    """At two points where a refresh can die (`test_store.py` has all), at a random moment, and then not at all."""
    changes(world)
    for number, point in enumerate(("view-after-state", "view-after-manifest")):
        run(world, crash=f"{point}:1:driver")
        last = Store(world.folder / "view").last()
        assert last is not None
        # The manifest is the commit: killed before it, the version is not there; after it, it is.
        assert last.version == (1 if point == "view-after-manifest" else 0), (number, point)
    draw = random.Random(1)
    run(world, kill_after=draw.uniform(0, 4))
    run(world)
    check(spark, world, whole=True)
