"""A tuned local session, and the check of one that somebody else made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from typing import TYPE_CHECKING

from penstock.errors import BadOption, SessionNotReady
from penstock.plan.units import parse_count
from penstock.spark import local_files
from penstock.spark.gateway import start_quietly
from penstock.spark.slots import shuffle_partitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

#: The system allows 107 bytes for the path of a socket, and Spark names each by a UUID: `/.{36}.sock`.
_LONGEST_SOCKET_DIRECTORY = 107 - 43

#: Shuffle partitions for each slot from which on tasks without work are worth a warning.
_IDLE = 8

#: Without these a flow cannot run, or would break a promise. They may be set on a running session.
NEEDED = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
}

#: What Spark offers and a flow cannot have: what there is where nobody has set it, how that ends which is refused, why.
_REFUSED = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "",
        ".FileSystemBasedCheckpointFileManager",
        "On local disks it does not replace the state of a micro-batch that is run again after a crash: parts of two "
        "runs would be put together.",
    ),
    "spark.sql.streaming.offsetLog.formatVersion": (
        "1",
        "2",
        "A checkpoint is looked through before a query starts on it, and this layout of its logs cannot be read.",
    ),
}

#: What makes small micro-batches quick and keeps blobs, and so workers, small.
TUNED = {
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    # Every value that comes from a worker would be checked to lie within its column: docs/adr/0015.
    "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true",
    "spark.executor.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(
    app: str = "penstock",
    *,
    cores: int | None = None,
    slots: int | None = None,
    quiet: bool = True,
    **settings: str | float,
) -> SparkSession:
    """A Spark session tuned for Penstock on this machine.

    `cores` workers (all cores by default) and as many shuffle partitions, or `slots` of them; a failed task is tried
    four times, so a lost worker costs a retry and not the query. What Spark and its workers print goes to a log file,
    kept if it tells of an error, or with `quiet=False` to the terminal. Further settings are given with underscores for
    dots (`spark_driver_memory="2g"`) and win over ours.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    for option, given in (("cores", cores), ("slots", slots)):
        if given is not None:
            parse_count(given, option=option)
    for name, value in settings.items():
        if not name.startswith("spark_"):
            raise BadOption(
                f"session() has no option {name!r}, and no setting of Spark is called so.",
                why="Settings are given with underscores for dots, and all of Spark's begin with spark.",
                do=f'Write it in full: spark_driver_memory="2g" for spark.driver.memory, spark_{name}=… perhaps.',
            )
        if not isinstance(value, str | int | float):
            raise BadOption(f"{name}={value!r} is not a setting.", do=f'Give a text: {name}="…".')
    count = cores or os.cpu_count() or 1
    # The workers must be the Python that has the packages, and nothing here needs a network beyond this host.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    theirs = {name.replace("_", "."): _as_spark_says(value) for name, value in settings.items()}
    ours = {**NEEDED, **TUNED, **_sockets(theirs)}
    ours["spark.sql.shuffle.partitions"] = str(slots or count)
    conf = SparkConf(loadDefaults=False).setMaster(f"local[{count},4]").setAppName(app)
    if _JAVA_OPTIONS in theirs:
        theirs[_JAVA_OPTIONS] = f"{ours[_JAVA_OPTIONS]} {theirs[_JAVA_OPTIONS]}"
    for name, value in (ours | theirs).items():
        conf.set(name, value)
    with local_files.offered():
        if quiet:
            start_quietly(conf)
        SparkContext._ensure_initialized(conf=conf)
    for name, value in local_files.classes(SparkContext._jvm, conf.get("spark.master") or "").items():
        conf.setIfMissing(name, value)
    made: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def _as_spark_says(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sockets(settings: Mapping[str, str]) -> dict[str, str]:
    """Workers talk to the JVM over sockets in the temporary directory, or over loopback if its path is too long."""
    java = re.search(r"-Djava\.io\.tmpdir=(\S+)", settings.get(_JAVA_OPTIONS, ""))
    place = settings.get("spark.python.unix.domain.socket.dir") or (java.group(1) if java else tempfile.gettempdir())
    fits = len(os.fsencode(place)) <= _LONGEST_SOCKET_DIRECTORY
    return {"spark.python.unix.domain.socket.enabled": str(fits).lower()}


def check_session(spark: SparkSession) -> None:
    """Refuse a session that would break a promise, with the lines to add."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise SessionNotReady(
            "This is a session of Spark Connect.",
            why="A flow commits its output from the process of the driver, and a client of Spark Connect is none.",
            do="Make the session where the program runs: penstock.session(), or SparkSession.builder.master(…).",
        )
    for name, (usual, refused, why) in _REFUSED.items():
        said = spark.conf.get(name, usual) or usual
        if said.endswith(refused):
            raise SessionNotReady(
                f"This Spark session has {name} = {said}.", why=why, do=f'Take it out: spark.conf.unset("{name}").'
            )
    # Asked without a default, Spark gives its own for what nobody has set; one of another type it would not take.
    missing = {name: want for name, want in NEEDED.items() if (spark.conf.get(name) or "").lower() != want.lower()}
    if missing:
        lines = "\n  ".join(f'spark.conf.set("{name}", "{want}")' for name, want in missing.items())
        raise SessionNotReady(
            f"This Spark session lacks {len(missing)} needed setting{'s' * (len(missing) > 1)}.",
            why="State must be kept in RocksDB, and micro-batches without input must run so that a flow can finish.",
            do=f"Add, before the flow is made, or use penstock.session():\n  {lines}",
        )
    context = spark.sparkContext
    if (context.master or "").startswith("local") and not _has_penstock(context.pythonExec):
        raise SessionNotReady(
            f"This session's workers run {context.pythonExec!r}, which has no Penstock.",
            why=f"This program runs {sys.executable}; workers run what PYSPARK_PYTHON said when Spark was started.",
            do='Before the session is made: os.environ["PYSPARK_PYTHON"] = sys.executable; or use penstock.session().',
        )


def warn_of_idle_tasks(spark: SparkSession, slots: int) -> None:
    """Spark starts a task for every shuffle partition in every micro-batch, whether a slot lies on it or not."""
    partitions = shuffle_partitions(spark)
    if partitions > _IDLE * slots:
        warnings.warn(
            f"Spark will start {partitions} tasks in every micro-batch, and {slots} have work. Before the first start: "
            f'spark.conf.set("spark.sql.shuffle.partitions", "{slots}").',
            stacklevel=5,
        )


@cache
def _has_penstock(python: str) -> bool:
    found = shutil.which(python)
    if found is None or found == sys.executable:
        return found is not None
    # Found as a worker would find it: not because this program was started beside the package.
    asked = subprocess.run(
        [found, "-c", "import penstock"], capture_output=True, check=False, cwd=tempfile.gettempdir()
    )
    return asked.returncode == 0
