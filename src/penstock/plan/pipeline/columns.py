"""The columns of a stream: written in the file, or found in the files that are there."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import islice
from json import loads
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.json as json
import pyarrow.parquet as pq

from penstock.errors import BadOption, UnreadableTable, UnsupportedType
from penstock.plan.pipeline.data_files import data_files, is_recursive
from penstock.plan.view import plain
from penstock.tables.folders import NO_VALUE, kind_of

#: The types of columns, as people write them.
TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_ALIKE = {"bool": "boolean", "integer": "int", "bigint": "long", "text": "string", "varchar": "string", "real": "float"}
#: How much of the files is looked at to find the columns of a text format.
_FILES, _BYTES, _LONGEST = 3, 4 << 20, 64 << 20
#: The most that a record of a CSV table may take.
_BLOCK = 16 << 20
#: Those of Spark's options for CSV that a table has, too; others would be passed over.
CSV_OPTIONS = ("header", "sep", "delimiter", "quote", "nullValue", "emptyValue", "multiLine")
#: Formats of streams for which Spark takes columns from the names of folders.
_WITH_FOLDERS = ("parquet", "csv")
#: What to do with times that Spark does not read.
IN_MICROSECONDS = (
    'With pandas, in microseconds: to_parquet(…, coerce_timestamps="us", allow_truncated_timestamps=True).'
)
_WRITTEN = 'columns = { order_id = "long", ordered_at = "timestamp" }'
_IN_UTF8 = "Files are read as UTF-8: convert them first, for example iconv -f latin1 -t utf-8 old.csv > new.csv."
_ONE_A_LINE = "Write every record as one line: jq -c . old.json > new.json; of an array, jq -c '.[]'."


def type_of(text: object, option: str) -> pa.DataType:
    """The type that a name says.

    >>> type_of("long", "id"), type_of("decimal(10, 2)", "price")
    (DataType(int64), Decimal128Type(decimal128(10, 2)))
    """
    name = str(text).strip().lower()
    decimal = re.fullmatch(r"decimal\((\d{1,2})\s*,\s*(\d{1,2})\)", name)
    if decimal and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    found = TYPES.get(_ALIKE.get(name, name))
    if found is None:
        raise BadOption(
            f"{option} = {text!r} is not a type of a column.", do=f"Give one of: {', '.join(TYPES)}, decimal(10,2)."
        )
    return found


def name_of(kind: pa.DataType) -> str:
    """The name of a type, to be written into a file."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next(name for name, known in TYPES.items() if known == kind)


def infer(path: Path, format_: str, options: Mapping[str, str]) -> pa.Schema:
    """The columns of the files that are there, in the types that Spark has."""
    return as_spark_has_them(found(path, format_, options), str(path))


def found(path: Path, format_: str, options: Mapping[str, str]) -> pa.Schema:
    """The columns of the files that are there, as they are."""
    files = data_files(path, f".{format_}")
    if not files:
        raise UnreadableTable(
            f"{path} has no {format_} files yet with something in them, so its columns are not known.",
            do=f"Write them down: {_WRITTEN}.",
        )
    try:
        schemas = [_schema(file, format_, options) for file in islice(files, _FILES)]
        for schema, file in zip(schemas, files, strict=False):
            _check_names(schema, file)
        inside = _parquet_together(schemas) if format_ == "parquet" else _together(schemas, texts=format_ == "csv")
        outside = [field for field in folder_columns(path, format_) if field.name not in inside.names]
        return pa.schema([*inside, *(outside if format_ in _WITH_FOLDERS and not is_recursive(options) else ())])
    except (OSError, pa.ArrowException, UnicodeDecodeError) as fault:
        what = f"{path}: its columns cannot be found: {str(fault).splitlines()[0]}"
        raise UnreadableTable(what, do=_remedy(fault, format_)) from fault


