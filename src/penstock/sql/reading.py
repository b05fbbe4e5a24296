"""The tree of a SELECT read against the catalogue: sources, conditions, select list, each fault with its place.

This is the reading of views (`penstock.plan.views`) with three things added: places, constants that are given by name
(`values`), and functions that a program registered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sqlglot import exp

from penstock.errors import BadSQL, NotMaintainable, PlanError, UnknownColumn, UnknownTable
from penstock.plan.views import kinds
from penstock.plan.views.expressions import Call, Column, Expression, Literal, Value, has_aggregate
from penstock.plan.views.query import Analysis, Source, called
from penstock.plan.views.scalars import Node, Scalars, Typed
from penstock.sql.catalogue import Catalogue
from penstock.sql.constants import constant
from penstock.sql.dialect import Statement

#: Trees with longer branches are refused: every step over them is a call within a call.
LONGEST_BRANCH = 150
_CLAUSES = {"expressions", "from_", "joins", "where", "group"}
_NOT_FOR_STREAMS = {
    "limit": ("LIMIT", "A standing query never ends: there are no first rows."),
    "offset": ("OFFSET", "A standing query never ends: there are no first rows."),
    "order": ("ORDER BY", "Results come as they become known. Sort what you read."),
    "with_": ("WITH", "A query is one SELECT over streams and tables."),
    "having": ("HAVING", "Groups of a stream are never complete. Make it a view: CREATE VIEW name AS SELECT …"),
    "distinct": ("DISTINCT", "All results would have to be remembered for ever. Make it a view: CREATE VIEW …"),
    "windows": ("WINDOW … AS", "A window says how long rows wait: WINDOW 1 MINUTE, or WINDOW 500 ROWS."),
}


@dataclass(frozen=True)
class Condition:
    """One of the conditions that must all hold, and where it stands in the text."""

    expression: Expression
    start: int
    end: int


@dataclass(frozen=True)
class Read:
    """A SELECT as it was understood."""

    sources: tuple[Source, ...]
    conditions: tuple[Condition, ...]
    columns: tuple[tuple[str, Expression], ...]
    #: "inner", or "left", "right", "full" for the one outer join there may be.
    how: str
    #: How many of the conditions stand in ON or USING.
    joined: int
    grouped: tuple[Condition, ...]


def span(node: Node) -> tuple[int, int]:
    """Where a node stands in the text; (0, 0) if sqlglot does not know."""
    places = [part.meta for part in node.walk() if "start" in part.meta] if isinstance(node, exp.Expression) else []
    if not places:
        return 0, 0
    return min(place["start"] for place in places), max(place["end"] for place in places) + 1


class Reading(Analysis):
    """Reads a statement."""

    def __init__(self, statement: Statement, catalogue: Catalogue, values: Mapping[str, Value]) -> None:
        super().__init__(statement.select, catalogue.schemas)
        self._statement = statement
        self._catalogue = catalogue
        self._values = {name.lower(): value for name, value in values.items()}
        self._how = "inner"
        #: Whether a view is read, where numbers with a point are decimals and names may not repeat.
        self._is_view = False
        self._scalars = _Placed(self)

    @contextmanager
    def at(self, node: Node) -> Iterator[None]:
        """Errors inside are about this node, unless they know better."""
        try:
            yield
        except BadSQL:
            raise
        except PlanError as fault:
            if span(node) == (0, 0) and node is not self._tree:
                raise  # what this is part of may know where it stands
            raise self.bad(node, fault) from None
        except RecursionError:
            raise BadSQL("The text is nested too deeply.", text=self._statement.text) from None

    def bad(self, node: Node, fault: PlanError) -> BadSQL:
        """A fault, at its place."""
        start, end = span(node)
        refused = isinstance(fault, NotMaintainable)
        what = "This cannot be part of a query." if refused and not self._is_view else fault.what
        return BadSQL(what, why=fault.why, do=fault.do, text=self._statement.text, start=start, end=end)

    def read(self) -> Read:
        """The parts of a query over streams."""
        self.check_depth()
        self._refuse_clauses()
        nodes = self._from()
        joined = len(nodes)
        where = self._tree.args.get("where")
        if where is not None:
            nodes += list(where.this.flatten() if isinstance(where.this, exp.And) else [where.this])
        with self.at(self._tree):
            conditions = [self._conjunct(node) for node in nodes]
        with self.at(self._tree):
            if not self._tree.expressions:
                raise PlanError("SELECT names no column.", do="Name some, or * for all.")
            columns = tuple((name, item) for name, (item, _) in self._items())
        parted = tuple(part for condition in conditions for part in _parts(condition))
        joined = len([part for condition in conditions[:joined] for part in _parts(condition)])
        return Read(tuple(self._sources), parted, columns, self._how, joined, self._grouped())

    def read_view(self) -> tuple[str, tuple[str, ...]]:
        """A view's SELECT as text, with constants in the place of their names, and the tables it is over."""
        self.check_depth()
        self._is_view = True
        with self.at(self._tree):
            query = self.query()
        for node in self._tree.expressions:
            # It is called as it is written, not as its constants are.
            if not isinstance(node, exp.Alias) and node.transform(self._put_in) != node:
                node.replace(exp.alias_(node.copy(), called(node), quoted=True))
        tree = self._tree.transform(self._put_in)
        return tree.sql(), tuple(dict.fromkeys(source.table for source in query.sources))

    def _put_in(self, node: Node) -> Node:
        """A constant where its name stands."""
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in self._values:
            names = {name.lower() for source in self._sources for name in self._tables[source.table].names}
            if node.name.lower() not in names:
                return _written(self._values[node.name.lower()])
        return node

    def check_depth(self) -> None:
        """Refuse a tree with branches so long that following them would not end well."""
        level, depth = [self._tree], 0
        while level:
            depth += 1
            if depth > LONGEST_BRANCH:
                raise BadSQL(
                    "The text is nested too deeply, or has too many conditions in a row.",
                    why=f"At most {LONGEST_BRANCH} levels are read.",
                    text=self._statement.text,
                )
            level = [child for node in level for child in node.iter_expressions()]

    def _conjunct(self, node: Node) -> Condition:
        with self.at(node):
            found = self._condition(node)
            if has_aggregate(found):
                raise PlanError("Rows are chosen before they are added up.", do="Leave the aggregate out of WHERE.")
        return Condition(found, *span(node))

    def _grouped(self) -> tuple[Condition, ...]:
        group = self._tree.args.get("group")
        if group is None:
            return ()
        with self.at(group):
            keys = self._keys(group, [])
        return tuple(Condition(key, *span(node)) for key, node in zip(keys, group.expressions, strict=False))

    # -- what views have, with places --------------------------------------------------------------------------------

    def _refuse_clauses(self) -> None:
        for name, value in self._tree.args.items():
            allowed = name in _CLAUSES or (self._is_view and name in ("having", "distinct"))
            if value and not allowed:
                node = value[0] if isinstance(value, list) else value
                clause, why = _NOT_FOR_STREAMS.get(name, (name.rstrip("_").upper(), "It is not among our clauses."))
                start, end = span(node)
                raise BadSQL(f"{clause} cannot be used.", why=why, text=self._statement.text, start=start, end=end)

    def _from(self) -> list[Node]:
        joins = self._tree.args.get("joins") or []
        side = (joins[0].args.get("side") or "").lower() if len(joins) == 1 and not self._is_view else ""
        if side in ("left", "right", "full") and (joins[0].args.get("kind") or "OUTER").upper() == "OUTER":
            self._how = side
            joins[0].set("side", None)
            joins[0].set("kind", None)
            if side != "left" and joins[0].args.get("using"):
                with self.at(joins[0]):
                    raise PlanError(
                        f"USING does not say whose key a {side.upper()} JOIN shows.", do="Write ON a.key = b.key."
                    )
        clause = self._tree.args.get("from_")
        with self.at(joins[-1] if joins else self._tree):
            if clause is None:
                raise PlanError("There is no FROM.", do=f"Name what to read: {', '.join(self._catalogue.names)}.")
            return super()._from()

    def _source(self, node: Node) -> None:
        with self.at(node):
            try:
                super()._source(node)
            except UnknownTable as fault:
                known = f"There are: {', '.join(self._catalogue.names) or 'none'}."
                raise UnknownTable(f"There is no stream or table {node.name!r}.", why=known, do=fault.do) from None

    def _column(self, node: Node) -> Typed:
        with self.at(node):
            try:
                return super()._column(node)
            except UnknownColumn:
                name = node.name.lower()
                if node.table or name not in self._values:
                    raise
                found = constant(self._values[name])
                if self._is_view and isinstance(found.value, float) and not math.isfinite(found.value):
                    raise PlanError(
                        f"{name} is {found.value}, and a view has no such constant.", do="Give a number, or NULL."
                    ) from None
                return found, kinds.NUMBER if found.kind == "decimal" else found.kind

    def _items(self) -> list[tuple[str, Typed]]:
        if self._is_view:
            with self.at(self._tree):
                return super()._items()
        found: list[tuple[str, str, Typed, Node]] = []
        for node in self._tree.expressions:
            with self.at(node):
                if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                    found += [(name, self._owner(typed), typed, node) for name, typed in self._star(node)]
                else:
                    inner = node.this if isinstance(node, exp.Alias) else node
                    value, kind = self._scalars.translate(inner)
                    typed = _floating(value), kind
                    owner = "" if isinstance(node, exp.Alias) else self._owner(typed)
                    found.append((called(node), owner, typed, node))
        names = [name.lower() for name, *_ in found]
        named: dict[str, Typed] = {}
        for name, owner, typed, node in found:
            # Both tables may have it: what has no name of its own is called after its table.
            name = f"{owner}_{name}" if owner and names.count(name.lower()) > 1 else name
            if name.lower() in {one.lower() for one in named}:
                with self.at(node):
                    raise PlanError(f"Two columns would be called {name!r}.", do="Give one an alias: … AS other_name.")
            named[name] = typed
        return list(named.items())

    def _owner(self, typed: Typed) -> str:
        return self._sources[typed[0].source].alias if isinstance(typed[0], Column) else ""

    def _type(self, column: Column) -> Any:
        return self._tables[self._sources[column.source].table].field(column.name).type

    def is_decimal(self, expression: Expression) -> bool:
        """Whether its values are decimals."""
        match expression:
            case Column():
                return "decimal" in str(self._type(expression))
            case Call("cast", _, detail):
                return detail.startswith("decimal")
            case Call("coalesce" | "case", arguments):
                return any(self.is_decimal(argument) for argument in arguments)
            case Call("registered", _, name):
                function = self._catalogue.function(name)
                return function is not None and "decimal" in str(function.returns)
            case Literal(_, "decimal"):
                return True
        return False


