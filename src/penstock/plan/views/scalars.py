"""SQL expressions as sqlglot reads them, turned into ours: an allow-list, and everything else is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import MAX_PREC, Context, Decimal, InvalidOperation
from typing import Any

from sqlglot import exp

from penstock.errors import NotMaintainable
from penstock.plan.views import kinds
from penstock.plan.views.expressions import Aggregate, Call, Expression, Literal

#: A node of sqlglot's tree.
Node = Any
#: What an expression is translated to: the tree, and the kind of its value.
Typed = tuple[Expression, str]

_ARITHMETIC: dict[type, str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Mod: "modulo",
}
_COMPARISONS: dict[type, str] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
_OF_TEXT: dict[type, tuple[str, str]] = {
    exp.Upper: ("upper", kinds.TEXT),
    exp.Lower: ("lower", kinds.TEXT),
    exp.Length: ("length", kinds.NUMBER),
}
_OF_NUMBERS: dict[type, str] = {exp.Abs: "abs", exp.Floor: "floor", exp.Ceil: "ceil", exp.Neg: "negate"}
_PARTS_OF_DATES: dict[type, str] = {exp.Year: "year", exp.Month: "month", exp.Day: "day"}
_AGGREGATES: dict[type, str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
_NUMERIC_TYPES = {
    exp.DataType.Type.INT: ("int", kinds.NUMBER),
    exp.DataType.Type.BIGINT: ("bigint", kinds.NUMBER),
    exp.DataType.Type.DOUBLE: ("double", kinds.FLOAT),
}
MOST_IN_LIST = 1000
#: A time with digits that Python would leave out.
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
#: Those of a decimal.
MOST_DIGITS = 38
#: Where Python would round to 28 digits.
_ALL_DIGITS = Context(prec=MAX_PREC)


def refuse(clause: str, why: str, do: str = "") -> NotMaintainable:
    """The error for something that a view cannot have."""
    return NotMaintainable(f"{clause} cannot be maintained.", why=why, do=do)


def shown(node: Node) -> str:
    """A short text of a part of the query."""
    text: str = node.sql()
    return text if len(text) <= 80 else text[:77] + "..."


class Scalars:
    """Translates expressions; columns are found by `resolve`."""

    def __init__(self, resolve: Callable[[Node], Typed]) -> None:
        self._resolve = resolve
        self._inside_aggregate = False

    def translate(self, node: Node) -> Typed:
        """The expression of a node and its kind. Raises `NotMaintainable`."""
        if isinstance(node, exp.Paren):
            return self.translate(node.this)
        if isinstance(node, exp.Column):
            return self._resolve(node)
        if isinstance(node, (exp.Literal, exp.Boolean, exp.Null)):
            return _literal(node)
        method = _METHODS.get(type(node))
        if method is None:
            raise _refusal(node)
        further = {name for name, value in node.args.items() if value} - _PARTS - _FURTHER.get(type(node), set())
        if further:
            # A part that is not looked at would be a part that is not obeyed.
            raise refuse(shown(node), f"{min(further).upper()} is not read here.", "Leave it out.")
        return method(self, node)

    # -- families ----------------------------------------------------------------------------------------------

    def _arithmetic(self, node: Node) -> Typed:
        (left, a), (right, b) = self.translate(node.this), self.translate(node.expression)
        if not (kinds.is_numeric(a) and kinds.is_numeric(b)):
            raise _mismatch(node, a, b, "only numbers can be calculated with")
        return Call(_ARITHMETIC[type(node)], (left, right)), kinds.common([a, b]) or kinds.NUMBER

    def _div(self, node: Node) -> Typed:
        (left, a), (right, b) = self.translate(node.this), self.translate(node.expression)
        if not (kinds.is_numeric(a) and kinds.is_numeric(b)):
            raise _mismatch(node, a, b, "only numbers can be calculated with")
        # Whole numbers divide as floating ones do; decimals as decimals.
        return Call("divide", (left, right)), kinds.common([a, b]) or kinds.NUMBER

    def _comparison(self, node: Node) -> Typed:
        return self._compared(node, _COMPARISONS[type(node)], node.this, node.expression)

    def _compared(self, node: Node, function: str, left: Node, right: Node) -> Typed:
        (one, a), (other, b) = self.translate(left), self.translate(right)
        if kinds.common([a, b]) is None:
            raise _mismatch(node, a, b, "values of different kinds are never compared by guessing a conversion")
        return Call(function, (one, other)), kinds.BOOLEAN

    def _of_text(self, node: Node) -> Typed:
        function, gives = _OF_TEXT[type(node)]
        return Call(function, (self._want(node.this, (kinds.TEXT,), node),)), gives

    def _of_number(self, node: Node) -> Typed:
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and node.this.this == str(1 << 63):
            return Literal(-(1 << 63), kinds.NUMBER), kinds.NUMBER  # without its sign it is no number of 64 bits
        found, kind = self.translate(node.this)
        if not kinds.is_numeric(kind):
            raise _mismatch(node, kind, kinds.NUMBER, "only numbers can be calculated with")
        if isinstance(found, Literal) and isinstance(node, exp.Neg) and found.value is not None:
            if found.value == -(1 << 63):
                raise refuse(shown(node), "It is more than 64 bits can count.")
            if isinstance(found.value, Decimal):
                return Literal(_ALL_DIGITS.minus(found.value), found.kind), kind
            return Literal(-found.value, found.kind), kind  # type: ignore[operator]
        return Call(_OF_NUMBERS[type(node)], (found,)), kind

    def _part_of_date(self, node: Node) -> Typed:
        return self._date_part(_PARTS_OF_DATES[type(node)], node.this, node)

    def _date_part(self, part: str, of: Node, node: Node) -> Typed:
        return Call(part, (self._want(of, (kinds.DATE, kinds.TIME), node),)), kinds.NUMBER

    def _aggregate(self, node: Node) -> Typed:
        function = _AGGREGATES[type(node)]
        if self._inside_aggregate:
            raise refuse(shown(node), "An aggregate inside another has no meaning.")
        if node.args.get("expressions"):
            raise refuse(shown(node), "An aggregate of a view has one argument.")
        if isinstance(node.this, exp.Star) and function == "count":
            return Aggregate("count", None), kinds.NUMBER
        inner = node.this
        if isinstance(inner, exp.Distinct):
            if function not in ("min", "max") or len(inner.expressions) != 1:
                raise refuse(
                    shown(node),
                    "DISTINCT inside an aggregate needs every value that was ever counted, not one number a group.",
                    "Make a view of the distinct values, and count those when you read it.",
                )
            inner = inner.expressions[0]
        self._inside_aggregate = True
        try:
            argument, kind = self.translate(inner)
        finally:
            self._inside_aggregate = False
        if function in ("sum", "avg") and not kinds.is_numeric(kind):
            raise _mismatch(node, kind, kinds.NUMBER, "only numbers can be added")
        if function in ("min", "max") and kind == kinds.BINARY:
            raise refuse(shown(node), "Binary values have no order that everybody agrees on.")
        counted = function == "count"
        averaged = function == "avg"
        return Aggregate(function, argument), kinds.NUMBER if counted else kinds.FLOAT if averaged else kind

    # -- single ones -------------------------------------------------------------------------------------------

    def _and(self, node: Node) -> Typed:
        return Call("and", (self._condition(node.this), self._condition(node.expression))), kinds.BOOLEAN

    def _or(self, node: Node) -> Typed:
        return Call("or", (self._condition(node.this), self._condition(node.expression))), kinds.BOOLEAN

    def _not(self, node: Node) -> Typed:
        return Call("not", (self._condition(node.this),)), kinds.BOOLEAN

    def _is(self, node: Node) -> Typed:
        if isinstance(node.expression, exp.Boolean):
            # Whether it holds, where unknown is no.
            held = self._condition(node.this)
            held = held if node.expression.this else Call("not", (held,))
            return Call("coalesce", (held, Literal(False, kinds.BOOLEAN))), kinds.BOOLEAN
        if not isinstance(node.expression, exp.Null):
            raise refuse(shown(node), "IS is for NULL, TRUE and FALSE.", "Compare with = or <>.")
        return Call("is_null", (self.translate(node.this)[0],)), kinds.BOOLEAN

    def _in(self, node: Node) -> Typed:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            raise refuse(shown(node), "A subquery changes with its own tables.", "Join the table instead.")
        choices = [self.translate(choice) for choice in node.expressions]
        if len(choices) > MOST_IN_LIST:
            raise refuse("IN", f"It has {len(choices):,} values; at most {MOST_IN_LIST:,}.", "Join a table of them.")
        if not all(isinstance(choice, Literal) for choice, _ in choices):
            raise refuse(shown(node), "IN is for constants.", "Write comparisons joined by OR.")
        found, kind = self.translate(node.this)
        if kinds.common([kind, *(other for _, other in choices)]) is None:
            raise _mismatch(node, kind, choices[0][1], "values of different kinds are never compared by guessing")
        return Call("in", (found, *(choice for choice, _ in choices))), kinds.BOOLEAN

    def _between(self, node: Node) -> Typed:
        low, _ = self._compared(node, "greater_equal", node.this, node.args["low"])
        high, _ = self._compared(node, "less_equal", node.this, node.args["high"])
        return Call("and", (low, high)), kinds.BOOLEAN

    def _like(self, node: Node) -> Typed:
        pattern = node.expression
        if not (isinstance(pattern, exp.Literal) and pattern.is_string) or "\\" in pattern.this:
            raise refuse(shown(node), "LIKE is for a constant pattern without backslashes.")
        found = Call("like", (self._want(node.this, (kinds.TEXT,), node),), pattern.this)
        return Call("not", (found,)) if node.args.get("negate") else found, kinds.BOOLEAN

    def _case(self, node: Node) -> Typed:
        arguments: list[Expression] = []
        found = []
        for branch in node.args["ifs"]:
            value, kind = self.translate(branch.args["true"])
            if node.this is None:
                arguments += [self._condition(branch.this), value]
            else:
                arguments += [self._compared(node, "equal", node.this, branch.this)[0], value]
            found.append(kind)
        if (default := node.args.get("default")) is not None:
            value, kind = self.translate(default)
            arguments.append(value)
            found.append(kind)
        return Call("case", tuple(arguments)), self._one_kind(node, found)

    def _nullif(self, node: Node) -> Typed:
        equal, _ = self._compared(node, "equal", node.this, node.expression)
        found, kind = self.translate(node.this)
        return Call("case", (equal, Literal(None, kinds.NULL), found)), kind

    def _coalesce(self, node: Node) -> Typed:
        parts = [self.translate(part) for part in (node.this, *node.expressions)]
        return Call("coalesce", tuple(p for p, _ in parts)), self._one_kind(node, [kind for _, kind in parts])

    def _round(self, node: Node) -> Typed:
        digits = node.args.get("decimals")
        if digits is not None and not (isinstance(digits, exp.Literal) and digits.is_int):
            raise refuse(shown(node), "The number of digits must be a constant.")
        if digits is not None and int(digits.this) > MOST_DIGITS:
            raise refuse(shown(node), f"No number has more than {MOST_DIGITS} digits after the point.")
        found, kind = self.translate(node.this)
        if not kinds.is_numeric(kind):
            raise _mismatch(node, kind, kinds.NUMBER, "only numbers can be rounded")
        return Call("round", (found,), digits.this if digits is not None else "0"), kind

    def _substring(self, node: Node) -> Typed:
        found = self._want(node.this, (kinds.TEXT,), node)
        bounds = [node.args.get("start"), node.args.get("length")]
        sizes = [int(bound.this) if isinstance(bound, exp.Literal) and bound.is_int else 0 for bound in bounds]
        if not all(1 <= size < 1 << 31 for size in sizes):
            raise refuse(shown(node), "SUBSTRING needs a constant start (from 1) and length, below 2³¹.")
        return Call("substring", (found,), ",".join(map(str, sizes))), kinds.TEXT

    def _dpipe(self, node: Node) -> Typed:
        sides = (self._want(side, (kinds.TEXT,), node) for side in (node.this, node.expression))
        return Call("concat", tuple(sides)), kinds.TEXT

    def _extract(self, node: Node) -> Typed:
        part = node.this.name.lower()
        if part not in ("year", "month", "day"):
            raise refuse(shown(node), "Only YEAR, MONTH and DAY are extracted.")
        return self._date_part(part, node.expression, node)

    def _cast(self, node: Node) -> Typed:
        to = node.to.this
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            return _moment(node, to)
        found, kind = self.translate(node.this)
        if to in _NUMERIC_TYPES and kinds.is_numeric(kind):
            name, gives = _NUMERIC_TYPES[to]
            return Call("cast", (found,), name), gives
        if to == exp.DataType.Type.DECIMAL and kinds.is_numeric(kind):
            size = [parameter.this.this for parameter in node.to.expressions]
            precision, scale = (*size, "0")[:2] if size else ("18", "3")
            if not (
                precision.isdecimal()
                and scale.isdecimal()
                and int(scale) <= int(precision)
                and 1 <= int(precision) <= 38
            ):
                raise refuse(shown(node), "A decimal has at most 38 digits, and no more after the point.")
            return Call("cast", (found,), f"decimal({int(precision)},{int(scale)})"), kinds.NUMBER
        if to == exp.DataType.Type.DATE and kind in (kinds.DATE, kinds.TIME):
            return Call("cast", (found,), "date"), kinds.DATE
        raise refuse(
            shown(node),
            f"A {kind} is not cast to {node.to.sql()}: a row that does not fit would stop the view.",
            "Cast numbers to INT, BIGINT, DOUBLE or DECIMAL, timestamps to DATE; convert others before they arrive.",
        )

    # -- helpers -----------------------------------------------------------------------------------------------

    def _condition(self, node: Node) -> Expression:
        return self._want(node, (kinds.BOOLEAN,), node)

    def _want(self, node: Node, wanted: tuple[str, ...], whole: Node) -> Expression:
        found, kind = self.translate(node)
        if kind not in (*wanted, kinds.NULL):
            raise _mismatch(whole, kind, wanted[0], f"a {' or a '.join(wanted)} is needed")
        return found

    def _one_kind(self, node: Node, found: list[str]) -> str:
        kind = kinds.common(found)
        if kind is None:
            raise _mismatch(node, found[0], found[-1], "all values must be of one kind")
        return kind


#: The parts that a node may have: those of all, and those of some.
_PARTS = {"this", "expression", "expressions"}
_FURTHER: dict[type, set[str]] = {
    exp.Like: {"negate"},
    exp.Between: {"low", "high"},
    # A subquery is refused by `_in`, with what to do instead.
    exp.In: {"query", "unnest", "field"},
    exp.Case: {"ifs", "default"},
    exp.Round: {"decimals"},
    exp.Substring: {"start", "length"},
    exp.Cast: {"to"},
    exp.DPipe: {"safe"},
    exp.Count: {"big_int"},
    exp.Div: {"safe"},
}

#: The allow-list.
_METHODS: dict[type, Callable[[Scalars, Node], Typed]] = {
    **dict.fromkeys(_ARITHMETIC, Scalars._arithmetic),
    **dict.fromkeys(_COMPARISONS, Scalars._comparison),
    **dict.fromkeys(_OF_TEXT, Scalars._of_text),
    **dict.fromkeys(_OF_NUMBERS, Scalars._of_number),
    **dict.fromkeys(_PARTS_OF_DATES, Scalars._part_of_date),
    **dict.fromkeys(_AGGREGATES, Scalars._aggregate),
    exp.Div: Scalars._div,
    exp.And: Scalars._and,
    exp.Or: Scalars._or,
    exp.Not: Scalars._not,
    exp.Is: Scalars._is,
    exp.In: Scalars._in,
    exp.Between: Scalars._between,
    exp.Like: Scalars._like,
    exp.Case: Scalars._case,
    exp.Coalesce: Scalars._coalesce,
    exp.Nullif: Scalars._nullif,
    exp.Round: Scalars._round,
    exp.Substring: Scalars._substring,
    exp.DPipe: Scalars._dpipe,
    exp.Extract: Scalars._extract,
    exp.Cast: Scalars._cast,
}


def _literal(node: Node) -> Typed:
    if isinstance(node, exp.Null):
        return Literal(None, kinds.NULL), kinds.NULL
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this), kinds.BOOLEAN), kinds.BOOLEAN
    if node.is_string:
        return Literal(node.this, kinds.TEXT), kinds.TEXT
    text = node.this
    try:
        if text.isdecimal():
            whole = int(text)
            if abs(whole) >= 1 << 63:
                raise refuse(text, "It is more than 64 bits can count.")
            return Literal(whole, kinds.NUMBER), kinds.NUMBER
        if "e" in text.lower():
            return Literal(float(text), kinds.FLOAT), kinds.FLOAT
        return Literal(Decimal(text), "decimal"), kinds.NUMBER
    except (ValueError, InvalidOperation):
        raise refuse(text, "It is not a number.") from None


def _moment(node: Node, to: object) -> Typed:
    """DATE '1995-03-15' and TIMESTAMP '…'."""
    try:
        if to == exp.DataType.Type.DATE:
            return Literal(date.fromisoformat(node.this.this), kinds.DATE), kinds.DATE
        if to in (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.DATETIME):
            if _FINER.search(node.this.this):
                why = "It is finer than a microsecond, as no time here is."
                raise refuse(shown(node), why, "Leave out the digits after the sixth.")
            moment = datetime.fromisoformat(node.this.this)
            moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)  # a zone may carry it out of the calendar
            return Literal(moment, kinds.TIME), kinds.TIME
    except (ValueError, OverflowError):
        raise refuse(shown(node), "It is not a date or time as ISO 8601 writes them.") from None
    raise refuse(shown(node), "A constant text is cast to DATE or TIMESTAMP only.", "Write the constant itself.")


def _refusal(node: Node) -> NotMaintainable:
    if isinstance(node, exp.Window):
        return refuse(shown(node), "A window function looks at other rows, so that one change may change many.")
    if isinstance(node, (exp.Subquery, exp.Select, exp.Exists)):
        return refuse(shown(node), "A subquery changes with its own tables.", "Join the tables in FROM instead.")
    if isinstance(node, exp.AggFunc):
        return refuse(shown(node), "Of aggregates, COUNT, SUM, AVG, MIN and MAX are maintained.")
    if isinstance(node, exp.Star):
        return refuse("*", "A star stands alone in SELECT, or in COUNT(*).")
    return refuse(
        shown(node),
        f"{node.key.upper()} is not among the functions and operators of a query.",
        "Use + - * / %, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, CASE, COALESCE, NULLIF, CAST, ABS, "
        "ROUND, FLOOR, CEIL, UPPER, LOWER, LENGTH, SUBSTRING, ||, EXTRACT; or compute it before the changes arrive.",
    )


def _mismatch(node: Node, a: str, b: str, why: str) -> NotMaintainable:
    do = "Convert one of them where it is read: in a pipeline by columns = { … }, in Python by .cast(…)."
    return refuse(shown(node), f"It has a {a} and a {b}, and {why}.", do)
