"""A query's own answer from the results of the flow that it shares: chosen rows, its filter, its select list.

An answer is a small picklable function of record batches: it runs in the workers beside the kernel, or in a server, and
costs no job of Spark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.broker.answers import Total
from penstock.errors import BadQuery
from penstock.plan.views.expressions import Column
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
            ours = rows.column(column)
            found = pc.and_(found, pc.fill_null(pc.equal(ours, pa.scalar(value).cast(ours.type)), False))
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
        said = []
        for added, removed in zip(rows.column("added").to_pylist(), rows.column("removed").to_pylist(), strict=True):
            if added is not None:
                self._total.add(added, 1)
            if removed is not None:
                self._total.add(removed, -1)
            answer = {"count": lambda: self._total.count, "sum": self._total.sum, "avg": self._total.average}[
                function
            ]()
            said.append(float(answer) if isinstance(answer, Fraction | str) else answer)
        return said

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


def answer_of(query: Query, only: Any = None) -> Answer:
    """The answer of a query in a flow."""
    return RangeAnswer(query) if isinstance(query.shape, RangeAggregate) else Answer(query, only)
