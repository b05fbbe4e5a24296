"""Spark's files on local disks without a process for each: what Hadoop asks `chmod` and `readlink` for, Java does.

Every file of a checkpoint costs Hadoop some ten processes, and a micro-batch without state four such files: fifty of
sixty milliseconds. The classes are in `jvm/`, with their source; why they are needed is told in docs/adr/0016.
"""

from __future__ import annotations

import os
from pathlib import Path

JAR = Path(__file__).with_name("jvm") / "penstock.jar"
CLASS_PATH = "spark.driver.extraClassPath"
_CLASS = "penstock.LocalFiles"
_CLASSES = {
    "spark.hadoop.fs.file.impl": _CLASS,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{_CLASS}$Context",
}


def settings() -> dict[str, str]:
    """What a local session is started with; nothing if its JVM is there already and lacks the classes, or cannot be
    told where they are.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    if SparkContext._jvm is None:
        # One that spark-submit has started has the class path that was given there; and a class path has no quotes.
        reachable = "PYSPARK_GATEWAY_PORT" not in os.environ and os.pathsep not in str(JAR)
        return {CLASS_PATH: str(JAR), **_CLASSES} if reachable else {}
    try:
        SparkContext._jvm.java.lang.Class.forName(_CLASS)
    except Py4JError:
        return {}
    return _CLASSES
