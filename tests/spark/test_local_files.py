"""Spark's files on local disks: written without a process for each, and otherwise as Hadoop writes them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from penstock.spark import local_files

_SOURCE = "penstock/LocalFiles.java"


def test_the_jar_is_of_the_source_beside_it() -> None:
    with zipfile.ZipFile(local_files.JAR) as jar:
        assert jar.read(_SOURCE) == (local_files.JAR.parent / _SOURCE).read_bytes(), "run ./dev jar"
        classes = [jar.read(name) for name in jar.namelist() if name.endswith(".class")]
    assert classes
    # 61 is Java 17, the oldest that runs Spark.
    assert {int.from_bytes(code[6:8], "big") for code in classes} == {61}


def test_a_session_goes_without_where_java_cannot_be_told_of_the_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_files.settings()["spark.driver.extraClassPath"] == str(local_files.JAR)
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/theirs/*")
    with local_files.offered():
        assert os.environ["SPARK_DIST_CLASSPATH"] == f"/theirs/*{os.pathsep}{local_files.JAR}"
    assert os.environ["SPARK_DIST_CLASSPATH"] == "/theirs/*"
    monkeypatch.delenv("SPARK_DIST_CLASSPATH")
    monkeypatch.setattr(local_files, "JAR", Path("/one:two/penstock.jar"))
    assert local_files.settings() == {}
    with local_files.offered():
        assert "SPARK_DIST_CLASSPATH" not in os.environ


def test_only_a_jvm_that_has_the_classes_and_runs_all_tasks_is_told_of_them() -> None:
    """Executors have class paths of their own, and every file of theirs was asked of a class that they lack."""

    def jvm(found: bool) -> Any:
        def look(name: str) -> None:
            if not found:
                raise Py4JError(name)

        return SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(Class=SimpleNamespace(forName=look))))

    for master in ("local", "local[2,4]", "local[*]"):
        assert local_files.classes(jvm(True), master)
        assert not local_files.classes(jvm(False), master)
    for master in ("local-cluster[2,1,1024]", "spark://127.0.0.1:7077", "yarn", ""):
        assert not local_files.classes(jvm(True), master)


_QUERY = """
import sys
import penstock as ps
spark = ps.session(cores=2, spark_driver_extraClassPath="/not/there")
link = spark._jvm.org.apache.hadoop.fs.FileContext.getFileContext(spark._jsc.hadoopConfiguration())
path = spark._jvm.org.apache.hadoop.fs.Path
rows = spark.readStream.schema("id long").parquet(sys.argv[1] + "/in")
others = rows.withColumnRenamed("id", "other")
flow = ps.join_streams(rows, others, on={"id": "other"}, within=ps.rows(10), memory="8MB")
flow.results.writeStream.format("parquet").option("checkpointLocation", sys.argv[1] + "/ck").option(
    "path", sys.argv[1] + "/out").trigger(availableNow=True).start().awaitTermination()
print(spark.read.parquet(sys.argv[1] + "/out").count())
for name in "file", "link":
    found = link.getFileLinkStatus(path(sys.argv[1] + "/" + name))
    print(found.isSymlink(), found.getLen())
spark.stop()
again = ps.session(cores=2)
print(again._jsc.hadoopConfiguration().get("fs.file.impl"))
"""


@pytest.mark.spark
def test_a_query_starts_no_process_for_its_files(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    asked = tmp_path / "asked"
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("chmod", "readlink", "stat", "ls"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {asked}\nexec /bin/{name} "$@"\n')
        (programs / name).chmod(0o755)
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": range(5)}), tmp_path / "in" / "rows.parquet")
    (tmp_path / "file").write_text("four")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    tmp_path.chmod(0o2755)
    # A class path that others have given, as notebooks do, hides ours no more than ours hides it.
    others = {"PYSPARK_SUBMIT_ARGS": "--driver-class-path /nowhere/* pyspark-shell"}
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"} | others
    query = [sys.executable, "-c", _QUERY, str(tmp_path)]
    said = subprocess.run(query, env=environment, capture_output=True, text=True, check=True, timeout=300)
    assert said.stdout.split() == ["5", "False", "4", "True", "4", "penstock.LocalFiles"]
    # What the link was asked for is asked in Hadoop's own way, and so it shows that a process would have been noticed.
    lines = asked.read_text().splitlines()
    assert f"readlink {tmp_path}/link" in lines
    assert [line for line in lines if not line.endswith((f"{tmp_path}/link", f"{tmp_path}/file"))] == []
    assert (tmp_path / "ck" / "commits" / "0").stat().st_mode & 0o777 == 0o644
    # A directory gives its group to what is made in it, as far down as it goes.
    assert [(tmp_path / place).stat().st_mode & 0o7777 for place in ("ck/commits", "out")] == [0o2755, 0o2755]
