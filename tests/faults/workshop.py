"""Where a fault test works: input, table, both outputs and checkpoints, the program to kill, and the judge.

The judge is DuckDB: the join of the records that are whole with the table, as a bag.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.flow import Flow
    from penstock.spark.running import Running

SCHEMA = "order_id long, product_id long"
DRIVER = Path(__file__).with_name("driver.py")
#: Records that no schema of integers fits; one line each.
MALFORMED = (
    '{"order_id": 1, "product_id": "seven"}',
    '{"order_id": 1.5, "product_id": 7}',
    '{"order_id": 1, "product_id": 2',
    '{"order_id": 1, "product_id": 2} {"order_id": 3, "product_id": 4}',
    "no json at all",
)


#: Programs that a test started, for the fixture that ends those it left.
STARTED: list[Program] = []


@dataclass
class Workshop:
    """A directory with a stream of JSON files, a table of 20 pages, and all that comes of them."""

    base: Path
    files: int = 12
    rows: int = 200
    seed: int = 1
    aside: Counter[tuple[str, str]] = field(default_factory=Counter, repr=False)
    orders: pa.Table = field(init=False, repr=False)
    inputs: Path = field(init=False)
    began_last: float = 0.0

    def __post_init__(self) -> None:
        self.inputs = self.base
        rng = np.random.default_rng(self.seed)
        (self.base / "orders").mkdir(parents=True)
        (self.base / "products").mkdir()
        (self.base / "tmp").mkdir()
        # Every third product twice: keys repeat on both sides. Half of the orders find none.
        ids = rng.permutation(np.concatenate([np.arange(3000), np.arange(0, 3000, 3)])).astype("int64")
        products = pa.table({"product_id": ids, "price": rng.integers(1, 10_000, len(ids))})
        pq.write_table(products, self.base / "products" / "a.parquet", row_group_size=200)
        parts = [self._write_orders(number, rng) for number in range(self.files)]
        self.orders = pa.concat_tables(parts)

    def _write_orders(self, number: int, rng: np.random.Generator) -> pa.Table:
        keys = rng.integers(0, 6000, self.rows)
        keys[0] = 3  # order 0, 200, … and with it order 1 below are sure to have partners
        keys[1] = 6
        part = pa.table({"order_id": np.arange(self.rows) + number * self.rows, "product_id": keys})
        part = part.set_column(1, "product_id", pa.array(keys, mask=np.arange(self.rows) % 50 == 49))
        lines = [json.dumps(row) for row in part.to_pylist()]
        path = self.base / "orders" / f"{number:03d}.json"
        for place, bad in enumerate(MALFORMED[number % 3 : number % 3 + 2]):
            lines.insert(7 * place, bad)
            self.aside[f"file:{path}", bad] += 1
        path.write_text("\n".join(lines) + "\n")
        # The file source reads in the order of times; a whole second apart, so that it is the order of names too.
        stamp = 1_700_000_000 + number
        os.utime(path, (stamp, stamp))
        return part

    # -- the judge ---------------------------------------------------------------------------------------------

    def exact(self) -> Counter[tuple[object, ...]]:
        """The join, by an engine that knows nothing of ours."""
        orders = self.orders  # noqa: F841  (DuckDB finds it by name)
        table = f"'{self.inputs}/products/*.parquet'"
        found = duckdb.sql(f"SELECT order_id, product_id, price FROM orders JOIN {table} USING (product_id)")
        return Counter(found.fetchall())

    def committed(self) -> Counter[tuple[object, ...]]:
        """What the ledger sink shows now."""
        return _bag(sorted((self.base / "out").glob("*.parquet")), "order_id, product_id, price")

    def set_aside(self) -> Counter[tuple[object, ...]]:
        """What its second channel shows now."""
        return _bag(sorted((self.base / "aside").glob("*.parquet")), "source, raw")

    def spark_committed(self) -> Counter[tuple[object, ...]]:
        """What Spark's own sink shows now: the files in its log, not those in its directory."""
        log = self.base / "spark-out" / "_spark_metadata"
        files: dict[str, None] = {}
        for entry in log.glob("[0-9]*") if log.is_dir() else ():
            for line in entry.read_text().splitlines()[1:]:
                files[unquote(urlparse(json.loads(line)["path"]).path)] = None
        return _bag([Path(file) for file in files], "order_id, product_id, price")

    def check(self, sinks: str = "ledger,spark") -> None:
        """Nothing missing, nothing twice, on all channels."""
        exact = self.exact()
        assert exact, "a test without results tests nothing"
        if "ledger" in sinks:
            same_bag(self.committed(), exact, "results")
            same_bag(self.set_aside(), Counter(self.aside), "set_aside")
        if "spark" in sinks:
            same_bag(self.spark_committed(), exact, "Spark's sink")

    def check_so_far(self) -> None:
        """At any moment, after any crash: what readers see is right and there once; only the rest is still missing."""
        exact = self.exact()
        for name, got in (("results", self.committed()), ("Spark's sink", self.spark_committed())):
            assert not got - exact, f"{name}: {len(got - exact)} rows wrong or twice: {list(got - exact)[:3]}"
        assert not self.set_aside() - self.aside, "set_aside has rows wrong or twice"

    # -- the same join in this process ---------------------------------------------------------------------------

    def flow(self, spark: SparkSession, **options: Any) -> Flow:
        """The join that the driver runs."""
        import penstock as ps

        orders = ps.read_json(spark, str(self.inputs / "orders"), SCHEMA, maxFilesPerTrigger=1)
        products = ps.table(str(self.inputs / "products"), key="product_id")
        return ps.join_table(orders, products, **{"on": "product_id", "memory": "8MB", "pages_per_step": 2} | options)

    def begin(self, spark: SparkSession, *, until_done: bool = True, **options: Any) -> Running:
        """Start it, into the ledger sink."""
        trigger = {"availableNow": True} if until_done else {"processingTime": "0 seconds"}
        places = {"results": str(self.base / "out"), "set_aside": str(self.base / "aside")}
        return self.flow(spark, **options).start(checkpoint=str(self.base / "ck"), trigger=trigger, **places)

    def leave_waiting(self, spark: SparkSession, batches: int) -> None:
        """Run it, and stop it while rows wait and a micro-batch is planned but not done."""
        running = self.begin(spark, until_done=False)
        until = time.monotonic() + 300
        while self.batches() < batches and running.active and time.monotonic() < until:
            time.sleep(0.02)
        running.stop()
        assert self.committed() != self.exact(), "it was to be stopped before its end"

    def copy(self, base: Path) -> Workshop:
        """Another state of the same: input and table are shared, output and checkpoint are its own."""
        twin = copy.copy(self)
        twin.base = base
        base.mkdir()
        for name in ("ck", "out", "aside"):
            shutil.copytree(self.base / name, base / name)
        return twin

    # -- the program -------------------------------------------------------------------------------------------

    def start(self, *arguments: str, crash: str = "") -> Program:
        """The driver, in a session of its own. `crash` as in `penstock.spark.crash`."""
        number = len(list(self.base.glob("run-*.log")))
        log, crashes = self.base / f"run-{number}.log", self.base / f"crashes-{number}"
        self.began_last = time.time()
        environment = os.environ | {"PENSTOCK_CRASH": crash, "PENSTOCK_CRASH_LOG": str(crashes)}
        environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, str(DRIVER), str(self.base), *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        STARTED.append(Program(process, log, crashes))
        return STARTED[-1]

    def run(self, *arguments: str, crash: str = "") -> Program:
        """The driver, until it ends. A crash that was asked for must have happened."""
        for _ in range(3):
            program = self.start(*arguments, crash=crash)
            program.wait()
            # Spark gives its first Python ten seconds to come up; a machine that is too busy for that is no finding.
            if "failed to connect back" not in program.said:
                break
        missed = set(crash.split(",")) - set(program.crashed) - {""}
        assert not missed, f"never hit: {missed}\n{program.said}"
        return program

    def finish(self, *arguments: str) -> None:
        """Start it once more and let it end; all it leaves is the output."""
        program = self.run(*arguments)
        assert program.code == 0, program.said
        assert not program.members(), "processes were left behind"

    def batches(self) -> int:
        """Micro-batches planned so far in the ledger's query."""
        return len(list((self.base / "ck" / "offsets").glob("[0-9]*")))