def _remedy(fault: Exception, format_: str) -> str:
    """What to do about what Arrow said; the first that fits."""
    said = str(fault)
    known = {
        "UTF8|utf-8": _IN_UTF8,
        r"Column\(.+\) changed from |incompatible types": "The values of one field are of different types. Write every "
        "one of them in the same.",
        "was specified twice": "Give every field of a record a name of its own.",
        "Number too big": f"Spark has no such number. Write it as a text, or write the columns down: {_WRITTEN}.",
        "Empty (CSV|JSON) file|has no records": f"Wait until something is in it, or write down {_WRITTEN}.",
        "compressed|inflate|bzip2|[Zz][Ss][Tt][Dd]": "It is damaged, or not packed as its name says. Pack it anew.",
        "Parquet": "It is damaged, or no Parquet file. Write it anew, or take it away.",
    }
    if found := next((do for pattern, do in known.items() if re.search(pattern, said)), None):
        return found
    if format_ == "json":
        return _ONE_A_LINE
    return "Write them down: columns = { … }, and the options of the format: options = { … }."


def _together(schemas: list[pa.Schema], *, texts: bool) -> pa.Schema:
    """The columns of several files; with `texts`, one whose values are of different kinds in them is a text.

    >>> one, other = pa.schema({"at": pa.date32(), "n": pa.int64()}), pa.schema({"at": pa.string(), "n": pa.float64()})
    >>> _together([one, other], texts=True).types
    [DataType(string), DataType(double)]
    """
    each: dict[str, list[pa.Schema]] = {}
    for field in (field for schema in schemas for field in schema):
        each.setdefault(field.name, []).append(pa.schema([field]))
    columns = []
    for name, alone in each.items():
        try:
            columns.append(_unified(alone).field(0))
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            if not texts:
                raise
            columns.append(pa.field(name, pa.string()))
    return pa.schema([_as_text(field, texts=texts) for field in columns])


def _as_text(field: pa.Field, *, texts: bool) -> pa.Field:
    """Texts lose nothing: no values could be of any type, and of CSV no column can be left out."""
    if pa.types.is_null(field.type) or (texts and not fits(field)):
        return pa.field(field.name, pa.string())
    return field


def _parquet_together(schemas: list[pa.Schema]) -> pa.Schema:
    """The columns of Parquet files; one that has no values in one of them is no more than that.

    Spark reads such a column as no other type.

    >>> one, other = pa.schema({"n": pa.int32(), "x": pa.null()}), pa.schema({"n": pa.int64(), "x": pa.string()})
    >>> _parquet_together([one, other]).types
    [DataType(int64), DataType(null)]
    """
    wide = _unified([pa.schema(map(_named, schema)) for schema in schemas])
    empty = {field.name for schema in schemas for field in schema if pa.types.is_null(field.type)}
    return pa.schema([pa.field(field.name, pa.null()) if field.name in empty else field for field in wide])


def _unified(schemas: list[pa.Schema]) -> pa.Schema:
    return pa.unify_schemas(schemas, promote_options="permissive")


def folder_columns(path: Path, format_: str) -> pa.Schema:
    """The columns whose values are in the names of folders, as in `day=2026-01-01/a.parquet`, and in no file."""
    values: dict[str, list[str]] = {}
    for file in data_files(path, f".{format_}") if path.is_dir() else ():
        for name, _, value in (part.partition("=") for part in file.relative_to(path).parts[:-1] if "=" in part):
            values.setdefault(unquote(name), []).append(unquote(value))
    return pa.schema([(name, kind_of([value for value in each if value != NO_VALUE])) for name, each in values.items()])


def check_no_folder_columns(path: Path, format_: str) -> None:
    """Refuse a table of which some columns are in no file: its rows would lack them."""
    for name in folder_columns(path, format_).names:
        raise UnreadableTable(
            f"The values of column {name!r} are in the names of folders of {path}, and in no file.",
            why="Of a table in CSV only the files are read.",
            do="Write it into one folder, with all its columns in the files; or as Parquet, which may have them so.",
        )


