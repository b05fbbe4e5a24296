"""Killed at every named point and at random moments, and started again: nothing missing, nothing twice.

A series is one output: killed at one point, started again, killed at the next, and so on to the end. After each kill
what readers see must be right as far as it goes; at the end it must be all. A point that was never hit fails the test.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from penstock.spark.crash import IN_WORKERS, POINTS
from tests.faults.workshop import Workshop

pytestmark = pytest.mark.spark

#: At which hit each point kills: late enough that packets wait, early enough that input is left for the next.
HITS = {
    "after-read": 5,
    "in-restore": 2,
    "between-chunks": 5,
    "after-store": 6,
    "before-sink": 2,
    "in-sink": 4,
    "before-commit": 3,
    "in-commit": 5,
    "after-sink": 2,
    "after-commit": 2,
}


def kill_at(shop: Workshop, points: list[str]) -> None:
    for point in points:
        program = shop.run(crash=f"{point}:{HITS[point]}:driver")
        assert program.code == -9, program.said
        assert not program.members()
        shop.check_so_far()


def nothing_left(shop: Workshop, *, log: bool = False) -> None:
    """What killed runs left in the temporary directory is theirs; a run that ends leaves nothing of its own, but for
    Spark's log if that tells of an error.
    """
    for path in (shop.base / "tmp").iterdir():
        ours = path.stat().st_mtime >= shop.began_last and not (log and path.match("penstock-spark-*.log"))
        assert not ours, f"{path} was left by a run that ended"


def test_short_series(tmp_path: Path) -> None:
    """The point where an unprotected sink repeats rows, then a worker in the middle of storing state."""
    shop = Workshop(tmp_path / "shop", files=5)
    kill_at(shop, ["after-sink"])
    program = shop.run(crash="between-chunks:2:worker")
    assert program.code == 0, program.said
    shop.check()
    nothing_left(shop, log=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_driver_killed_at_every_point(tmp_path: Path) -> None:
    assert set(HITS) == set(POINTS)
    shop = Workshop(tmp_path / "shop", files=30)
    kill_at(shop, list(POINTS))
    shop.finish()
    shop.check()
    nothing_left(shop)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_join_without_state_is_killed_at_every_point(tmp_path: Path) -> None:
    """Driver and workers; points in the state's own code are never reached."""
    shop = Workshop(tmp_path / "shop", files=24)
    points = [point for point in POINTS if point not in ("in-restore", "between-chunks", "after-store")]
    for point in points:
        program = shop.run("--division", "input", crash=f"{point}:{HITS[point]}:driver")
        assert program.code == -9, program.said
        shop.check_so_far()
    workers = [point for point in points if point in IN_WORKERS]
    program = shop.run("--division", "input", crash=",".join(f"{point}:2:worker" for point in workers))
    assert program.code == 0, program.said
    shop.check()
    nothing_left(shop, log=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_workers_killed_at_every_point_and_in_mid_batch(tmp_path: Path) -> None:
    """Tasks are tried again by other workers; the query goes on."""
    seed = 20
    print("seed", seed)
    rng = np.random.default_rng(seed)
    shop = Workshop(tmp_path / "shop", files=16)
    # The others are hit in every task; a kernel is restored only in a worker that has not got it alive.
    program = shop.start(crash=",".join(f"{point}:{HITS[point]}:worker" for point in IN_WORKERS))
    program.wait_for(lambda: shop.batches() > 3)
    killed = 0
    while killed < 5 and program.code is None:
        busy = at_work(program.workers())
        if busy:
            victim = busy[rng.integers(len(busy))]
            print("killed worker", victim.pid, "in batch", shop.batches() - 1)
            victim.kill()
            killed += 1
            batch = shop.batches()
            # A task may be lost four times; the next kill is for another micro-batch.
            program.wait_for(lambda seen=batch: shop.batches() > seen or program.code is not None)
        time.sleep(rng.uniform(0, 0.3))
    assert program.wait() == 0, program.said
    assert killed == 5, "the input ended before all kills"
    assert {spec.split(":")[0] for spec in program.crashed} == set(IN_WORKERS)
    shop.check()
    nothing_left(shop, log=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_driver_killed_at_random_moments(tmp_path: Path) -> None:
    seed = 30
    rng = np.random.default_rng(seed)
    shop = Workshop(tmp_path / "shop", files=20)
    for number in range(5):
        program = shop.start()
        program.wait_for(program.started)
        before = shop.batches()
        # From the first moment of the restart to some way into the third micro-batch.
        batches, delay = int(rng.integers(0, 3)), float(rng.uniform(0, 1.5))
        print(f"seed {seed}, kill {number}: {delay:.3f} s after {batches} more micro-batches")
        program.wait_for(lambda want=before + batches: shop.batches() >= want)
        time.sleep(delay)
        assert program.code is None, f"ended before it was killed:\n{program.said}"
        program.kill()
        shop.check_so_far()
    shop.finish()
    shop.check()
    nothing_left(shop)


def at_work(workers: list[psutil.Process]) -> list[psutil.Process]:
    """Those that computed in the last moment; most of the workers of a session wait for a task."""
    before = {worker: _seconds(worker) for worker in workers}
    time.sleep(0.05)
    return [worker for worker in workers if _seconds(worker) > before[worker] > 0]


def _seconds(worker: psutil.Process) -> float:
    try:
        times = worker.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
