"""A real cluster on this host: one executor's worker is killed in mid-run, and the output is exact."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

from tests.faults.workshop import Workshop

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Cluster:
    """A master and two workers with one core each, all on the loopback device."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._home = Path(pyspark.__file__).parent
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
        self._await("Starting Spark master", "master.Master-0")
        self.workers = [self.add_worker() for _ in range(2)]

    def add_worker(self) -> subprocess.Popen[bytes]:
        options = ["--host", "127.0.0.1", "--webui-port", str(free_port()), "--cores", "1", "--memory", "1g"]
        work = self._base / f"work-{len(self.processes)}"
        process = self._start("worker.Worker", *options, "--work-dir", str(work), self.url)
        self._await("Successfully registered", f"worker.Worker-{len(self.processes) - 1}")
        return process

    def _start(self, kind: str, *options: str) -> subprocess.Popen[bytes]:
        log = self._base / f"{kind}-{len(self.processes)}.log"
        environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
        }
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *options],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def _await(self, text: str, name: str) -> None:
        until = time.monotonic() + 120
        log = self._base / f"{name}.log"
        while text not in log.read_text(errors="replace"):
            assert time.monotonic() < until, log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """A machine goes down: the worker, its executors, and their Python, at once."""
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(worker.pid)
            for process in [*parent.children(recursive=True), parent]:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        worker.wait(30)

    def close(self) -> None:
        for process in reversed(self.processes):
            self.kill(process)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("division", ["pages", "input"])
def test_machine_lost_in_mid_run(cluster: Cluster, tmp_path: Path, division: str) -> None:
    shop = Workshop(tmp_path / "shop", files=10)
    program = shop.start("--master", cluster.url, "--division", division)
    try:
        program.wait_for(lambda: shop.batches() >= 4, seconds=300)
        cluster.kill(cluster.workers[0])
        cluster.add_worker()
        assert program.wait(600) == 0, program.said
    finally:
        if program.code is None:
            program.kill()
    shop.check()
    assert not program.members()
