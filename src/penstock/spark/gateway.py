"""The JVM behind a local session, with a log file of its own.

Spark's launcher, Hadoop and the Python workers all print to the JVM's output. On a terminal that buries what a program
has to say, so it goes to a file, which is removed at the end unless it tells of an error.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import SessionNotReady

if TYPE_CHECKING:
    from pyspark import SparkConf

_log: Path | None = None


def log_file() -> Path | None:
    """Where the JVM of this process writes; None if it was not started quietly."""
    return _log


def start_quietly(conf: SparkConf) -> None:
    """Start the JVM of this process with its output in a file, if there is none yet."""
    global _log  # noqa: PLW0603 - there is one JVM in a process
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.logger import PySparkLogger

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    descriptor, name = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
    _log = Path(name)
    try:
        # A process group of its own: Ctrl-C is for the program, which stops its queries; it must not hit the workers.
        output = {"stdout": descriptor, "stderr": descriptor, "process_group": 0}
        gateway = launch_gateway(conf, popen_kwargs=output)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as failure:
        said = _log.read_text(errors="replace").strip().splitlines()
        raise SessionNotReady(
            "Spark's JVM did not start.",
            why=f"It said: {' / '.join(said[-3:])}" if said else "It said nothing.",
            do="Spark needs Java 17 or newer: install it, or set JAVA_HOME to its folder.",
        ) from failure
    finally:
        os.close(descriptor)
        atexit.register(_remove_if_uneventful, _log)
    SparkContext._ensure_initialized(gateway=gateway)
    # These print the stack of the JVM for every error in an expression, which is raised as well.
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(logger).disabled = True


def _remove_if_uneventful(path: Path) -> None:
    with contextlib.suppress(OSError):
        with path.open(errors="replace") as log:
            eventful = any(" ERROR " in line or "Exception" in line for line in log)
        if not eventful:
            path.unlink()


def shut_down() -> None:
    """Stop the session of this process and its JVM, and wait until the JVM is gone."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if process is not None:
        process.stdin.close()
        process.wait()
