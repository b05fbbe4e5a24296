"""A query's own answer from the results of the flow that it shares: chosen rows, its filter, its select list.

An answer is a small picklable function of record batches: it runs in the workers beside the kernel, or in a server, and
costs no job of Spark.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from penstock.broker.answers import Total
from penstock.errors import BadQuery
from penstock.plan.views.expressions import Call, Column
from penstock.sql.constants import constant
from penstock.sql.parse import Query
from penstock.sql.rows import evaluate, functions_of
from penstock.sql.shapes import RangeAggregate

#: The column by which standing queries and shared joins say whose a result is.
QUERY = "query"


@dataclass
class Answer:
    """The rows of one query among a flow's results.

    `only` is the value of the column `query` that marks its rows, None where the flow has no such column.
    """

    query: Query
    only: Any = None
    _schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._schema = self.query.schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer."""
        return self._schema

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The answer's rows among these results."""
        if self.only is not None:
            rows = rows.filter(pc.equal(rows.column(QUERY), pa.scalar(self.only, rows.schema.field(QUERY).type)))
        functions = functions_of(self.query.catalogue)
        try:
            if self.query.filter is not None and rows.num_rows:
                kept = evaluate(self.query.filter, self._lookup(rows), rows.num_rows, functions)
                rows = rows.filter(kept.cast(pa.bool_()), null_selection_behavior="drop")
            columns = [
                evaluate(item, self._lookup(rows), rows.num_rows, functions).cast(place.type)
                for (_, item), place in zip(self.query.columns, self._schema, strict=True)
            ]
        except pa.ArrowInvalid as fault:
            raise BadQuery(
                f"A row cannot be calculated with: {str(fault).splitlines()[0]}.",
                why=f"It was for: {' '.join(self.query.text.split())[:200]}",
                do="Cast to a wider type, or keep such rows out with a condition.",
            ) from None
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _lookup(self, rows: pa.RecordBatch) -> Any:
        shape, schemas = self.query.shape, self.query.schemas

        def column(named: Column) -> pa.Array:
            found = rows.column(shape.result_name(named))
            want = schemas[named.source].field(named.name).type
            return found if found.type == want else found.cast(want)

        return column

    def state(self) -> bytes:
        """What must be remembered between batches: nothing."""
        return b""

    def restore(self, state: bytes) -> None:
        """Go on from a state."""


@dataclass
class RangeAnswer(Answer):
    """The new answer of an aggregate over a range, each time it changes: its order, and its value.

    Messages of a subscription concern those ranges that lie in their rectangle. MIN and MAX are in the message; COUNT,
    SUM and AVG are kept here, exactly, from what came into the range and left it.
    """

    _total: Total = field(default_factory=Total, repr=False)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The changes of this range's answer among these messages."""
        shape = self.query.shape
        assert isinstance(shape, RangeAggregate)
        rows = rows.filter(self._concerned(rows, shape))
        order, value = self._schema
        if shape.function in ("min", "max"):
            values = rows.column("value").cast(value.type)
        else:
            values = pa.array(self._totals(rows, shape.function), value.type)
        return pa.RecordBatch.from_arrays([rows.column(order.name), values], schema=self._schema)

    def _concerned(self, rows: pa.RecordBatch, shape: RangeAggregate) -> pa.Array:
        found = pa.array([True]).take(pa.array([0] * rows.num_rows, pa.int64()))
        for column, value in shape.partition:
            # As any condition compares: a constant is not made to fit the column.
            equal = Call("equal", (Column(0, column), constant(value)))
            mine = evaluate(equal, lambda named: rows.column(named.name), rows.num_rows, {})
            found = pc.and_(found, pc.fill_null(mine, False))
        for end, inner, outer, within, beyond in (
            (shape.x.low, "inner_left", "outer_left", pc.greater_equal, pc.less),
            (shape.x.high, "inner_right", "outer_right", pc.less_equal, pc.greater),
        ):
            limit = rows.column(outer)
            if end is None:  # no end: all of it, unless there is more beyond
                found = pc.and_(found, pc.is_null(limit))
                continue
            bound = pa.scalar(end)
            found = pc.and_(found, pc.fill_null(within(rows.column(inner), bound), True))
            found = pc.and_(found, pc.fill_null(beyond(limit, bound), True))
        return found

    def _totals(self, rows: pa.RecordBatch, function: str) -> list[Any]:
        kind = self._schema.field(1).type
        said: list[Any] = []
        for added, removed in zip(rows.column("added").to_pylist(), rows.column("removed").to_pylist(), strict=True):
            for value, times in ((added, 1), (removed, -1)):
                if value is not None:
                    # Of a count no value matters, whatever it is.
                    self._total.add(0 if function == "count" else _exact(value), times)
            match function:
                case "count":
                    said.append(self._total.count)
                case "sum":
                    said.append(self._shown(self._total.sum(), kind))
                case _:
                    said.append(self._shown(self._total.average(), kind))
        return said

    def _shown(self, total: Any, kind: pa.DataType) -> Any:
        """A total, exact until now, as the column of answers has it."""
        if total is None or isinstance(total, str | float):
            return None if total is None else float(total)
        if pt.is_floating(kind):
            try:
                return float(total)
            except OverflowError:
                return math.inf if total > 0 else -math.inf
        scale = kind.scale if pt.is_decimal(kind) else 0
        whole = int(total * 10**scale)
        if abs(whole) >= (10**38 if pt.is_decimal(kind) else 1 << 63):
            raise BadQuery(
                f"A sum is beyond what {kind} can hold.",
                why=f"It was for: {' '.join(self.query.text.split())[:200]}",
                do="Ask for AVG and COUNT, which always fit.",
            )
        return Decimal((whole < 0, tuple(map(int, str(abs(whole)))), -scale)) if pt.is_decimal(kind) else whole

    def state(self) -> bytes:
        """The total."""
        finite = Fraction(self._total.finite)
        beyond = {str(value): times for value, times in self._total.infinite.items()}
        return json.dumps([self._total.count, str(finite.numerator), str(finite.denominator), beyond]).encode()

    def restore(self, state: bytes) -> None:
        """Go on from a total."""
        if not state:
            return
        count, top, bottom, beyond = json.loads(state)
        self._total = Total(count, Fraction(int(top), int(bottom)))
        self._total.infinite.update({float(value): times for value, times in beyond.items()})


def _exact(value: Any) -> Any:
    """A number that can be added to any other without a loss; a total knows what to do with floating ones."""
    return Fraction(value) if isinstance(value, Decimal) else value


def answer_of(query: Query, only: Any = None) -> Answer:
    """The answer of a query in a flow."""
    return RangeAnswer(query) if isinstance(query.shape, RangeAggregate) else Answer(query, only)
