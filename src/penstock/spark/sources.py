"""Sources that lose nothing: a record that does not fit the schema is set aside, whole, with its file.

Spark's own JSON source turns a text in an integer column into NULL. Here each line is read as text and parsed beside
it, so that whatever goes wrong, the text is still there.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import ParseException
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import BadOption
from penstock.spark.schema import quoted
from penstock.spark.wire import CORRUPT, SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

#: Options of Spark's JSON reader that cannot hold here, each with the reason.
_REFUSED = {
    "mode": "Records that do not fit are always set aside.",
    "multiline": "A record is one line.",
    "columnnameofcorruptrecord": f"The column is called {CORRUPT}.",
    "encoding": "JSON Lines are UTF-8.",
    "charset": "JSON Lines are UTF-8.",
}


def literal(path: Path) -> str:
    """A path as Spark takes it, in which no letter stands for others."""
    return "".join(f"\\{letter}" if letter in "\\{}[]*?" else letter for letter in str(path))


def read_json(spark: SparkSession, path: str, schema: str | StructType, **options: str | int | bool) -> DataFrame:
    """A stream of JSON Lines files, one record a line.

    Guarantees
        A record whose values all fit `schema` is a row. Any other (text in an integer column, a number that is too
        large, broken JSON, no object at all) goes to the channel `set_aside` of the flow that reads the stream, with
        reason, file and text: `tests/faults/test_poison.py`. Lines of white space are no records. So rows_in and
        rows_malformed of a flow sum to the records.
        Fields that the schema does not name are passed over; missing ones are NULL.
    State and cost
        None; parsed inside the JVM.

    `options` are those of Spark's file source (`maxFilesPerTrigger=1`) and of its JSON reader (`timestampFormat=…`).

    Example::

        orders = ps.read_json(spark, "orders/", "order_id long, product_id long", maxFilesPerTrigger=10)
        flow = ps.join_table(orders, stock, on="product_id", memory="64MB")
        flow.start(results="enriched/", set_aside="bad-records/", checkpoint="ck/")
    """
    for name in options:
        if name.lower() in _REFUSED:
            raise BadOption(f"read_json takes no option {name!r}.", why=_REFUSED[name.lower()], do="Leave it out.")
    given: object = path
    if not isinstance(given, str) or not given:
        raise BadOption(f"{path!r} is not a path.", do='Give the path of a folder of files: "orders/".')
    if not any(mark in path for mark in ":*?[{\\") and not Path(path).exists():
        raise BadOption(f"{path} does not exist.", do="Make the folder first; files may come to it later.")
    wanted = _columns(schema)
    if taken := [name for name in (CORRUPT, SOURCE) if name in wanted.names]:
        raise BadOption(f"The schema has a column {taken[0]!r}.", why="The name is used to mark bad records.")
    told = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    lines = spark.readStream.options(**told).text(path).where(fn.col("value").rlike(r"[^\s\x{FEFF}]"))
    return json_records(lines, fn.col("_metadata.file_path"), wanted, told)


def _columns(schema: object) -> StructType:
    example = 'Write it as "order_id long, product_id long".'
    try:
        wanted = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except ParseException as fault:
        said = next((line for line in str(fault).splitlines() if line.startswith("[")), "it is cut")
        raise BadOption(f"{schema!r} is not a list of columns: {said}", do=example) from None
    if not isinstance(wanted, StructType) or not wanted.fields:
        raise BadOption(f"{schema!r} is not a list of columns.", do=example)
    return wanted


def json_records(lines: DataFrame, source: Column, wanted: StructType, options: Mapping[str, str]) -> DataFrame:
    """The rows of JSON records that are texts in column `value`; `source` says where one came from."""
    fields = StructType([StructField(field.name, field.dataType) for field in wanted])
    # Spark's parser stops at the end of the first value and passes over what follows. Inside an object and inside an
    # array what follows is in the way, and nothing can be right in both.
    inside = StructType([StructField("r", fields), StructField(CORRUPT, StringType())])
    parsed = fn.from_json(
        fn.concat(fn.lit('{"r":'), fn.col("value"), fn.lit("}")),
        inside,
        dict(options) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT},
    )
    alone = fn.json_array_length(fn.concat(fn.lit("["), fn.col("value"), fn.lit("]"))) == 1
    rows = lines.select(
        fn.col("value"),
        source.alias(SOURCE),
        parsed.alias("parsed"),
        (alone & fn.is_valid_utf8("value")).alias("alone"),
    )
    record = fn.col("parsed").getField("r")
    whole = fn.col("parsed").getField(CORRUPT).isNull() & record.isNotNull() & fn.coalesce("alone", fn.lit(False))
    return rows.select(
        *(record.getField(field.name).alias(field.name) for field in wanted),
        fn.when(~whole, fn.make_valid_utf8("value")).alias(CORRUPT),
        fn.col(SOURCE),
    )


def read_csv(spark: SparkSession, path: str, schema: StructType, **options: str) -> DataFrame:
    """A stream of CSV files with a line of names.

    Guarantees
        A record whose values all fit `schema` is a row; any other goes to the channel `set_aside` of the flow that
        reads the stream, with file and text, and so does one with U+FFFD in a text, which stands for bytes that are no
        UTF-8; with an option `encoding` all is taken as that reads it. A file whose names are not those of the schema,
        in its order, stops the query: nothing is read into the wrong column.
    State and cost
        None; parsed inside the JVM.
    """
    marked = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    # As nearly everybody writes CSV: a quote inside quotes is two of them, and lines may end there. Spark by itself
    # wants a backslash before a quote, and cuts such a record in two.
    told = {"header": "true", "escape": '"', "multiLine": "true", **options}
    # What is empty is NULL, in quotes or not: who quotes everything means so, and so does Spark unless NULL has a name.
    named = {name.lower(): value for name, value in options.items()}
    told |= {"emptyValue": named["nullvalue"]} if "nullvalue" in named and "emptyvalue" not in named else {}
    ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "enforceSchema": "false"}
    rows = spark.readStream.schema(marked).options(**told, **ours).csv(path)
    columns = [quoted(name) for name in schema.names]
    bad = fn.col(CORRUPT)
    if not {"encoding", "charset"} & named.keys():
        texts = [quoted(field.name).contains("\ufffd") for field in schema if isinstance(field.dataType, StringType)]
        damaged = reduce(or_, texts, fn.lit(False))
        bad = fn.coalesce(bad, fn.when(damaged, fn.to_csv(fn.struct(*columns))))
    return rows.select(*columns, bad.alias(CORRUPT), fn.col("_metadata.file_path").alias(SOURCE))
