"""What a view keeps of each group, and how rows and groups are put together, as columns and frames.

COUNT and SUM of groups add up. MIN and MAX take the better of the old one and that of rows that entered; a group that
lost a row as good as that is *lost*, and recomputed from its rows, alone. So is a group that lost a row from a sum of
floating numbers, where subtracting is not exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import cached_property, reduce
from operator import mul
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn
from pyspark.sql.types import DecimalType, DoubleType, FloatType, IntegralType, LongType

from penstock.plan.views.expressions import Aggregate, Column, Key, Total
from penstock.plan.views.query import Query
from penstock.spark.schema import quoted
from penstock.spark.views.expressions import build

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

#: The sign of a row, in files of ours and of joined rows.
SIGN = "__sign"
ROWS = "rows"
LOST = "lost"
#: What 64-bit numbers are added up in: on the way to a sum that fits, others may not, and −2⁶³ has no opposite.
_WIDE = DecimalType(38, 0)
#: Those of a decimal.
_MOST_DIGITS = 38


@dataclass(frozen=True)
class _Kept:
    """How an aggregate is kept in a group."""

    aggregate: Aggregate
    number: int

    @property
    def count(self) -> str:
        """Rows whose argument is not NULL."""
        return f"a{self.number}_n"

    @property
    def total(self) -> str:
        """Their sum, least or greatest."""
        return f"a{self.number}_v"

    @property
    def left(self) -> str:
        """What left: the least or greatest value, or whether anything did."""
        return f"a{self.number}_d"

    @property
    def function(self) -> str:
        return self.aggregate.function

    @property
    def is_extreme(self) -> bool:
        return self.function in ("min", "max")

    @property
    def is_sum(self) -> bool:
        return self.function in ("sum", "avg")

    def best(self, column: SparkColumn) -> SparkColumn:
        """The aggregate of Spark that takes the best of an extreme."""
        return fn.min(column) if self.function == "min" else fn.max(column)


class Groups:
    """The groups of one view. Columns are built once, and are good for every session of a process.

    `empty` has no row, and of all sources the used columns and signs, as `named` names them.
    """

    def __init__(self, query: Query, empty: DataFrame) -> None:
        self._query = query
        self.keys = [f"k{number}" for number in range(len(query.keys))]
        self._kept = [
            _Kept(aggregate, number)
            for number, aggregate in enumerate(query.aggregates)
            if aggregate.argument is not None
        ]
        self._types: dict[int, Any] = {}
        # Before a type is known, an argument is taken as it is written.
        arguments = {kept.number: empty.select(self._argument(kept).alias("x")) for kept in self._kept}
        self._types = {number: frame.schema["x"].dataType for number, frame in arguments.items()}
        #: Aggregates that cannot be undone: a group may be lost.
        self._fragile = [kept for kept in self._kept if kept.is_extreme or (kept.is_sum and self._floating(kept))]
        partials = self._partials(empty.select(*self.outputs))
        self._all_types = {field.name: field.dataType for field in partials.schema.fields}
        #: The columns of a group as it is stored.
        left = {kept.left for kept in self._fragile}
        self.stored = {name: type_ for name, type_ in self._all_types.items() if name not in left}

    @cached_property
    def outputs(self) -> list[SparkColumn]:
        """Of joined rows: keys, arguments, and the product of all signs."""
        keys = [build(key, column).alias(name) for key, name in zip(self._query.keys, self.keys, strict=True)]
        values = [self._argument(kept).alias(f"x{kept.number}") for kept in self._kept]
        sign = reduce(mul, (fn.col(f"w{source}") for source in range(len(self._query.sources))))
        return [*keys, *values, sign.cast("bigint").alias(SIGN)]

    def whole(self, rows: DataFrame) -> DataFrame:
        """The groups of joined rows."""
        return self._finished(self._partials(rows))

    def _partials(self, rows: DataFrame) -> DataFrame:
        return self._rowwise(rows).groupBy(*self.keys).agg(*self._totals)

    def _rowwise(self, rows: DataFrame) -> DataFrame:
        """What each joined row adds to its group, in the columns of a group."""
        if not self._fragile:
            return rows.select(*self.keys, fn.col(SIGN).alias(ROWS), *self._linear)
        # Equal values that enter and leave cancel each other first, so that of a value that is left more entered than
        # left, or the other way round.
        values = [f"x{kept.number}" for kept in self._fragile]
        return rows.groupBy(*self.keys, *values).agg(*self._netted).select(*self.keys, *self._of_netted)

    @cached_property
    def _linear(self) -> list[SparkColumn]:
        """What a joined row adds to aggregates that can be undone."""
        sign, found = fn.col(SIGN), []
        for kept in self._kept:
            if kept not in self._fragile:
                value = fn.col(f"x{kept.number}")
                found.append(self._counted(kept).alias(kept.count))
                if kept.is_sum:
                    found.append(fn.when(sign > 0, value).otherwise(-value).alias(kept.total))
        return found

    @cached_property
    def _linear_names(self) -> list[str]:
        linear = [kept for kept in self._kept if kept not in self._fragile]
        return [name for kept in linear for name in (kept.count, *([kept.total] if kept.is_sum else []))]

    @cached_property
    def _netted(self) -> list[SparkColumn]:
        sums = zip(self._linear, self._linear_names, strict=True)
        return [fn.sum(SIGN).alias(SIGN), *(fn.sum(added).alias(name) for added, name in sums)]

    @cached_property
    def _of_netted(self) -> list[SparkColumn]:
        """What values that are left add to a group."""
        sign = fn.col(SIGN)
        found = [sign.alias(ROWS), *(fn.col(name) for name in self._linear_names)]
        for kept in self._fragile:
            value = fn.col(f"x{kept.number}")
            found.append(self._counted(kept).alias(kept.count))
            if kept.is_extreme:
                found.append(fn.when(sign > 0, value).alias(kept.total))
                found.append(fn.when(sign < 0, value).alias(kept.left))
            else:
                # Where nothing is left of a value, not even infinity may remain of it.
                found.append(fn.when(sign != 0, value * sign).alias(kept.total))
                found.append(((sign < 0) & value.isNotNull()).alias(kept.left))
        return found

    @staticmethod
    def _counted(kept: _Kept) -> SparkColumn:
        return fn.when(fn.col(f"x{kept.number}").isNotNull(), fn.col(SIGN)).otherwise(0)

    @cached_property
    def _totals(self) -> list[SparkColumn]:
        """Of rows that add to a group, and of the group itself."""
        totals = [fn.coalesce(fn.sum(ROWS), fn.lit(0)).alias(ROWS)]
        for kept in self._kept:
            totals.append(fn.coalesce(fn.sum(kept.count), fn.lit(0)).alias(kept.count))
            total = fn.sum(kept.total).cast(self._sum_type(kept)) if kept.is_sum else kept.best(fn.col(kept.total))
            if kept in self._fragile:
                # Of values that are all gone nothing stays, or the next one would be compared with, or added to, it.
                total = fn.when(fn.sum(kept.count) > 0, total)
                left = kept.best(fn.col(kept.left)) if kept.is_extreme else fn.max(kept.left)
                totals.append(left.alias(kept.left))
            if kept.is_sum or kept.is_extreme:
                totals.append(total.alias(kept.total))
        return totals

    def _sum_type(self, kept: _Kept) -> Any:
        type_ = self._types[kept.number]
        if isinstance(type_, DecimalType):
            return DecimalType(min(38, type_.precision + 10), type_.scale)
        if isinstance(type_, (FloatType, DoubleType)):
            return DoubleType()
        # A mean of large numbers is one of them, though their sum is not.
        return _WIDE if kept.function == "avg" and isinstance(type_, LongType) else LongType()

    def merged(self, state: DataFrame, rows: DataFrame) -> DataFrame:
        """Groups as they were and what joined rows add to them, in one grouping."""
        old = state.select("*", *self._nothing_left)
        new = self._rowwise(rows).select(*self._as_stored)
        merged = old.unionByName(new).groupBy(*self.keys).agg(*self._totals)
        return self._finished(merged.withColumn(LOST, self._any_lost) if self._fragile else merged)

    @cached_property
    def _nothing_left(self) -> list[SparkColumn]:
        return [fn.lit(None).cast(self._all_types[kept.left]).alias(kept.left) for kept in self._fragile]

    @cached_property
    def _as_stored(self) -> list[SparkColumn]:
        wide = {kept.total: _WIDE for kept in self._kept if kept.is_sum and self._is_long(kept)}
        return [fn.col(name).cast(wide.get(name, type_)).alias(name) for name, type_ in self._all_types.items()]

    @cached_property
    def _any_lost(self) -> SparkColumn:
        return reduce(lambda a, b: a | b, (fn.coalesce(self._is_lost(kept), fn.lit(False)) for kept in self._fragile))

    def _is_lost(self, kept: _Kept) -> SparkColumn:
        some = fn.col(kept.count) > 0
        if not kept.is_extreme:
            return some & fn.col(kept.left)
        left, best = fn.col(kept.left), fn.col(kept.total)
        return some & (best.isNull() | (left <= best if kept.function == "min" else left >= best)) & left.isNotNull()

    def _finished(self, groups: DataFrame) -> DataFrame:
        """Groups as they are stored: without those that are no more, and without notes on what left."""
        kept = groups.where(fn.col(ROWS) != 0) if self.keys else groups
        return kept.drop(*(kept_.left for kept_ in self._fragile))

    def can_lose(self) -> bool:
        """Whether groups may have to be computed anew."""
        return bool(self._fragile)

    def shown(self, part: Column | Key | Total) -> SparkColumn:
        """A key or an aggregate as readers see it, from the columns of a group."""
        if isinstance(part, Key):
            return fn.col(self.keys[part.number])
        assert isinstance(part, Total)
        aggregate = self._query.aggregates[part.number]
        if aggregate.argument is None:
            return fn.col(ROWS)
        kept = _Kept(aggregate, part.number)
        if kept.function == "count":
            return fn.col(kept.count)
        some = fn.col(kept.count) > 0
        if kept.function != "avg":
            return fn.when(some, fn.col(kept.total))
        type_ = self._types[part.number]
        if isinstance(type_, DecimalType):
            shown = DecimalType(min(38, type_.precision + 4), min(type_.scale + 4, 37))
            return fn.when(some, _mean(fn.col(kept.total), self._sum_type(kept), fn.col(kept.count), shown))
        return fn.when(some, fn.try_divide(fn.col(kept.total).cast("double"), fn.col(kept.count)))

    def _argument(self, kept: _Kept) -> SparkColumn:
        assert kept.aggregate.argument is not None
        value = build(kept.aggregate.argument, column)
        type_ = self._types.get(kept.number)
        if kept.is_sum and isinstance(type_, IntegralType):
            return value.cast(_WIDE if self._is_long(kept) else "bigint")
        if kept.is_sum and isinstance(type_, FloatType):
            return value.cast("double")
        if kept.function == "count":
            return fn.when(value.isNotNull(), True)  # only that it is there
        return value

    def _is_long(self, kept: _Kept) -> bool:
        return isinstance(self._types.get(kept.number), LongType)

    def _floating(self, kept: _Kept) -> bool:
        return isinstance(self._types[kept.number], (FloatType, DoubleType))


def _mean(total: SparkColumn, summed: DecimalType, count: SparkColumn, shown: DecimalType) -> SparkColumn:
    """A sum of decimals by how many there are, which is not none.

    What Spark divides has as many digits after the point as the sum's own before it leave, six at the least. Where that
    is not what is shown, it is divided by Python: the last digits would be zeros, or there would be too few before.
    """
    after = max(_MOST_DIGITS - (summed.precision - summed.scale), 6)
    if after >= shown.scale and _MOST_DIGITS - after >= shown.precision - shown.scale:
        return (total / count).cast(shown)
    unit = Decimal(1).scaleb(-shown.scale)

    def divided(of: Decimal | None, by: int) -> Decimal | None:
        # Enough to round once only; without rows there is nothing to divide, and Spark may ask all the same.
        with localcontext(prec=4 * _MOST_DIGITS):
            return (of / by).quantize(unit, ROUND_HALF_UP) if of is not None and by else None

    return fn.udf(divided, shown, useArrow=False)(total, count)


def named(part: Column) -> str:
    """What a column of a source is called in our frames."""
    return f"s{part.source}_{part.name}"


def column(part: Column | Key | Total) -> SparkColumn:
    """A column of a source, in our frames."""
    assert isinstance(part, Column)
    return quoted(named(part))
