"""What joins of two streams are told alike: windows, columns and event times, read as people write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args

import pyarrow as pa

from penstock.errors import BadOption, KeyTypeMismatch, PenstockError, PlanError, UnknownColumn, UnsupportedType
from penstock.kernels.measure import countable
from penstock.kernels.window.shape import NOTES, How, Shape
from penstock.kernels.window.windows import LandmarkWindow, RowWindow, TimeWindow, Window
from penstock.plan.given import column_names, renaming
from penstock.plan.units import parse_count, parse_duration
from penstock.tables.keys import key_kind

On = str | Sequence[str] | Mapping[str, str]
Within = str | timedelta | Window | tuple[Any, Any]

#: What the archive and the catch-up say of a row; Spark takes no notice of upper and lower case.
_NOTED = {*NOTES.names, "_batch", "_file", "_row", "_gone", "_noted", "_metadata"}


def rows(count: int) -> RowWindow:
    """A window of the last `count` rows of each side; give a pair of them for other windows on either side.

    >>> rows(1000).describe()
    'the last 1,000 rows of each side'
    """
    whole = parse_count(count, option="rows")
    return RowWindow(whole, whole)


def landmark(every: str | timedelta) -> LandmarkWindow:
    """A window that begins anew at every multiple of a duration since 1970 (UTC): rows of one day meet, say.

    >>> landmark("1 day").describe()
    'since the last landmark, one every 86400 s'
    """
    return LandmarkWindow(parse_duration(every, option="every"))


def read_window(within: Within) -> Window:
    """A window as a user writes it: a duration, a window, or one of either for each side.

    >>> read_window("1 minute"), read_window((rows(5), rows(9)))
    (TimeWindow(left=60000000, right=60000000), RowWindow(left=5, right=9))
    """
    if isinstance(within, Window):
        return within
    if isinstance(within, tuple) and len(within) == 2:
        left, right = (read_window(one) for one in within)
        if isinstance(left, TimeWindow) and isinstance(right, TimeWindow):
            return TimeWindow(left.left, right.right)
        if isinstance(left, RowWindow) and isinstance(right, RowWindow):
            return RowWindow(left.left, right.right)
        raise BadOption(
            "The two sides have windows of different kinds.", do="Give two durations, or two numbers of rows."
        )
    if not isinstance(within, str | timedelta):
        raise BadOption(
            f"within={within!r} is not a window.",
            do='Give a duration ("10 minutes"), ps.rows(1000), ps.landmark("1 day"), or a pair: one for each side.',
        )
    length = parse_duration(within, option="within")
    return TimeWindow(length, length)


def key_pairs(on: On) -> tuple[tuple[str, str], ...]:
    """The pairs of columns that are equal.

    >>> key_pairs("id"), key_pairs({"order_id": "id"})
    ((('id', 'id'),), (('order_id', 'id'),))
    """
    if isinstance(on, Mapping):
        return tuple(zip(column_names(list(on)), column_names(list(on.values())), strict=True))
    return tuple((name, name) for name in column_names(on))


def read_shape(left: pa.Schema, right: pa.Schema, on: On, how: How) -> Shape:
    """The columns of a join, or what is wrong with them."""
    if how not in get_args(How):
        raise BadOption(f"how={how!r} is not a kind of join.", do=f"Choose one of: {', '.join(get_args(How))}.")
    check_columns(left, right)
    pairs = key_pairs(on)
    if not pairs:
        raise BadOption("`on` names no column.", do='Give at least one: on="id", or on={"order_id": "id"}.')
    shape = Shape(left, right, pairs, how)
    for schema, names, where in ((left, shape.keys[0], "The left stream"), (right, shape.keys[1], "The right stream")):
        for name in names:
            if name not in schema.names:
                raise UnknownColumn.among(name, schema.names, where)
    for ours, theirs in pairs:
        one, other = key_kind(left.field(ours).type), key_kind(right.field(theirs).type)
        if one != other:
            raise KeyTypeMismatch(
                f"The left stream's {ours!r} is {left.field(ours).type} and the right's {theirs!r} "
                f"{right.field(theirs).type}.",
                why="Values are not converted on the way, so they would never be equal.",
                do=f"Cast one: .withColumn({theirs!r}, col({theirs!r}).cast('…')).",
            )
    return shape


def check_columns(left: pa.Schema, right: pa.Schema) -> None:
    """Refuse columns whose values a memory budget cannot count."""
    for schema, where in ((left, "The left stream"), (right, "The right stream")):
        for field in schema:
            if not countable(field.type):
                raise UnsupportedType(
                    f"{where}'s {field.name!r} is {field.type}.",
                    why="Memory is counted row by row, and values of this type share their bytes.",
                    do="Cast it first: a view or dictionary to its plain type, an array of a fixed size to a list.",
                )


def check_condition(where: Any) -> None:
    """Refuse a further condition that is no function."""
    if where is not None and not callable(where):
        raise BadOption(
            f"where={where!r} is not a function.",
            why="It is asked about pairs of rows, many at once, and text is not run as code.",
            do="Give a function of two record batches, such as "
            "lambda left, right: pyarrow.compute.less(left['a'], right['b']).",
        )


def read_times(
    left: pa.Schema, right: pa.Schema, time: str | tuple[str, str] | None, window: Window | None
) -> tuple[str, str] | None:
    """The event times of both sides; a window in time needs them."""
    if time is None:
        if window is not None and window.timed:
            raise BadOption(
                "A window in time needs the event time of both streams.",
                why="The watermark, which tells when a row can meet no partner any more, comes from it.",
                do='Name the columns: time=("ordered_at", "shipped_at"), with lateness="1 minute" if rows may be late.',
            )
        return None
    names = (time, time) if isinstance(time, str) else column_names(time, option="time")
    if len(names) != 2:
        raise BadOption(f"time={time!r} is not one column for each side.", do='Give time=("left_time", "right_time").')
    for schema, name, where in ((left, names[0], "The left stream"), (right, names[1], "The right stream")):
        if name not in schema.names:
            raise UnknownColumn.among(name, schema.names, where)
        kind = schema.field(name).type
        if not pa.types.is_timestamp(kind) or kind.unit == "ns":
            raise BadOption(
                f"{where}'s {name!r} is {kind} and not a timestamp{' of microseconds' * pa.types.is_timestamp(kind)}.",
                do=f"Make one of it: .withColumn({name!r}, col({name!r}).cast('timestamp')).",
            )
    zoned = [schema.field(name).type.tz is not None for schema, name in ((left, names[0]), (right, names[1]))]
    if zoned[0] != zoned[1]:
        plain = names[zoned.index(False)]
        raise BadOption(
            f"{names[0]!r} and {names[1]!r} cannot be compared: {plain!r} is a timestamp without time zone, the other "
            "is not.",
            why="They are as far apart as the time zone says, and none is given.",
            do=f"Cast one, in the session's time zone: .withColumn({plain!r}, col({plain!r}).cast('timestamp')).",
        )
    return names[0], names[1]


def name_faults(shape: Shape, archive: bool) -> list[PenstockError]:
    """Columns whose names results or the archive cannot have twice."""
    faults: list[PenstockError] = []
    left, right = shape.sides
    theirs = {name.lower(): name for name in shape.carried}
    both = [name for name in shape.left.names if name.lower() in theirs]
    if both:
        faults.append(
            PlanError(
                f"Both streams have {', '.join(map(repr, both))}.",
                why="The result would have two columns of one name.",
                do=renaming(both[0], f"right_{both[0]}"),
            )
        )
    taken = [name for schema in shape.sides for name in schema.names if name.lower() in _NOTED]
    if archive and taken:
        faults.append(PlanError(f"The archive has a column {taken[0]!r} of its own.", do="Rename the stream's."))
    differing = [
        (ours, theirs)
        for ours, theirs in shape.on
        if ours == theirs and shape.left.field(ours).type != shape.right.field(theirs).type
    ]
    if differing and shape.how in ("right", "full"):
        name = differing[0][0]
        faults.append(
            PlanError(
                f"{name!r} is {left.field(name).type} on the left and {right.field(name).type} on the right.",
                why=f"A {shape.how} join has the key of either side in one column.",
                do="Cast one of them to the type of the other.",
            )
        )
    return faults


def width_of(kind: pa.DataType) -> int:
    """Bytes of a value, guessed where they differ."""
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 24
