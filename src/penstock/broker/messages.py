"""Messages as rows of 64-bit integers, and many of them as one frame on the wire."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from penstock.broker.pairs import PAIRS, pair_rows
from penstock.broker.subjects import token
from penstock.errors import BadFrame, BadOption
from penstock.kernels.subscriptions.codes import decode, encode, python_values
from penstock.kernels.subscriptions.engine import EXTREMES

I64 = npt.NDArray[np.int64]

#: Columns of a message: its number, which of the next are there, two values, and the rectangle.
SEQ, FLAGS, VALUE, OTHER, INNER_LEFT, INNER_RIGHT, LEFT, RIGHT = range(8)
#: With ranges of two columns, the rectangle of the second.
INNER_BOTTOM, INNER_TOP, BOTTOM, TOP = range(8, 12)
WIDTH, WIDER = 8, 12
HAS_VALUE, HAS_OTHER, HAS_LEFT, HAS_RIGHT, HAS_BOTTOM, HAS_TOP = 1, 2, 4, 8, 16, 32
LEAST, MOST = -(2**63), 2**63 - 1
_HEADER = struct.Struct("<4sqq")
_MAGIC, _WITH_KEYS = b"PSF1", b"PSF2"
_NOTHING = pa.schema([])
#: Those of a decimal that ranges are made of, at the most.
_DIGITS = 18


@dataclass(frozen=True)
class Kind:
    """What is subscribed to: the aggregate, and the types behind the codes.

    With `relaxed`, extremes too are told of every value that comes and goes: delivery by CN. `x2` is the type of the
    second column, where ranges are of two. With `keys`, the columns that name the two rows of a pair, it is a join that
    is subscribed to, by ranges of x and of x2. Each combination of values of `partition_by` has its own subscribers.
    """

    agg: str
    x: pa.DataType
    y: pa.DataType
    relaxed: bool = False
    x2: pa.DataType | None = None
    keys: pa.Schema | None = None
    partition_by: pa.Schema = _NOTHING

    @classmethod
    def of_pairs(cls, messages: pa.Schema, keys: list[str], partition_by: pa.Schema = _NOTHING) -> Kind:
        """Of a join whose messages have these columns, those among them that name rows."""
        left, right = (messages.field(f"{side}_before").type for side in ("left", "right"))
        named = pa.schema([messages.field(name) for name in keys])
        return cls(PAIRS, left, left, x2=right, keys=named, partition_by=partition_by)

    @property
    def says_all(self) -> bool:
        """Whether a message has the new answer; otherwise it has what came and what went."""
        return self.agg in EXTREMES and not self.relaxed

    def code(self, value: object, kind: pa.DataType | None = None, *, upper: bool = False) -> int:
        """The code of an end of a range; of x, or of that type. One that the column has no value for moves inwards."""
        kind = kind or self.x
        # An end may be one that a narrow column has no room for.
        wide = pa.float64() if pt.is_floating(kind) else pa.int64() if pt.is_integer(kind) else kind
        wide = pa.decimal128(_DIGITS + 1, kind.scale) if pt.is_decimal(kind) else wide
        try:
            codes, able = encode(pa.array([_inwards(value, wide, upper)], wide))
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
            able = np.zeros(1, np.bool_)
        if not able[0]:
            raise BadOption(f"{value!r} is no end of a range of {kind}.", do="Give a value that the column may have.")
        return int(codes[0])

    def partition(self, given: object) -> str:
        """The token of a partition as subscribers name it: its value, or several; none where nothing is divided."""
        values, columns = list(given) if isinstance(given, tuple | list) else [given], list(self.partition_by)
        if len(values) != len(columns):
            named = ", ".join(f"{column.name} ({column.type})" for column in columns)
            raise BadOption(
                f"partition={given!r} does not say which partition.",
                why=f"These messages are divided by {named}." if columns else "These messages are not divided.",
                do="Give one value for each of these columns, as a tuple of several." if columns else "Leave it out.",
            )
        return token([_value_of(value, column) for value, column in zip(values, columns, strict=True)])

    def rows(self, messages: pa.Table) -> I64:
        """Messages as rows; the columns are those of the results of `Subscriptions`."""
        if self.keys is not None:
            return pair_rows(messages)
        out = np.zeros((messages.num_rows, WIDTH if self.x2 is None else WIDER), np.int64)
        out[:, SEQ] = messages.column("seq").to_numpy()
        named = {INNER_LEFT: "inner_left", INNER_RIGHT: "inner_right", LEFT: "outer_left", RIGHT: "outer_right"}
        named |= {VALUE: "value"} if self.says_all else {VALUE: "added", OTHER: "removed"}
        flags = {VALUE: HAS_VALUE, OTHER: HAS_OTHER, LEFT: HAS_LEFT, RIGHT: HAS_RIGHT, BOTTOM: HAS_BOTTOM, TOP: HAS_TOP}
        if self.x2 is not None:
            named |= {INNER_BOTTOM: "inner_bottom", INNER_TOP: "inner_top", BOTTOM: "outer_bottom", TOP: "outer_top"}
        for place, name in named.items():
            codes, able = encode(messages.column(name).combine_chunks())
            out[:, place] = np.where(able, codes, 0)
            if place in flags:
                out[:, FLAGS] |= np.where(able, flags[place], 0)
        return out

    def value(self, code: int, there: bool = True) -> object:
        """A value of y as people have it."""
        return python_values(decode(np.array([code]), self.y))[0] if there else None

    def to_json(self) -> dict[str, Any]:
        """As it is told to gateways."""
        said = {"agg": self.agg, "x": _text(self.x), "y": _text(self.y), "relaxed": self.relaxed}
        said |= {} if self.x2 is None else {"x2": _text(self.x2)}
        said |= {} if self.keys is None else {"keys": self.keys.serialize().to_pybytes().hex()}
        return said | {"partition_by": self.partition_by.serialize().to_pybytes().hex()}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Kind:
        """What `to_json` wrote."""
        second = _type(said["x2"]) if "x2" in said else None
        keys = _schema(said["keys"]) if "keys" in said else None
        parts = _schema(said["partition_by"])
        return cls(said["agg"], _type(said["x"]), _type(said["y"]), said["relaxed"], second, keys, parts)


def _value_of(value: Any, column: pa.Field) -> object:
    """A value as the column has it; one that it cannot have is refused: nobody would ever be told anything of it."""
    try:
        known = pa.array([value], column.type)[0].as_py()
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        known = None
    # A float may be one that a narrower column has rounded.
    if known is None or not (known == value or (pt.is_floating(column.type) and not math.isnan(known))):
        raise BadOption(
            f"partition has {value!r}, a {type(value).__name__}, for {column.name!r}, which is of type {column.type}.",
            do="Give a value that the column may have.",
        )
    return known


def _inwards(value: Any, kind: pa.DataType, upper: bool) -> Any:
    """An end of a range, moved to the next value inwards that a column of integers or decimals may have."""
    value = value.item() if isinstance(value, np.number) else value
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and value == value:
        if pt.is_integer(kind):
            beyond = not LEAST <= value <= MOST
            return min(max(value, LEAST), MOST) if beyond else math.floor(value) if upper else math.ceil(value)
        if pt.is_decimal(kind):
            unit = Decimal(1).scaleb(-kind.scale)
            beyond = (10**_DIGITS) * unit
            # 0.1 is what it is written as, and not the binary fraction a little above that it is to a computer.
            exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
            within = min(max(exact, -beyond), beyond)
            return within.quantize(unit, ROUND_FLOOR if upper else ROUND_CEILING)
    if pt.is_date(kind) and isinstance(value, datetime):
        # A day that has begun is no day after it.
        day = value.date()
        return day if upper or value.time() == time.min else day + timedelta(days=1)
    return value


def _text(kind: pa.DataType) -> str:
    return pa.schema([("t", kind)]).serialize().to_pybytes().hex()


def _type(text: str) -> pa.DataType:
    return _schema(text).field(0).type


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text)))


class Frame(NamedTuple):
    """Messages of one cell that travel together. `after` is the number of the cell's message before them, or -1.

    One without messages says just that: which was the last.
    `keys` name the pairs of a join, one row for each message.
    """

    after: int
    rows: I64
    keys: pa.Table | None = None

    @property
    def begin(self) -> int:
        """The number before that of its first message."""
        return int(self.rows[0, SEQ]) - 1 if len(self.rows) else self.after

    @property
    def end(self) -> int:
        """The number of its last message."""
        return int(self.rows[-1, SEQ]) if len(self.rows) else self.after

    def to_bytes(self) -> bytes:
        """On the wire."""
        rows = self.rows.astype("<i8").tobytes()
        if self.keys is None:
            return _HEADER.pack(_MAGIC, self.after, len(self.rows)) + rows
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.keys.schema) as writer:
            writer.write_table(self.keys)
        return _HEADER.pack(_WITH_KEYS, self.after, len(self.rows)) + rows + sink.getvalue().to_pybytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Frame:
        """Off the wire, or refused."""
        if len(data) < _HEADER.size:
            raise BadFrame("A frame is shorter than its header.", do="Publish to these subjects with Penstock alone.")
        magic, after, count = _HEADER.unpack_from(data)
        keys, end = None, len(data)
        if magic == _WITH_KEYS and 0 <= count <= len(data):
            end = _HEADER.size + 8 * WIDER * count
            keys = _keys(data[end:], count)
        words, rest = divmod(end - _HEADER.size, 8)
        if magic not in (_MAGIC, _WITH_KEYS) or rest or words not in (count * WIDTH, count * WIDER):
            raise _no_frame()
        width = WIDTH if words == count * WIDTH else WIDER
        return cls(after, np.frombuffer(data, "<i8", words, _HEADER.size).reshape(-1, width), keys)


def _keys(data: bytes, count: int) -> pa.Table:
    try:
        keys = pa.ipc.open_stream(data).read_all()
        keys.validate(full=True)
    except (pa.ArrowException, OSError) as fault:
        raise _no_frame() from fault
    if keys.num_rows != count:
        raise _no_frame()
    return keys


def _no_frame() -> BadFrame:
    return BadFrame(
        "A message is not a frame of subscriptions, or was cut.", do="Publish to these subjects with Penstock alone."
    )
