"""The streams of a pipeline as DataFrames, by Spark's own formats."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from penstock.errors import SessionNotReady
from penstock.plan.pipeline.data_files import is_recursive
from penstock.spark.schema import quoted, spark_schema
from penstock.spark.sources import json_records, literal, read_csv, read_json
from penstock.spark.wire import marks_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.pipeline.spec import Stream

#: Formats that are not in Spark itself, with the class that says they are there and what to add.
_PACKAGES = {
    "kafka": ("org.apache.spark.sql.kafka010.KafkaSourceProvider", "org.apache.spark:spark-sql-kafka-0-10_2.13"),
    "delta": ("io.delta.sql.DeltaSparkSessionExtension", "io.delta:delta-spark_2.13"),
}


def check_formats(spark: SparkSession, formats: Iterable[str]) -> None:
    """Refuse a session without the packages of the formats that it is to read and write."""
    jvm = spark._jvm
    for format_ in sorted(set(formats) & _PACKAGES.keys()):
        name, package = _PACKAGES[format_]
        try:
            jvm.java.lang.Class.forName(name, False, jvm.Thread.currentThread().getContextClassLoader())  # type: ignore[union-attr]
        except Exception:
            raise SessionNotReady(
                f"This Spark has no {format_}.",
                why=f"It comes as a package of its own, {package}.",
                do="Put its jars into Spark's folder jars/, or name the package when the session is made: "
                f'spark_jars_packages="{package}:<version>".',
            ) from None


def open_stream(spark: SparkSession, stream: Stream) -> DataFrame:
    """A stream's rows, with the columns that mark records which do not fit."""
    schema = spark_schema(stream.columns)
    options = dict(stream.options)
    if stream.path is not None:
        place = _place(stream.path, options)
        if stream.format == "json":
            return read_json(spark, place, schema, **options)
        if stream.format == "csv":
            return read_csv(spark, place, schema, **options)
        return spark.readStream.schema(schema).options(**options).parquet(place)
    rows = spark.readStream.format(stream.format).options(**options).load()
    if not stream.decoded:
        return rows.select(*(quoted(name) for name in stream.columns.names))
    source = fn.lit(stream.format)
    if stream.format == "kafka":
        source = fn.concat_ws("/", fn.lit("kafka:"), "topic", "partition", "offset")
    # A record that is nothing, as Kafka's tombstones are, is no JSON either, and is set aside as an empty text.
    texts = rows.withColumn("value", fn.coalesce(fn.col("value").cast("string"), fn.lit("")))
    return json_records(texts, source, schema, {})


def renamed(rows: DataFrame, columns: Mapping[str, str], every: str | None = None) -> DataFrame:
    """Some columns by other names, with those that mark bad records; `every` is a key that all rows share."""
    chosen = [quoted(old).alias(new) for old, new in columns.items()]
    chosen += [fn.col(name) for name in marks_in(rows.columns)]
    chosen += [fn.lit(0).cast("int").alias(every)] if every is not None else []
    return rows.select(*chosen)


def _place(path: Path, options: dict[str, str]) -> str:
    """A path as the file source takes it: as a pattern, in which no letter of it may stand for others.

    The source follows a folder or a pattern, and no file. Of a file's folder it would look through all that is beside
    the file, and fail where partitions of something else are there; so a file is a pattern in any case.
    """
    whole = literal(path)
    if not path.is_file():
        if whole != str(path):
            options["basePath"] = str(path)  # where the names of folders begin to say values
            _take_one_at_a_time(options)
        return whole
    letter = re.search(r"\w", path.name)
    if ":" in whole or letter is None:  # patterns have no colons
        options["pathGlobFilter"] = _literal(path.name)
        return str(path.parent)
    if whole != str(path):
        return whole
    return f"{path.parent}/{path.name[: letter.start()]}[{letter[0]}]{path.name[letter.end() :]}"


def _take_one_at_a_time(options: dict[str, str]) -> None:
    """Have every micro-batch read one file: of several whose paths look like patterns, Spark reads each for each."""
    if not is_recursive(options):
        for name in [name for name in options if name.lower() in ("maxfilespertrigger", "maxbytespertrigger")]:
            del options[name]
        options["maxFilesPerTrigger"] = "1"


def _literal(name: str) -> str:
    """A file's name as a pattern that matches it alone."""
    return "".join(
        f"[{letter}]" if letter in "*?{}" else f"\\{letter}" if letter in "[]\\" else letter for letter in name
    )
