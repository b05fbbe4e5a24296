"""Operators by name: the options of a query in a file as the plan that Spark will run."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import BadOption, PenstockError, UnknownTable
from penstock.kernels.subscriptions.range_kernel import Columns
from penstock.plan.base import Plan
from penstock.plan.conditions import as_of, band, similar
from penstock.plan.conditions import range as in_range
from penstock.plan.join_streams import JoinStreamsPlan
from penstock.plan.pipeline.spec import Stream
from penstock.plan.standing_queries import StandingQueriesPlan, band_join, select_join
from penstock.plan.subscriptions import SubscriptionsPlan
from penstock.plan.table_joins import plan_join_table
from penstock.plan.two_streams import landmark, rows
from penstock.plan.units import parse_duration
from penstock.tables.base import Table


class Planned(NamedTuple):
    """What will run, and the streams that it reads, in order."""

    plan: Plan
    streams: tuple[Stream, ...]


class Known(NamedTuple):
    """What the options of a query may name."""

    streams: Mapping[str, Stream]
    tables: Mapping[str, Callable[[], Table]]
    cores: int
    #: Where relative paths begin.
    base: Path

    def stream(self, name: Any) -> Stream:
        """A stream by its name."""
        if name not in self.streams:
            raise UnknownTable.among(str(name), self.streams, "[streams]")
        return self.streams[name]

    def table(self, name: Any) -> Table:
        """A table by its name, opened."""
        if name not in self.tables:
            raise UnknownTable.among(str(name), self.tables, "[tables]")
        return self.tables[name]()


Said = Mapping[str, Any]
_TEXT, _TEXTS, _NUMBER, _SIZE = (str,), (str, list), (int, float), (str, int)


def _join_table(said: Said, known: Known) -> Planned:
    stream = known.stream(said["stream"])
    options = {name: value for name, value in said.items() if name not in ("stream", "table", "on")}
    options.setdefault("slots", known.cores)
    plan = plan_join_table(stream.columns, known.table(said["table"]), on=_condition(said["on"]), **options)
    return Planned(plan, (stream,))


def _condition(on: Any) -> Any:
    """Columns that equal the key; or a table with the name of another condition."""
    if not isinstance(on, dict):
        return on
    made: dict[str, Callable[..., Any]] = {"band": band, "range": in_range, "as_of": as_of, "similar": similar}
    if len(on) != 1 or next(iter(on)) not in made:
        raise BadOption(f"on = {on!r} is not a condition.", do=f"Name columns, or give one of: {', '.join(made)}.")
    [(name, options)] = on.items()
    first = {"band": "column", "range": "column", "similar": "column", "as_of": "on"}[name]
    try:
        return made[name](options[first], **{key: value for key, value in options.items() if key != first})
    except (TypeError, KeyError) as fault:
        do = 'Write on = { band = { column = "price", below = 0.5, above = 0.5 } }, and the like.'
        raise BadOption(f"on.{name} does not say what it must: {fault}.", do=do) from None


def _join_streams(said: Said, known: Known) -> Planned:
    left, right = (known.stream(said[side]) for side in ("left", "right"))
    options = {name: value for name, value in said.items() if name not in ("left", "right", "within")}
    window = _window(said["within"])
    options["time"] = _times(left, right, said.get("time"))
    options.setdefault("lateness", _latest(left, right))
    plan = JoinStreamsPlan.checked(
        left.columns,
        right.columns,
        within=window,
        cores=known.cores,
        **{k: v for k, v in options.items() if v is not None},
    )
    return Planned(plan, (left, right))


def _window(within: Any) -> Any:
    if isinstance(within, dict) and len(within) == 1:
        if isinstance(within.get("rows"), int):
            return rows(within["rows"])
        if "landmark" in within:
            return landmark(within["landmark"])
    if isinstance(within, list) and len(within) == 2:
        return tuple(within)
    if isinstance(within, str):
        return within
    raise BadOption(
        f"within = {within!r} is not a window.",
        do='Give "10 minutes", a pair of those, { rows = 1000 } or { landmark = "1 day" }.',
    )


def _standing(said: Said, known: Known) -> Planned:
    left, right = (known.stream(said[side]) for side in ("left", "right"))
    options = {n: v for n, v in said.items() if n not in ("left", "right", "select", "band", "time", "lateness")}
    if ("select" in said) == ("band" in said):
        do = 'Give one: select = { on = "product", left = "offered", right = "wanted" }, or band with left and right.'
        raise BadOption("The shape of the queries is not said, or twice.", do=do)
    try:
        shape = select_join(**said["select"]) if "select" in said else band_join(**said["band"])
    except TypeError as fault:
        raise BadOption(f"This is not a shape of queries: {fault}.", do="It has on, left and right.") from None
    if "within" in options:
        options["time"] = _times(left, right, said.get("time"))
        options["lateness"] = said.get("lateness", _latest(left, right))
    if not all(isinstance(end, int | float) for end in said.get("split", ())):
        raise BadOption(f"split = {said['split']!r} has ends that are no numbers.", do="Write split = [10.0, 20.0].")
    options.setdefault("slots", known.cores)
    options["queries"] = known.base / said["queries"]
    return Planned(StandingQueriesPlan.checked(left.columns, right.columns, shape=shape, **options), (left, right))


def _subscriptions(said: Said, known: Known) -> Planned:
    stream = known.stream(said["stream"])
    parts = _names(said.get("partition_by", ()))
    columns = Columns(
        x=said["x"],
        y=said.get("y"),
        key=_names(said["key"]),
        order=said.get("order", stream.time or ""),
        deleted=said.get("deleted"),
        partition_by=parts,
    )
    plan = SubscriptionsPlan.checked(
        stream.columns,
        columns,
        agg=said.get("agg", "min"),
        memory=said.get("memory", "256MB"),
        slots=said.get("slots", known.cores if parts else 1),
    )
    return Planned(plan, (stream,))


def _times(left: Stream, right: Stream, said: Any) -> tuple[str, str] | None:
    if isinstance(said, str):
        return (said, said)
    if said is not None:
        if len(said) != 2:
            raise BadOption(
                f"time = {said!r} names no column of each side.", do='Give both: time = ["asked", "answered"].'
            )
        return (str(said[0]), str(said[1]))
    return (left.time, right.time) if left.time and right.time else None


def _latest(*streams: Stream) -> str:
    return f"{max(parse_duration(stream.lateness) for stream in streams)} us"


def _names(said: Any) -> tuple[str, ...]:
    names = (said,) if isinstance(said, str) else tuple(said)
    if not all(isinstance(name, str) for name in names):
        raise BadOption(f"{said!r} has what is no name of a column.", do='Write key = ["market", "product_id"].')
    return names


class Operator(NamedTuple):
    """How an operator is made; its options with their types, those that it needs first."""

    make: Callable[[Said, Known], Planned]
    needs: Mapping[str, tuple[type, ...]]
    takes: Mapping[str, tuple[type, ...]]


OPERATORS: dict[str, Operator] = {
    "join_table": Operator(
        _join_table,
        {"stream": _TEXT, "table": _TEXT, "on": (str, list, dict), "memory": _SIZE},
        {
            "how": _TEXT, "slots": (int,), "division": _TEXT, "pages_per_step": (int,), "shed": _TEXT, "max_lag": _TEXT,
            "seed": (int,), "inclusion": _TEXT, "follow": (bool,), "patience": (int,), "order_by": _TEXT,
        },
    ),
    "join_streams": Operator(
        _join_streams,
        {"left": _TEXT, "right": _TEXT, "on": (str, list, dict), "within": (str, list, dict), "memory": _SIZE},
        {
            "time": _TEXTS, "lateness": _TEXT, "policy": _TEXT, "how": _TEXT, "allocation": _TEXT, "archive": (bool,),
            "estimator": _SIZE, "half_life": _SIZE, "slots": (int,), "seed": (int,),
        },
    ),
    "standing_queries": Operator(
        _standing,
        {"left": _TEXT, "right": _TEXT, "queries": _TEXT, "memory": _SIZE},
        {
            "select": (dict,), "band": (dict,), "keep": (int,), "within": _TEXT, "time": _TEXTS, "lateness": _TEXT,
            "output": _TEXT, "strategy": _TEXT, "slots": (int,), "split": (list,), "reach": (list,),
        },
    ),
    "subscriptions": Operator(
        _subscriptions,
        {"stream": _TEXT, "x": _TEXT, "key": _TEXTS},
        {
            "y": _TEXT, "order": _TEXT, "agg": _TEXT, "partition_by": _TEXTS, "deleted": _TEXT, "memory": _SIZE,
            "slots": (int,),
        },
    ),
}  # fmt: skip


def plan_of(operator: Any, said: Said, known: Known) -> tuple[Planned | None, list[tuple[str, PenstockError]]]:
    """The plan of an operator with its options; or what is wrong, each fault with the option that it is about."""
    found = OPERATORS.get(operator) if isinstance(operator, str) else None
    if found is None:
        do = f"There are: {', '.join(OPERATORS)}. {_near(str(operator), list(OPERATORS))}".rstrip()
        return None, [("operator", BadOption(f"There is no operator {operator!r}.", do=do))]
    allowed = {**found.needs, **found.takes}
    faults: list[tuple[str, PenstockError]] = []
    for name, value in said.items():
        if name not in allowed:
            do = _near(name, list(allowed)) or f"There are: {', '.join(allowed)}."
            faults.append((name, BadOption(f"{operator} has no option {name!r}.", do=do)))
        elif not isinstance(value, allowed[name]) or (isinstance(value, bool) and bool not in allowed[name]):
            kinds = " or ".join(kind.__name__ for kind in allowed[name])
            faults.append((name, BadOption(f"{name} = {value!r} is no {kinds}.")))
    missing = [name for name in found.needs if name not in said]
    faults += [("operator", BadOption(f"{operator} needs {name!r}.", do=f"Give it: {name} = …")) for name in missing]
    if faults:
        return None, faults
    try:
        return found.make(said, known), []
    except PenstockError as fault:
        return None, [("operator", fault)]


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else ""
