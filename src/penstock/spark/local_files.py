"""Spark's files on local disks without a process for each: what Hadoop asks `chmod` and `readlink` for, Java does.

Every file of a checkpoint costs Hadoop some ten processes, and a micro-batch without state four such files: fifty of
sixty milliseconds. The classes are in `jvm/`, with their source; why they are needed is told in docs/adr/0016.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JAR = Path(__file__).with_name("jvm") / "penstock.jar"
_CLASS = "penstock.LocalFiles"
_CLASSES = {
    "spark.hadoop.fs.file.impl": _CLASS,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{_CLASS}$Context",
}
#: What Spark's launcher puts last on the class path, whatever settings and options say of theirs.
_LAST = "SPARK_DIST_CLASSPATH"


def settings() -> dict[str, str]:
    """What a local session of one's own is given before Java starts; nothing where a class path cannot say where the
    classes are.
    """
    return {} if os.pathsep in str(JAR) else {"spark.driver.extraClassPath": str(JAR), **_CLASSES}


@contextmanager
def offered() -> Iterator[None]:
    """Have a JVM that is started meanwhile look for the classes here, after all other places."""
    before = os.environ.get(_LAST)
    if os.pathsep not in str(JAR):
        os.environ[_LAST] = os.pathsep.join(filter(None, (before, str(JAR))))
    try:
        yield
    finally:
        os.environ.pop(_LAST, None)
        if before is not None:
            os.environ[_LAST] = before


def classes(jvm: Any, master: str) -> dict[str, str]:
    """What a session is told: nothing if its JVM lacks the classes, as one that others started, or if its executors
    have JVMs of their own.
    """
    from py4j.protocol import Py4JError

    if not re.match(r"local(\[|$)", master):
        return {}
    try:
        jvm.java.lang.Class.forName(_CLASS)
    except Py4JError:
        return {}
    return _CLASSES