def nanoseconds(path: Path) -> list[str]:
    """The columns of Parquet files whose times are nanoseconds, as pandas writes them: Spark does not read them."""
    found = [_schema(file, "parquet", {}) for file in islice(data_files(path, ".parquet"), _FILES)]
    times = [field for schema in found for field in schema if pa.types.is_timestamp(field.type)]
    return list(dict.fromkeys(field.name for field in times if field.type.unit == "ns"))


def check_times(path: Path, columns: pa.Schema) -> None:
    """Refuse columns of a Parquet stream that Spark would fail to read in the first micro-batch."""
    for name in nanoseconds(path):
        if name in columns.names and pa.types.is_timestamp(columns.field(name).type):
            raise UnsupportedType(
                f"The times of {name!r} in {path} are in nanoseconds.",
                why="Spark reads times in microseconds and milliseconds.",
                do=f"Write them so, or leave the column out: columns = {{ … }}. {IN_MICROSECONDS}",
            )


def _check_names(schema: pa.Schema, file: Path) -> None:
    names = schema.names  # raises where they are not UTF-8
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UnreadableTable(
            f"{file} has two columns {twice!r}.",
            why="Nobody could say which of them is meant.",
            do="Give every column a name of its own.",
        )


def as_spark_has_them(schema: pa.Schema, where: str) -> pa.Schema:
    """Columns with types that can be named; times are moments, in UTC where nothing else is said."""
    for field in schema:
        if not fits(field):
            raise UnsupportedType(
                f"{where}: {field.name} is {field.type}, which a stream cannot have.",
                do="Name the columns that are wanted, without it: columns = { … }.",
            )
    return plain(pa.schema([_named(field) for field in schema]), where)


def fits(field: pa.Field) -> bool:
    """Whether a column has a type that can be named: a single value, and no object or list."""
    try:
        kind = plain(pa.schema([_named(field)]), "").field(0).type
    except UnsupportedType:
        return False
    return kind in TYPES.values() or pa.types.is_decimal(kind)


def _named(field: pa.Field) -> pa.Field:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_uint64(kind):
        kind = pa.decimal128(20, 0)
    return pa.field(field.name, TYPES["timestamp"] if pa.types.is_timestamp(kind) else kind)


def _schema(file: Path, format_: str, options: Mapping[str, str]) -> pa.Schema:
    if format_ == "parquet":
        return _parquet_schema(file)
    if format_ == "json":
        head = _head(file)
        if head.isspace():
            raise pa.ArrowInvalid("The file has no records")
        records = _json_rows(head)
        if records.num_rows != sum(not line.isspace() for line in head.splitlines() if line):
            raise UnreadableTable(
                f"{file} has records of several lines, or several in one.",
                why="Of a stream of JSON every line is a record; each of these lines would be set aside.",
                do=_ONE_A_LINE,
            )
        times = [field.name for field in records.schema if pa.types.is_timestamp(field.type)]
        return _with_large_numbers(_with_times(_json_rows(head, texts=times), times), head)
    rows = _csv_rows(file, options)
    for name in (field.name for field in rows.schema if pa.types.is_binary(field.type)):
        raise UnreadableTable(f"{file}: values of {name!r} are not UTF-8.", do=_IN_UTF8)
    read = [field.name for field in rows.schema if _is_read(field.type)]
    written = _csv_rows(file, options, texts=read) if read else rows
    return pa.schema(
        [
            field.with_type(_type_as_written(written.column(place), field.type)) if field.name in read else field
            for place, field in enumerate(rows.schema)
        ]
    )


def _is_read(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind))


def _type_as_written(values: pa.ChunkedArray, kind: pa.DataType) -> pa.DataType:
    """The type that keeps what is written: zeros in front, as of ZIP codes, digits beyond 64 bits, and times that Spark
    does not read.

    >>> _type_as_written(pa.chunked_array([["01067", "10115"]]), pa.int64())
    DataType(string)
    """
    if pa.types.is_timestamp(kind):
        return pa.string() if _unread(values) else kind
    if pc.any(pc.match_substring_regex(values, r"^\s*[+-]?0[0-9]")).as_py():
        return pa.string()
    if not pa.types.is_floating(kind):
        return kind
    whole = pc.all(pc.match_substring_regex(values, r"^\s*[+-]?[0-9]+\s*$"), min_count=1).as_py()
    return _of_digits(pc.max(pc.utf8_length(values)).as_py()) if whole else kind


