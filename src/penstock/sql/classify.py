"""Which shape a SELECT has: from sources and conditions alone, so that the same text always has the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.errors import BadSQL, PlanError
from penstock.kernels.window.windows import RowWindow, TimeWindow, Window
from penstock.plan.join_streams import POLICIES
from penstock.plan.views.expressions import (
    Aggregate,
    Call,
    Column,
    Expression,
    Literal,
    Value,
    columns_of,
    has_aggregate,
)
from penstock.sql.bounds import Bound, bounds
from penstock.sql.catalogue import Catalogue, Relation, Stream
from penstock.sql.constants import nearest
from penstock.sql.dialect import Statement
from penstock.sql.ranged import Base, band_join, select_join
from penstock.sql.reading import Condition, Read
from penstock.sql.shapes import (
    LEFT,
    PREFIX,
    RIGHT,
    Pairs,
    Range,
    RangeAggregate,
    Selection,
    Shape,
    TableJoin,
    WindowJoin,
)
from penstock.tables.keys import key_kind

TABLE_POLICIES = ("keepw", "samplew", "topw", "cluster")
#: How long a micro-batch of a table join may take before rows are shed, if the text does not say.
_LAG = 10_000_000


@dataclass(frozen=True)
class Classified:
    """The shape, the select list by its sides, and the conditions that are left for a filter."""

    shape: Shape
    columns: tuple[tuple[str, Expression], ...]
    rest: tuple[Expression, ...]


def classify(read: Read, statement: Statement, catalogue: Catalogue) -> Classified:
    """The shape of what was read. Raises `BadSQL` where there is none, with what would have one."""
    sources = [catalogue.source(source.table) for source in read.sources]
    streams = [source for source in sources if isinstance(source, Stream)]
    if len(sources) > 2:
        raise _whole(
            statement,
            f"{len(sources)} sources cannot be joined by one query.",
            why="Of streams two are joined, or one with a table.",
            do="Join two of them and make the results a stream of their own; or make it a view: CREATE VIEW name AS …",
        )
    one = _One(read, statement, catalogue)
    if len(sources) == 1:
        return one.stream(streams[0])
    one.refuse_aggregates()
    return one.two_streams() if len(streams) == 2 else one.with_table()


class _One:
    """One query on its way to a shape."""

    def __init__(self, read: Read, statement: Statement, catalogue: Catalogue) -> None:
        self.read = read
        self.statement = statement
        self.catalogue = catalogue
        self.sources = [catalogue.source(source.table) for source in read.sources]

    def bad(self, condition: Condition, what: str, *, why: str = "", do: str = "") -> BadSQL:
        return BadSQL(what, why=why, do=do, text=self.statement.text, start=condition.start, end=condition.end)

    def refuse(self, *clauses: str, why: str) -> None:
        for name in clauses:
            if name in self.statement.clauses:
                raise self.statement.at(name, f"{name.upper()} is not for this query.", why=why, do="Leave it out.")

    def refuse_aggregates(self) -> None:
        for name, item in self.read.columns:
            if has_aggregate(item):
                raise _whole(
                    self.statement,
                    f"{name}: a join of streams is not added up.",
                    why="Its results come for ever, so that no total would be the last.",
                    do="Make it a view: CREATE VIEW name AS SELECT … ANSWER WITHIN 12 SECONDS",
                )

    # -- one stream --------------------------------------------------------------------------------------------------

    def stream(self, stream: Stream) -> Classified:
        self.refuse("window", "archive", "shed", why="It reads one stream, and keeps no rows for partners.")
        if any(has_aggregate(item) for _, item in self.read.columns):
            return self._aggregate(stream)
        if self.read.grouped:
            raise self.bad(self.read.grouped[0], "There is nothing to group.", do="Leave GROUP BY out.")
        self.refuse("memory", why="A filter keeps nothing.")
        rest = tuple(condition.expression for condition in self.read.conditions)
        return Classified(Selection(stream.name), self.read.columns, rest)

    def _aggregate(self, stream: Stream) -> Classified:
        do = "Write SELECT MIN(y) FROM stream WHERE low <= x AND x <= high; or make it a view: CREATE VIEW name AS …"
        if len(self.read.columns) != 1 or self.read.grouped:
            raise _whole(self.statement, "An aggregate over a stream stands alone.", do=do)
        [(called, item)] = self.read.columns
        if not isinstance(item, Aggregate) or not isinstance(item.argument, Column | None):
            raise _whole(self.statement, "An aggregate over a stream is of one of its columns.", do=do)
        if not stream.key or stream.order is None:
            raise _whole(
                self.statement,
                f"{stream.name!r} does not say which rows replace which.",
                why="An aggregate over a range is of a table; the stream brings its updates, each by key and in order.",
                do=f"Give the stream's key, and an order or an event time: ps.stream({stream.name}, key=…, order=…), "
                f'or key = "…" and order = "…" of [streams.{stream.name}] in a pipeline.',
            )
        if called.lower() == stream.order.lower():
            raise _whole(
                self.statement,
                f"Two columns would be called {called!r}.",
                why="An answer comes with the order of the update that changed it.",
                do="Give the aggregate another alias: … AS other_name.",
            )
        ranges: dict[str, list[tuple[Bound, Condition]]] = {}
        partition: list[tuple[str, Value]] = []
        for condition in self.read.conditions:
            match condition.expression:
                case Call("equal", (Column(_, name), Literal(value))) | Call(
                    "equal", (Literal(value), Column(_, name))
                ):
                    partition.append((name, value))
                case _:
                    found = bounds(condition.expression)
                    if not found or any(bound.minus is not None for bound in found):
                        raise self.bad(condition, "This is neither a range nor equality with a constant.", do=do)
                    for bound in found:
                        if not bound.is_exact(stream.schema.field(bound.column.name).type):
                            raise self.bad(
                                condition,
                                "Where this range ends is not exactly known.",
                                why="What a floating number is added to is rounded, for every row in its own way.",
                                do=f"Write the column alone on one side: {bound.column.name} <= 8.",
                            )
                        ranges.setdefault(bound.column.name, []).append((bound, condition))
        if len(ranges) != 1:
            names = " and ".join(ranges) or "no column"
            raise _whole(self.statement, f"An aggregate is over a range of one column, and here of {names}.", do=do)
        [(column, limits)] = ranges.items()
        if len({name for name, _ in partition}) < len(partition) or any(value is None for _, value in partition):
            raise _whole(self.statement, "A column equals two constants, or NULL.", do="Leave one of them out.")
        kind = stream.schema.field(column).type
        try:
            x = Range(column, *_closed([bound for bound, _ in limits], kind))
        except PlanError as fault:
            raise self.bad(limits[0][1], fault.what, why=fault.why, do=fault.do) from None
        self._check_not_empty(x, limits[-1][1])
        argument = item.argument.name if isinstance(item.argument, Column) else None
        shape = RangeAggregate(stream.name, item.function, x, argument, tuple(sorted(partition)))
        return Classified(shape, self.read.columns, ())

    def _check_not_empty(self, found: Range, condition: Condition) -> None:
        if found.low is not None and found.high is not None and found.low > found.high:  # type: ignore[operator]
            raise self.bad(condition, f"No {found.column} is at least {found.low} and at most {found.high}.")

    # -- a stream and a table ----------------------------------------------------------------------------------------

    def with_table(self) -> Classified:
        self.refuse("window", why="The table has no window: a row of the stream meets all of it.")
        turn = isinstance(self.sources[0], Relation)
        read = _turned(self.read) if turn else self.read
        if read.how in ("right", "full"):
            raise _whole(
                self.statement,
                f"{self.read.how.upper()} JOIN keeps the table's rows without partners.",
                why="Whether a row of the table has no partner is known when the stream ends, which it never does.",
                do="Keep the stream's: stream LEFT JOIN table.",
            )
        stream, relation = (self.sources[1], self.sources[0]) if turn else (self.sources[0], self.sources[1])
        assert isinstance(stream, Stream)
        assert isinstance(relation, Relation)
        self._refuse_groups()
        outer = read.how == "left"
        # Of an outer join, ON says who is a partner, and WHERE which results are wanted.
        on, rest = self._pairs(replace(read, conditions=read.conditions[: read.joined]) if outer else read)
        if outer and rest:
            raise _whole(
                self.statement,
                "ON of a LEFT JOIN is equality with the table's key, and nothing else.",
                do="Filter the stream in WHERE, or join inner.",
            )
        if outer:
            rest = tuple(condition.expression for condition in read.conditions[read.joined :])
        wanted = tuple(theirs for _, theirs in on)
        key = relation.key or wanted
        if not on or set(key) != set(wanted) or len(wanted) != len(set(wanted)):
            asked = " AND ".join(f"{read.sources[1].alias}.{name} = …" for name in key) or "a key of the table = …"
            raise _whole(
                self.statement,
                f"The join does not say which rows of {relation.name!r} are partners.",
                why=f"A table is joined by its whole key ({', '.join(key) or 'not named yet'}), and no other column.",
                do=f"Write WHERE {asked}, with a column of {stream.name!r} on the other side.",
            )
        self._check_kinds(on, stream.schema, relation.schema)
        ordered = tuple((ours, theirs) for name in key for ours, theirs in on if theirs == name)
        shed = self._shed(TABLE_POLICIES)
        if outer:
            used = {c.name for _, item in read.columns for c in columns_of(item) if c.source == RIGHT}
            used |= {c.name for item in rest for c in columns_of(item) if c.source == RIGHT}
            if used & set(key):
                raise _whole(
                    self.statement,
                    f"The key of {relation.name!r} is used beside a LEFT JOIN.",
                    why="Results have the stream's key, and there it is never NULL.",
                    do=f"Use the column of {stream.name!r} that equals it.",
                )
        archive = self._archive(shed)
        if shed is not None and archive is None:
            raise self.statement.at(
                "shed",
                "SHED needs an ARCHIVE.",
                why="Rows that are shed are joined later, from there; without it they would be lost.",
                do="Add ARCHIVE 'path'.",
            )
        lag = (self.statement.clauses["shed"].value[1] or _LAG) if shed else None
        prefix = _prefix(stream.schema.names, relation.schema.names)
        shape = TableJoin(stream.name, relation.name, ordered, read.how, shed, archive, lag, prefix)
        return Classified(shape, read.columns, rest)

    def _refuse_groups(self) -> None:
        if self.read.grouped:
            raise self.bad(self.read.grouped[0], "There is nothing to add up in groups.", do="Leave GROUP BY out.")

    # -- two streams -------------------------------------------------------------------------------------------------

    def two_streams(self) -> Classified:
        turn = self.sources[0].name > self.sources[1].name
        read = _turned(self.read) if turn else self.read
        left, right = sorted((source for source in self.sources), key=lambda source: source.name)
        assert isinstance(left, Stream)
        assert isinstance(right, Stream)
        outer = read.how != "inner"
        # Of an outer join, ON says who is a partner, and WHERE which results are wanted.
        equal, rest = self._pairs(replace(read, conditions=read.conditions[: read.joined]) if outer else read)
        self._check_kinds(equal, left.schema, right.schema)
        on, more = _once_each(equal)
        rest = (*rest, *more)
        self._check_groups(read, equal)
        window = self._window(equal, left, right)
        shed = self._shed(POLICIES)
        archive = self._archive(shed)
        base: Base = (left.name, right.name, on, window)
        if outer and (on or rest):
            where = _together(rest) if rest else None
            chosen = tuple(condition.expression for condition in read.conditions[read.joined :])
            return Classified(WindowJoin(*base, shed, archive, where, read.how), read.columns, chosen)
        if shed is None and archive is None and window.timed:
            schemas = (left.schema, right.schema)
            found = band_join(base, rest, schemas, self._never) or select_join(base, rest, schemas, self._never)
            if found is not None:
                return Classified(found[0], read.columns, found[1])
        if on:
            return Classified(WindowJoin(*base, shed, archive), read.columns, rest)
        if not rest:
            raise _whole(
                self.statement,
                "No condition says which rows are partners.",
                do=f"Write WHERE {read.sources[0].alias}.key = {read.sources[1].alias}.key.",
            )
        return Classified(WindowJoin(*base, shed, archive, _together(rest)), read.columns, ())

    def _never(self, what: str) -> BadSQL:
        return _whole(self.statement, what, why="The query would never have a result.")

    def _window(self, on: Pairs, left: Stream, right: Stream) -> Window:
        clause = self.statement.clauses.get("window")
        if clause is None:
            if (left.event_time, right.event_time) in on:
                return TimeWindow(1, 1)  # rows of the same moment
            raise self.statement.at(
                "window",
                "How long rows wait for partners is not said.",
                why="Two streams are joined over a window: rows that are kept for ever outgrow any memory.",
                do="Add WINDOW 1 MINUTE, or WINDOW 500 ROWS.",
            )
        kind, length = clause.value
        if kind == "rows":
            return RowWindow(length, length)
        for stream in (left, right):
            if stream.event_time is None:
                raise self.statement.at(
                    "window",
                    f"{stream.name!r} has no event time.",
                    why="A window in time is about when things happened.",
                    do=f'Say which column it is: ps.stream({stream.name}, time="…"), or time = "…" in a pipeline. '
                    "Or write WINDOW 500 ROWS.",
                )
        return TimeWindow(length, length)

    def _check_groups(self, read: Read, on: Pairs) -> None:
        """GROUP BY the key of a join is what a join does: rows of one key are answered together."""
        keys = {Column(LEFT, ours) for ours, _ in on} | {Column(RIGHT, theirs) for _, theirs in on}
        for key in read.grouped:
            if key.expression not in keys:
                raise self.bad(
                    key,
                    "Results are grouped by columns of the join's key, or not at all.",
                    why="Nothing is added up here.",
                    do="Leave GROUP BY out; or make it a view: CREATE VIEW name AS SELECT …",
                )

    # -- both --------------------------------------------------------------------------------------------------------

    def _pairs(self, read: Read) -> tuple[Pairs, tuple[Expression, ...]]:
        """Equal columns, left and right, in order; and all other conditions."""
        on, rest = [], []
        for condition in read.conditions:
            match condition.expression:
                case Call("equal", (Column() as one, Column() as other)) if one.source != other.source:
                    left, right = sorted((one, other), key=lambda column: column.source)
                    on.append((left.name, right.name))
                case expression:
                    rest.append(expression)
        return tuple(sorted(set(on))), tuple(rest)

    def _check_kinds(self, on: Pairs, left: pa.Schema, right: pa.Schema) -> None:
        for ours, theirs in on:
            try:
                same = key_kind(left.field(ours).type) == key_kind(right.field(theirs).type)
            except PlanError as fault:
                raise _whole(self.statement, fault.what, why=fault.why, do=fault.do) from None
            if not same:
                raise _whole(
                    self.statement,
                    f"{ours} is {left.field(ours).type} and {theirs} {right.field(theirs).type}: they are never equal.",
                    why="Keys are not converted on the way.",
                    do="Cast one of them in the stream itself.",
                )

    def _shed(self, known: Iterable[str]) -> str | None:
        clause = self.statement.clauses.get("shed")
        if clause is None or clause.value[0] == "exact":
            return None
        names = [name for name in known if name != "exact"]
        policy, lag = clause.value
        if policy not in names:
            raise self.statement.at(
                "shed", f"There is no policy {policy!r} here.", do=f"Write SHED and one of: {', '.join(names)}."
            )
        if lag is not None and known is POLICIES:
            raise self.statement.at("shed", "AFTER is for joins with a table.", why="A window join sheds by memory.")
        return str(policy)

    def _archive(self, shed: str | None) -> str | None:
        clause = self.statement.clauses.get("archive")
        if clause is None:
            return None
        if shed is None:
            raise self.statement.at(
                "archive", "ARCHIVE without SHED keeps nothing that is lost.", do="Add SHED PROB, or leave it out."
            )
        try:
            return self.catalogue.archive(clause.value)
        except (PlanError, ValueError, OSError) as fault:
            what = fault.what if isinstance(fault, PlanError) else f"{clause.value!r} is not a path."
            raise self.statement.at("archive", what, do=getattr(fault, "do", "")) from None


def _prefix(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """What makes names of a stream's columns others than those of a table's; letter case tells none apart."""
    prefix, taken = PREFIX[LEFT], {name.lower() for name in theirs}
    while any((prefix + name).lower() in taken for name in ours):
        prefix += "_"
    return prefix


def _once_each(equal: Pairs) -> tuple[Pairs, tuple[Expression, ...]]:
    """Pairs that name every left column once, which an operator can join on; the others as conditions."""
    on: dict[str, str] = {}
    more = []
    for ours, theirs in equal:
        if on.setdefault(ours, theirs) != theirs:
            more.append(Call("equal", (Column(LEFT, ours), Column(RIGHT, theirs))))
    return tuple(on.items()), tuple(more)


def _together(conditions: tuple[Expression, ...]) -> Expression:
    return conditions[0] if len(conditions) == 1 else Call("and", conditions)


def _turned(read: Read) -> Read:
    """The same with both sources changing places."""
    return replace(
        read,
        how={"left": "right", "right": "left"}.get(read.how, read.how),
        sources=tuple(reversed(read.sources)),
        conditions=tuple(replace(c, expression=_turn(c.expression)) for c in read.conditions),
        columns=tuple((name, _turn(item)) for name, item in read.columns),
        grouped=tuple(replace(c, expression=_turn(c.expression)) for c in read.grouped),
    )


def _turn(expression: Expression) -> Expression:
    match expression:
        case Column(source, name):
            return Column(1 - source, name)
        case Call(function, arguments, detail):
            return Call(function, tuple(_turn(argument) for argument in arguments), detail)
        case Aggregate(function, argument) if argument is not None:
            return Aggregate(function, _turn(argument))
    return expression


def _closed(found: Sequence[Bound], kind: pa.DataType) -> tuple[Value, Value]:
    """The narrowest range, with both ends included; None where there is none."""
    low = max((_inside(bound, kind) for bound in found if not bound.upper), default=None)
    high = min((_inside(bound, kind) for bound in found if bound.upper), default=None)
    return low, high


def _inside(bound: Bound, kind: pa.DataType) -> Any:
    return nearest(bound.value, kind, upper=bound.upper, strict=bound.strict)


def _whole(statement: Statement, what: str, *, why: str = "", do: str = "") -> BadSQL:
    """A fault of the whole: shown at SELECT."""
    start = statement.begin
    return BadSQL(what, why=why, do=do, text=statement.text, start=start, end=start + 6)