class _Placed(Scalars):
    """Expressions, each fault at the innermost part that has it."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading._column)
        self._reading = reading

    def translate(self, node: Node) -> Typed:
        with self._reading.at(node):
            if isinstance(node, exp.Anonymous):
                return self._registered(node)
            found, kind = super().translate(node)
            if self._reading._is_view:
                return found, kind
            match found:
                case Literal(Decimal() | datetime() as value):
                    return constant(value), kind
                case Call(function) if function in _ON_DOUBLES:
                    return self._on_doubles(found), kind
                case Call("in"):
                    return self._as_exact(found), kind
                case Call("case" | "coalesce"):
                    return _with_floats(found), kind
            return found, kind

    def _compared(self, node: Node, function: str, left: Node, right: Node) -> Typed:
        found, kind = super()._compared(node, function, left, right)
        return found if self._reading._is_view else self._as_exact(found), kind

    def _as_exact(self, call: Expression) -> Expression:
        """A comparison where constants keep their digits beside a decimal, and are floating numbers beside others."""
        assert isinstance(call, Call)
        exact = any(self._reading.is_decimal(one) for one in call.arguments if not isinstance(one, Literal))
        return call if exact else _with_floats(call)

    def _registered(self, node: Node) -> Typed:
        function = self._reading._catalogue.function(node.name)
        if function is None:
            known = ", ".join(self._reading._catalogue.functions) or "none"
            raise PlanError(
                f"There is no function {node.name!r}.",
                why=f"Registered functions: {known}.",
                do="Register it: functions={" + f'"{node.name}": …' + "}, a function of Arrow arrays.",
            )
        kind = kinds.kind_of(function.returns)
        if self._reading._is_view or kind is None:
            raise PlanError("A registered function cannot be used here.", why="Views are computed by Spark alone.")
        arguments = tuple(self.translate(argument)[0] for argument in node.expressions)
        return _with_floats(Call("registered", arguments, function.name)), kind

    def _on_doubles(self, call: Call) -> Call:
        """Decimals are calculated with as floating numbers: every engine has digits of its own for the others."""
        arguments = tuple(
            Call("cast", (argument,), "double") if self._reading.is_decimal(argument) else argument
            for argument in map(_floating, call.arguments)
        )
        return Call(call.function, arguments, call.detail)


def _floating(expression: Expression) -> Expression:
    """A constant with a point as the floating number that it is where nothing asks for its digits."""
    match expression:
        case Literal(Decimal() as value):
            return Literal(float(value), kinds.FLOAT)
    return expression


def _with_floats(call: Call) -> Call:
    return Call(call.function, tuple(map(_floating, call.arguments)), call.detail)


_ON_DOUBLES = {"add", "subtract", "multiply", "divide", "modulo", "negate", "abs", "floor", "ceil", "round"}


def _written(value: Value) -> Node:
    """A constant as a text has it."""
    if isinstance(value, date):
        kind = "TIMESTAMP" if isinstance(value, datetime) else "DATE"
        return exp.cast(exp.Literal.string(value.isoformat()), kind)
    found = constant(value).value
    if isinstance(found, Decimal):
        digits = format(found.copy_abs(), "f")
        # With a point: beyond 64 bits it is no whole number.
        number = exp.Literal(this=digits if "." in digits else f"{digits}.", is_string=False)
        return exp.Neg(this=number) if found < 0 else number
    return exp.convert(found)


def _parts(condition: Condition) -> Iterator[Condition]:
    """Conditions that hold together, one by one."""
    if isinstance(condition.expression, Call) and condition.expression.function == "and":
        for argument in condition.expression.arguments:
            yield from _parts(Condition(argument, condition.start, condition.end))
    else:
        yield condition