def _of_digits(most: int) -> pa.DataType:
    return pa.decimal128(38, 0) if most <= 38 else pa.string()


def _json_rows(head: bytes, texts: Sequence[str] = ()) -> pa.Table:
    said = json.ParseOptions(explicit_schema=pa.schema([(name, pa.string()) for name in texts]))
    return json.read_json(pa.BufferReader(head), json.ReadOptions(block_size=len(head) + 1), said)


def _with_times(records: pa.Table, times: Sequence[str]) -> pa.Schema:
    """The columns of JSON records, of which some texts are times; so are those with fractions of seconds.

    >>> _with_times(pa.table({"at": ["2026-02-01T10:00:00.123Z", None], "name": ["a", "b"]}), []).types
    [TimestampType(timestamp[us, tz=UTC]), DataType(string)]
    """
    schema = records.schema
    for place, field in enumerate(schema):
        column = records.column(place)
        if pa.types.is_string(field.type) and (field.name in times or _all_times(column)) and not _unread(column):
            schema = schema.set(place, field.with_type(TYPES["timestamp"]))
    return schema


def _all_times(texts: pa.ChunkedArray) -> bool:
    """Whether texts are times in microseconds at the finest, all with a zone or all without."""
    for zone in ("UTC", None):
        try:
            return bool(texts.cast(pa.timestamp("us", zone)).null_count < len(texts))
        except pa.ArrowInvalid:
            pass
    return False


def _unread(times: pa.ChunkedArray) -> bool:
    """Whether some of these are times that Spark does not read: with a zone, and without seconds."""
    return bool(pc.any(pc.match_substring_regex(times, r"[T ]\d\d(:\d\d)?(Z|[+-])")).as_py())


def _with_large_numbers(schema: pa.Schema, head: bytes) -> pa.Schema:
    """The columns of JSON records, where whole numbers that 64 bits do not hold keep their digits.

    >>> _with_large_numbers(pa.schema({"id": pa.float64()}), b'{"id": 12345678901234567890}').types
    [Decimal128Type(decimal128(38, 0))]
    """
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    if not floats:
        return schema
    lines = (line for line in head.decode("utf-8-sig", errors="replace").split("\n") if line and not line.isspace())
    try:
        records = [loads(line, parse_int=Decimal) for line in lines]
    except ValueError:
        return schema  # Arrow reads a little more than JSON has, such as -inf
    for name in floats:
        numbers = [record[name] for record in records if record.get(name) is not None]
        if all(isinstance(number, Decimal) for number in numbers):
            digits = max(len(number.as_tuple().digits) for number in numbers)
            place = schema.get_field_index(name)
            schema = schema.set(place, pa.field(name, _of_digits(digits)))
    return schema


def _parquet_schema(file: Path) -> pa.Schema:
    with pq.ParquetFile(file) as opened:
        leaves = [opened.schema.column(number) for number in range(len(opened.schema.names))]
        # Spark's own times, in an older form: Arrow has them as nanoseconds, Spark reads them.
        ours = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
        schema = opened.schema_arrow
    return pa.schema([field.with_type(TYPES["timestamp"]) if field.name in ours else field for field in schema])


def _csv_rows(file: Path, options: Mapping[str, str], texts: Sequence[str] = ()) -> pa.Table:
    head = _head(file, quote=ord('"'))
    how = csv_options(options, block=len(head) + 1)
    how["convert_options"].column_types = dict.fromkeys(texts, pa.string())  # type: ignore[attr-defined]
    return csv.read_csv(pa.BufferReader(head), **how)