@dataclass
class Program:
    """A running driver with its JVM and workers."""

    process: subprocess.Popen[bytes]
    log: Path
    crashes: Path

    @property
    def code(self) -> int | None:
        return self.process.poll()

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")[-20_000:]

    @property
    def crashed(self) -> list[str]:
        """The crash points that killed."""
        return self.crashes.read_text().split() if self.crashes.exists() else []

    def wait(self, seconds: float = 300) -> int:
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end after {seconds} s:\n{self.said}") from None
        self.settle()
        return code

    def wait_for(self, happened: object, seconds: float = 300) -> None:
        """Wait until `happened()`; an end of the program before that is a failure."""
        assert callable(happened)
        until = time.monotonic() + seconds
        while not happened():
            assert self.code is None, f"ended too early ({self.code}):\n{self.said}"
            assert time.monotonic() < until, f"nothing after {seconds} s:\n{self.said}"
            time.sleep(0.02)

    def started(self) -> bool:
        return "started" in self.said.splitlines()

    def members(self) -> list[psutil.Process]:
        """All that is alive of its session."""
        session = self.process.pid
        return [process for process in psutil.process_iter() if process.pid != session and _session(process) == session]

    def workers(self) -> list[psutil.Process]:
        """Python workers: forked by the daemon of the session."""
        found = []
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                parent = process.parent()
                if parent is not None and _is_daemon(process) and _is_daemon(parent):
                    found.append(process)
        return found

    def settle(self, seconds: float = 60) -> None:
        """Give what is on its way out the time to go."""
        until = time.monotonic() + seconds
        while self.members() and time.monotonic() < until:
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL for the whole session at once, as when the machine goes down."""
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        self.process.kill()
        self.process.wait(30)
        self.settle()
        assert not self.members()


def _is_daemon(process: psutil.Process) -> bool:
    return "penstock.spark.daemon" in process.cmdline()


def same_bag(got: Counter[tuple[object, ...]], want: Counter[tuple[object, ...]], name: str) -> None:
    missing, extra = want - got, got - want
    wrong = f"{missing.total()} rows missing {list(missing)[:3]}, {extra.total()} too many {list(extra)[:3]}"
    assert got == want, f"{name}: {wrong}"


def _bag(files: list[Path], columns: str) -> Counter[tuple[object, ...]]:
    if not files:
        return Counter()
    return Counter(duckdb.sql(f"SELECT {columns} FROM read_parquet({[str(file) for file in files]})").fetchall())


def _session(process: psutil.Process) -> int:
    with contextlib.suppress(OSError, psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            return os.getsid(process.pid)
    return -1
