"""The SQL of a view, analysed: what is joined, kept, grouped and added up; or the clause that cannot be, and why.

Every view is kept as groups with counts::

    SELECT k, SUM(x) … GROUP BY k     groups by k; a group goes when its count is 0
    SELECT MIN(x) …                   one group, which never goes
    SELECT DISTINCT a, b …            groups by a, b
    SELECT a, b …                     groups by a, b, each shown as often as it counts

so that a delete is exact whatever it deletes (`penstock.spark.views`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from math import isinf
from typing import Any, Literal

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from penstock.errors import NotMaintainable, UnknownColumn, UnknownTable
from penstock.plan.views import kinds
from penstock.plan.views.expressions import (
    Aggregate,
    Call,
    Column,
    Expression,
    Key,
    Total,
    columns_of,
    has_aggregate,
    sources_of,
)
from penstock.plan.views.scalars import MOST_DIGITS, Node, Scalars, Typed, refuse, shown

#: Longer texts are refused before they are read.
LONGEST = 100_000
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "distinct", "kind", "operation_modifiers"}

Shape = Literal["groups", "one", "distinct", "bag"]


@dataclass(frozen=True)
class Source:
    """An occurrence of a table in FROM."""

    table: str
    alias: str


@dataclass(frozen=True)
class Query:
    """What a view shows, over `sources`, in terms of groups."""

    sources: tuple[Source, ...]
    #: Pairs of columns of different sources that are equal; they connect all sources.
    equalities: tuple[tuple[Column, Column], ...]
    #: All other conditions.
    filters: tuple[Expression, ...]
    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    #: Names, and expressions over keys and totals.
    outputs: tuple[tuple[str, Expression], ...]
    having: Expression | None
    shape: Shape

    def used(self, source: int) -> tuple[str, ...]:
        """The columns of a source that the view looks at, by name."""
        both = [column for pair in self.equalities for column in pair]
        parts = [*both, *self.filters, *self.keys, *self.aggregates]
        return tuple(sorted({c.name for part in parts for c in columns_of(part) if c.source == source}))


def analyse(sql: str, tables: Mapping[str, pa.Schema]) -> Query:
    """The view that a SELECT over these tables describes. Raises `NotMaintainable`, `UnknownTable`, `UnknownColumn`."""
    return Analysis(_parse(sql), tables).query()


def _parse(sql: str) -> Node:
    if len(sql) > LONGEST:
        raise refuse("This text", f"It has {len(sql):,} characters; at most {LONGEST:,} are read.")
    try:
        _check_names(sql)
        found = [statement for statement in sqlglot.parse(sql) if statement is not None]
    except SqlglotError as fault:
        raise NotMaintainable("The SQL of the view cannot be read.", why=str(fault).splitlines()[0]) from None
    except RecursionError:
        raise refuse("This text", "It is nested too deeply.") from None
    if len(found) != 1:
        raise refuse("This text", f"It has {len(found)} statements.", "Give one SELECT.")
    [tree] = found
    if isinstance(tree, (exp.Union, exp.Intersect, exp.Except)):
        name = type(tree).__name__.upper()
        raise refuse(name, "A view is one SELECT.", "Make a view of each part.")
    if not isinstance(tree, exp.Select):
        raise refuse(type(tree).__name__.upper(), "A view is a SELECT.")
    for literal in tree.find_all(exp.Literal):
        if not literal.is_string:
            _check_number(literal.this)
    return tree


def _check_names(sql: str) -> None:
    """Refuse what would be a number and a name for it: 1_000 is 1 AS _000 to SQL, and 10k is 10 AS k."""
    for number, after in pairwise(sqlglot.tokenize(sql)):
        if (number.token_type, after.token_type) == (TokenType.NUMBER, TokenType.VAR) and after.start == number.end + 1:
            raise refuse(f"{number.text}{after.text}", "It is not a number.", "Write its digits, and nothing else.")


def _check_number(text: str) -> None:
    """Refuse a number that no value is; what is no number at all is refused where it stands."""
    try:
        _, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return
    if "e" in text.lower():
        if isinf(float(text)):
            raise refuse(text, "It is more than a floating number can be.")
    elif "." in text and max(len(digits), -int(exponent)) > MOST_DIGITS:
        raise refuse(text, f"A decimal has at most {MOST_DIGITS} digits.")


class Analysis:
    """Reads the tree of a SELECT against the tables it names."""

    def __init__(self, tree: Node, tables: Mapping[str, pa.Schema]) -> None:
        self._tree = tree
        self._tables = tables
        self._names = {name.lower(): name for name in tables}
        self._sources: list[Source] = []
        # Columns joined by USING, by name: references without a table mean the first of them.
        self._merged: dict[str, Column] = {}
        self._scalars = Scalars(self._column)

    def query(self) -> Query:
        """The view that the tree describes."""
        try:
            return self._query()
        except RecursionError:
            raise refuse("This text", "It is nested too deeply.") from None

    def _query(self) -> Query:
        self._refuse_clauses()
        conditions = self._from()
        if (where := self._tree.args.get("where")) is not None:
            conditions += list(where.this.flatten() if isinstance(where.this, exp.And) else [where.this])
        equalities, filters = self._conditions(conditions)
        self._check_connected(equalities)
        items = [(name, *typed) for name, typed in self._items()]
        distinct = self._distinct()
        group = self._tree.args.get("group")
        having = self._having()
        parts = [item for _, item, _ in items]
        totals = [part for part in (*parts, *([having] if having else [])) if has_aggregate(part)]
        if group is None and not totals:
            if having is not None:
                raise refuse("HAVING", "There are no groups.", "Write it in WHERE.")
            self._check_groupable(items)
            keys: tuple[Expression, ...] = tuple(dict.fromkeys(parts))
            shape: Shape = "distinct" if distinct else "bag"
        else:
            if distinct:
                raise refuse("SELECT DISTINCT", "Here it is about aggregates.", "Leave it out: groups are distinct.")
            keys = self._keys(group, items) if group is not None else ()
            shape = "groups" if group is not None else "one"
        fold = _Fold(keys)
        outputs = tuple((name, fold(item)) for name, item, _ in items)
        kept = fold(having) if having is not None else None
        return Query(
            tuple(self._sources),
            tuple(dict.fromkeys(equalities)),
            tuple(dict.fromkeys(filters)),
            keys,
            tuple(fold.aggregates),
            outputs,
            kept,
            shape,
        )

    # -- clauses -----------------------------------------------------------------------------------------------

    def _refuse_clauses(self) -> None:
        reasons = {
            "limit": "Which rows are the first may change with every change of any other.",
            "offset": "Which rows are the first may change with every change of any other.",
            "order": "A view is a bag of rows without an order. Sort the answer.",
            "with_": "A view is one SELECT over tables. Make a view of each part, or join in FROM.",
        }
        for name, value in self._tree.args.items():
            if value and name not in _CLAUSES:
                clause = {"order": "ORDER BY", "with_": "WITH"}.get(name, name.rstrip("_").upper())
                raise refuse(clause, reasons.get(name, "It is not among the clauses of a view."))
        if self._tree.args.get("kind") or self._tree.args.get("operation_modifiers"):
            raise refuse("SELECT with a modifier", "It is not among the clauses of a view.")

    def _distinct(self) -> bool:
        distinct = self._tree.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise refuse("DISTINCT ON", "Which row of a group is shown would depend on an order.")
        return distinct is not None

    def _having(self) -> Expression | None:
        clause = self._tree.args.get("having")
        return self._condition(clause.this) if clause is not None else None

    def _condition(self, node: Node) -> Expression:
        found, kind = self._scalars.translate(node)
        if kind not in (kinds.BOOLEAN, kinds.NULL):
            raise refuse(shown(node), f"It is a {kind}, and a condition is true or false.")
        return found

    # -- FROM --------------------------------------------------------------------------------------------------

    def _from(self) -> list[Node]:
        """Collects the sources; gives the conditions of the joins."""
        clause = self._tree.args.get("from_")
        if clause is None:
            raise refuse("SELECT without FROM", "A view is about tables.")
        self._source(clause.this)
        conditions: list[Node] = []
        for join in self._tree.args.get("joins") or ():
            side, kind, method = ((join.args.get(part) or "").upper() for part in ("side", "kind", "method"))
            if side or kind not in ("", "INNER", "CROSS") or method:
                name = " ".join(word for word in (method, side, kind, "JOIN") if word)
                raise refuse(
                    name, "Inner joins are maintained: a row without a partner would come and go with others' changes."
                )
            used = {name for name, value in join.args.items() if value} - {"this", "kind", "on", "using"}
            if used:
                raise refuse(shown(join), f"{used.pop().upper()} is not among the clauses of a view.")
            self._source(join.this)
            if (on := join.args.get("on")) is not None:
                conditions += list(on.flatten() if isinstance(on, exp.And) else [on])
            for name in join.args.get("using") or ():
                conditions.append(self._using(name.name))
        return conditions

    def _source(self, node: Node) -> None:
        if not isinstance(node, exp.Table):
            raise refuse(shown(node), "FROM is for tables.", "Make a view of the inner query, or join its tables here.")
        extra = {name for name, value in node.args.items() if value} - {"this", "alias"}
        if (
            extra
            or not isinstance(node.this, exp.Identifier)
            or (node.args.get("alias") and node.args["alias"].columns)
        ):
            raise refuse(shown(node), "A table is named as in tables={…}, and may have an alias.")
        name = self._names.get(node.name.lower())
        if name is None:
            raise UnknownTable.among(node.name, self._tables, "tables={…}")
        alias = node.alias_or_name.lower()
        if any(source.alias == alias for source in self._sources):
            raise refuse(shown(node), f"{alias!r} is there twice.", "Give each an alias of its own.")
        self._sources.append(Source(name, alias))

    def _using(self, name: str) -> Node:
        right = self._in_source(len(self._sources) - 1, name)
        found = [c for number in range(len(self._sources) - 1) if (c := self._find(number, name)) is not None]
        left = self._merged.get(name.lower()) or (found[0] if found else None)
        if left is None:
            raise UnknownColumn.among(name, self._all_columns(len(self._sources) - 1), f"USING ({name}): what is left")
        self._merged.setdefault(name.lower(), left)
        return exp.EQ(this=_exactly(left, self._sources), expression=_exactly(right, self._sources))

    # -- columns -----------------------------------------------------------------------------------------------

    def _column(self, node: Node) -> Typed:
        if node.args.get("db") or node.args.get("catalog") or not isinstance(node.this, exp.Identifier):
            raise refuse(shown(node), "A column is named alone, or after its table.")
        name, table = node.name, node.table.lower()
        if table:
            numbers = [number for number, source in enumerate(self._sources) if source.alias == table]
            if not numbers:
                raise UnknownTable.among(node.table, [source.alias for source in self._sources], "FROM")
            found = self._in_source(numbers[0], name)
        else:
            merged = self._merged.get(name.lower())
            have = [c for number in range(len(self._sources)) if (c := self._find(number, name)) is not None]
            if not have:
                quoted = f"A text is written in single quotes: '{name}'." if node.this.quoted else ""
                raise _unknown(name, self._all_columns(len(self._sources)), "What FROM names", quoted)
            if len(have) > 1 and merged is None:
                owners = " and ".join(self._sources[column.source].alias for column in have)
                raise refuse(name, f"{owners} both have it.", "Write the table before it.")
            found = merged or have[0]
        schema = self._tables[self._sources[found.source].table]
        kind = kinds.kind_of(schema.field(found.name).type)
        if kind is None:
            raise refuse(shown(node), f"It is a {schema.field(found.name).type}, which a view cannot hold.")
        return found, kind

    def _find(self, number: int, name: str) -> Column | None:
        names = {one.lower(): one for one in self._tables[self._sources[number].table].names}
        return Column(number, names[name.lower()]) if name.lower() in names else None

    def _in_source(self, number: int, name: str) -> Column:
        found = self._find(number, name)
        if found is None:
            source = self._sources[number]
            raise _unknown(name, self._tables[source.table].names, source.alias)
        return found

    def _all_columns(self, upto: int) -> list[str]:
        return [name for source in self._sources[:upto] for name in self._tables[source.table].names]

    # -- conditions --------------------------------------------------------------------------------------------

    def _conditions(self, nodes: Iterable[Node]) -> tuple[list[tuple[Column, Column]], list[Expression]]:
        equalities, filters = [], []
        for node in nodes:
            found = self._condition(node)
            if has_aggregate(found):
                raise refuse(shown(node), "Rows are chosen before they are added up.", "Write it in HAVING.")
            match found:
                case Call("equal", (Column() as left, Column() as right)) if left.source != right.source:
                    equalities.append((left, right))
                case _:
                    filters.append(found)
        return equalities, filters

    def _check_connected(self, equalities: list[tuple[Column, Column]]) -> None:
        joined = {0}
        for _ in self._sources:
            joined |= {c.source for pair in equalities if joined & {pair[0].source, pair[1].source} for c in pair}
        for number, source in enumerate(self._sources):
            if number not in joined:
                raise refuse(
                    f"FROM … {source.alias}",
                    f"No equality connects {source.alias} with {self._sources[0].alias}: each of its changes would "
                    "meet every row.",
                    "Join it ON a column of each side being equal.",
                )

    # -- SELECT and GROUP BY -------------------------------------------------------------------------------------

    def _items(self) -> list[tuple[str, Typed]]:
        found: list[tuple[str, Typed]] = []
        for node in self._tree.expressions:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                found += self._star(node)
            else:
                inner = node.this if isinstance(node, exp.Alias) else node
                found.append((called(node), self._scalars.translate(inner)))
        names = [name.lower() for name, _ in found]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise refuse(
                f"SELECT … {twice}", "Two columns would have this name.", "Give one an alias: … AS other_name."
            )
        return found

    def _star(self, node: Node) -> list[tuple[str, Typed]]:
        if any(value for name, value in node.args.items() if name not in ("this", "table")):
            raise refuse(shown(node), "A star stands alone.")
        table = node.table.lower() if isinstance(node, exp.Column) else ""
        if table and all(source.alias != table for source in self._sources):
            raise UnknownTable.among(table, [source.alias for source in self._sources], "FROM")
        found = []
        for number, source in enumerate(self._sources):
            for name in self._tables[source.table].names if table in ("", source.alias) else ():
                merged = self._merged.get(name.lower())
                if table or merged is None or merged == Column(number, name):
                    found.append((name, self._column(_exactly(Column(number, name), self._sources))))
        return found

    def _keys(self, group: Node, items: list[tuple[str, Expression, str]]) -> tuple[Expression, ...]:
        extra = {name for name, value in group.args.items() if value} - {"expressions"}
        sets = [node for node in group.expressions if isinstance(node, (exp.Cube, exp.Rollup, exp.GroupingSets))]
        if extra or sets:
            clause = shown(sets[0]) if sets else extra.pop().upper()
            raise refuse(f"GROUP BY {clause}", "A group is one value of each of its keys.")
        keys: list[Expression] = []
        for node in group.expressions:
            if isinstance(node, exp.Literal) and node.is_int and 1 <= int(node.this) <= len(items):
                key: Expression = items[int(node.this) - 1][1]
            else:
                key = self._key(node, items)
            if has_aggregate(key):
                raise refuse(f"GROUP BY {shown(node)}", "It has an aggregate, which is known after grouping only.")
            keys.append(key)
        return tuple(dict.fromkeys(keys))

    def _key(self, node: Node, items: list[tuple[str, Expression, str]]) -> Expression:
        aliased = [
            item for name, item, _ in items if isinstance(node, exp.Column) and not node.table and name == node.name
        ]
        try:
            return self._scalars.translate(node)[0]
        except UnknownColumn:
            if aliased:  # a name of SELECT, where no table has it
                return aliased[0]
            raise

    def _check_groupable(self, items: list[tuple[str, Expression, str]]) -> None:
        for name, item, _ in items:
            if not sources_of(item) and not columns_of(item):
                raise refuse(f"SELECT … {name}", "It is the same for every row.", "Add the constant to the answer.")


class _Fold:
    """Outputs over keys and totals; collects the aggregates."""

    def __init__(self, keys: tuple[Expression, ...]) -> None:
        self._keys = keys
        self.aggregates: list[Aggregate] = []

    def __call__(self, item: Expression) -> Expression:
        if item in self._keys:
            return Key(self._keys.index(item))
        if isinstance(item, Aggregate):
            if item not in self.aggregates:
                self.aggregates.append(item)
            return Total(self.aggregates.index(item))
        if isinstance(item, Call):
            return Call(item.function, tuple(self(argument) for argument in item.arguments), item.detail)
        if isinstance(item, Column):
            raise refuse(
                f"SELECT … {item.name}", "It is neither a key of the groups nor inside an aggregate.", "GROUP BY it."
            )
        return item


def called(node: Node) -> str:
    """The name of a column of SELECT: its alias, that of the column which it is, or else what is written."""
    name: str = node.alias_or_name if isinstance(node, (exp.Alias, exp.Column)) else node.sql()
    return name


def _exactly(column: Column, sources: list[Source]) -> Any:
    return exp.column(exp.to_identifier(column.name, quoted=True), sources[column.source].alias)


def _unknown(name: str, columns: list[str], where: str, hint: str = "") -> UnknownColumn:
    """A name that is not there, with what SQL asks of names that are more than a word."""
    fault = UnknownColumn.among(name, columns, where)
    begun = [column for column in columns if column.lower().startswith(f"{name.lower()} ")]
    spaced = f'A name with spaces is written in double quotes: "{begun[0]}".' if begun else ""
    return UnknownColumn(fault.what, why=fault.why, do=" ".join(part for part in (fault.do, spaced, hint) if part))