def other_words(path: Path, options: Mapping[str, str]) -> dict[str, str]:
    """Options for Spark, where numbers that are none are written in words that it does not know: nan, inf."""
    file = data_files(path, ".csv")[0]
    schema = _schema(file, "csv", options)
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    words = {word for name in floats for word in pc.unique(_csv_rows(file, options, texts=floats)[name]).to_pylist()}
    told: dict[str, str] = {}
    for word in sorted(str(word) for word in words - {None, "NaN", "Inf", "-Inf", "Infinity", "-Infinity"}):
        if found := re.fullmatch(r"([+-]?)(nan|inf|infinity)", word, re.IGNORECASE):
            option = "nanValue" if found[2].lower() == "nan" else "negativeInf" if found[1] == "-" else "positiveInf"
            told[option] = word
    return told


def comma_numbers(path: Path, options: Mapping[str, str]) -> tuple[str, ...]:
    """Columns of CSV files that are texts because their numbers have a comma before the decimals."""
    rows = _csv_rows(data_files(path, ".csv")[0], options)
    texts = [name for name in rows.column_names if pa.types.is_string(rows.schema.field(name).type)]
    like = {name: pc.match_substring_regex(rows[name], r"^-?\d[\d.]*,\d+$") for name in texts}
    return tuple(name for name in texts if pc.all(like[name], min_count=1).as_py())


def _head(file: Path, quote: int = -1) -> bytes:
    """The records at the beginning of a file; all of a small one."""
    with pa.input_stream(file, compression="detect") as opened:
        head: bytes = opened.read(_BYTES)
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in head[:4]:
            raise UnreadableTable(f"{file} is UTF-16, as it seems.", do=_IN_UTF8.replace("latin1", "utf-16"))
        while more := opened.read(_BYTES):
            # The line of names alone says nothing of the values, and a first record may be a long one.
            if len(head) >= _LONGEST or _whole_records(head, quote).count(b"\n") > 1:
                return _whole_records(head, quote)
            head += more
        return head


def _whole_records(head: bytes, quote: int = -1) -> bytes:
    """Up to the last line that ends outside of quotes.

    >>> _whole_records(b'a,b\\n1,"x\\ny', ord('"'))
    b'a,b\\n'
    """
    letters = np.frombuffer(head, np.uint8)
    ends = np.flatnonzero((letters == ord("\n")) & (np.cumsum(letters == quote) % 2 == 0))
    return head[: ends[-1] + 1] if len(ends) else head


def csv_options(options: Mapping[str, str], block: int = _BLOCK) -> dict[str, object]:
    """Options of Spark's CSV reader as Arrow's reader has them, as far as both have them."""
    told = {name.lower(): value for name, value in options.items()}
    header = told.get("header", "true") == "true"
    null = told.get("nullvalue", "")
    separator, quote = told.get("sep", told.get("delimiter", ",")), told.get("quote", '"')
    if len(separator) != 1 or len(quote) > 1:
        raise BadOption(
            f"A separator {separator!r} or a quote {quote!r} is more than one letter.",
            do="Give one. Of a stream whose columns are written down Spark reads others, too: columns = { … }.",
        )
    return {
        "read_options": csv.ReadOptions(autogenerate_column_names=not header, use_threads=False, block_size=block),
        "parse_options": csv.ParseOptions(
            delimiter=separator,
            quote_char=quote or False,
            newlines_in_values=told.get("multiline", "true") == "true",
        ),
        # As Spark has it: what is empty is NULL, whatever else is; in quotes it is what `emptyValue` says.
        "convert_options": csv.ConvertOptions(
            strings_can_be_null=True,
            null_values=["", null],
            quoted_strings_can_be_null=told.get("emptyvalue", null) == null,
        ),
    }


def written(columns: Mapping[str, object]) -> pa.Schema:
    """Columns that are written down as names and types."""
    return pa.schema([(name, type_of(kind, f"columns.{name}")) for name, kind in columns.items()])
