"""The plan of `join_streams`: two streams over a window, under a memory budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal, get_args

import pyarrow as pa

from penstock.errors import (
    BadOption,
    MemoryTooSmall,
    PenstockError,
)
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Metric
from penstock.kernels.function_text import function_text
from penstock.kernels.measure import fixed_width
from penstock.kernels.window.custom import Custom
from penstock.kernels.window.estimates import Given
from penstock.kernels.window.exact import Exact
from penstock.kernels.window.heeb import Heeb
from penstock.kernels.window.life import Life
from penstock.kernels.window.policy import Policy
from penstock.kernels.window.prob import Prob
from penstock.kernels.window.rand import Rand
from penstock.kernels.window.shape import ARCHIVE, LATE, RESIDENCE, RESIDENCE_SCHEMA, How, Shape
from penstock.kernels.window.side import ENTRY, SIZED
from penstock.kernels.window.windowjoin import LEAST_BUDGET, WindowJoin
from penstock.kernels.window.windows import Window
from penstock.models.stream_models import StreamModel
from penstock.plan.base import Plan, Side
from penstock.plan.faults import Faults
from penstock.plan.two_streams import (
    On,
    Within,
    check_condition,
    name_faults,
    read_shape,
    read_times,
    read_window,
    width_of,
)
from penstock.plan.units import format_duration, format_size, parse_count, parse_duration, parse_size
from penstock.tables.keys import PARTITIONS

Allocation = Literal["variable", "fixed"]

POLICIES: dict[str, Callable[[], Policy]] = {
    "exact": Exact,
    "rand": Rand,
    "prob": Prob,
    "life": Life,
    "heeb": Heeb,
}


def heeb(left: StreamModel | None = None, right: StreamModel | None = None, *, alpha: float | None = None) -> Heeb:
    """The policy HEEB with models of the streams (`penstock.models.stream_models`), as far as they are known.

    What is not given is fitted while the stream flows; where nothing fits, keys are counted, as PROB does. Keys are
    numbers. `alpha` is observed if not given.

    >>> heeb().describe()
    'HEEB (models: left fitted, right fitted; PROB where none fits)'
    """
    return Heeb(left, right, alpha=alpha)


@dataclass(frozen=True)
class JoinStreamsPlan(Plan):
    """Join of two streams. `memory` is for all slots together; rows go to the slot of their key.

    >>> left = pa.schema([("id", pa.int64()), ("asked", pa.timestamp("us"))])
    >>> right = pa.schema([("id", pa.int64()), ("answered", pa.timestamp("us"))])
    >>> plan = JoinStreamsPlan.checked(
    ...     left, right, on="id", within="1 minute", time=("asked", "answered"), memory="64MB", policy="prob", slots=2
    ... )
    >>> print(plan.explain())
    join_streams on id = id (inner)
      window   time, 60 s; rows may be 0 us late
      policy   PROB, memory shared freely by both sides
      work     2 slots, divided by key
      memory   64 MB in all, 32 MB a slot; room for about 750,000 rows of both sides
      archive  none: what is missed is counted, and stays missed
    """

    shape: Shape
    window: Window
    times: tuple[str, str] | None
    lateness: int
    policy: Policy
    memory: int
    slots: int
    fixed: bool = False
    where: Callable[[pa.RecordBatch, pa.RecordBatch], Any] | None = None
    archive: bool = False
    estimator: int | None = None
    half_life: float | None = None
    probabilities: tuple[Given | None, Given | None] = (None, None)
    seed: int = 0
    #: The condition as it was when the join was planned: workers run it, and it may change what it holds.
    told: str = field(init=False, default="")
    #: By what rows are let go, in full: a micro-batch that is run again must let go of the same ones.
    judged: str = field(init=False, default="")

    name: ClassVar[str] = "join_streams"
    reports: ClassVar[tuple[Metric, ...]] = WindowJoin.reports

    def __post_init__(self) -> None:
        if self.where is not None:
            object.__setattr__(self, "told", function_text(self.where))
        given = [self.policy, *(one for one in self.probabilities if one is not None)]
        object.__setattr__(self, "judged", "; ".join(map(function_text, given)))

    @classmethod
    def checked(
        cls,
        left: pa.Schema,
        right: pa.Schema,
        *,
        on: On,
        within: Within,
        memory: str | int,
        slots: int | None = None,
        cores: int = 1,
        time: str | tuple[str, str] | None = None,
        lateness: str | timedelta = "0 seconds",
        policy: str | Policy | Callable[..., Any] = "exact",
        how: How = "inner",
        where: Callable[[pa.RecordBatch, pa.RecordBatch], Any] | None = None,
        allocation: Allocation = "variable",
        archive: bool = False,
        estimator: str | int | None = None,
        half_life: str | timedelta | int | None = None,
        probabilities: tuple[Given | None, Given | None] = (None, None),
        seed: int = 0,
    ) -> JoinStreamsPlan:
        """The plan, or one error that names every fault in it. Without `slots`, as many as `cores`, where that can be.

        `cores` is how many slots there are by default; row windows have one, because rows are counted over all keys.
        """
        faults = Faults()
        tried = faults.tried
        shape = tried(read_shape, left, right, on, how)
        window = tried(read_window, within)
        times = tried(read_times, left, right, time, window)
        chosen = tried(read_policy, policy)
        tried(check_condition, where)
        tried(_check_archive, archive)
        tried(_check_probabilities, probabilities)
        size = tried(parse_size, memory)
        counts = None if estimator is None else tried(parse_size, estimator, option="estimator")
        late = tried(parse_duration, lateness, option="lateness")
        life = None if half_life is None else tried(_half_life, half_life, window)
        single = (window is not None and not window.timed) or (chosen is not None and chosen.single_slot)
        slots = (1 if single else cores) if slots is None else slots
        faults += _option_faults(window, chosen, slots, allocation)
        if not faults:
            faults += name_faults(shape, archive)
            plan = cls(
                shape, window, times, late, chosen, size, slots, allocation == "fixed", where, archive, counts, life,
                probabilities, seed,
            )  # fmt: skip
            faults += plan._memory_faults()
        faults.complain("this join")
        return plan

    def _memory_faults(self) -> list[PenstockError]:
        each = self.memory // self.slots
        if self.estimator is not None and self.policy.lossy and self.estimator > each // 2:
            return [
                MemoryTooSmall(
                    f"The estimator's {format_size(self.estimator)} are more than half of a slot's memory.",
                    why=f"{self.slots} slots have {format_size(each)} each, key counts included.",
                    do="Give a smaller estimator=, more memory=, or fewer slots.",
                )
            ]
        if each >= LEAST_BUDGET:
            return []
        least = format_size(LEAST_BUDGET * self.slots, round_up=True)
        return [
            MemoryTooSmall(
                f"{format_size(self.memory)} cannot hold two windows.",
                why=f"Each of {self.slots} slots needs {format_size(LEAST_BUDGET)} for rows on their way alone.",
                do=f'Give at least memory="{least}".',
            )
        ]

    @property
    def sides(self) -> tuple[Side, ...]:
        """Both streams, by key; with event time where the window asks for it."""
        timed = self.times if self.window.timed else None
        return tuple(
            Side(self.shape.sides[side], self.shape.keys[side], timed[side] if timed else None, self.lateness)
            for side in (0, 1)
        )

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """Results; late rows; what cannot be joined; the archive, if it is kept."""
        declared = {RESULTS: self.shape.results, SET_ASIDE: SET_ASIDE_SCHEMA}
        if self.window.timed:
            declared |= {LATE[side]: self.shape.sides[side] for side in (0, 1)}
        if self.archive:
            declared |= {ARCHIVE[side]: self.shape.archived(side) for side in (0, 1)} | {RESIDENCE: RESIDENCE_SCHEMA}
        return declared

    def make(self, slot: int) -> WindowJoin:
        """The kernel of a slot."""
        return WindowJoin(
            self.shape,
            self.window,
            self.policy,
            budget=self.memory // self.slots,
            times=self.times,
            fixed=self.fixed,
            where=self.where,
            archive=self.archive,
            estimator=self.estimator,
            half_life=self.half_life,
            probabilities=self.probabilities,
            slot=slot,
            seed=self.seed,
        )

    def identity(self) -> Mapping[str, str]:
        """What decides which pairs there are; not memory and policy, which may change at a restart."""
        columns = [", ".join(f"{field.name} {field.type}" for field in schema) for schema in self.shape.sides]
        return {
            "operator": self.name,
            "left columns": columns[0],
            "right columns": columns[1],
            "on": self._keys(),
            **({"where": self.told} if self.told else {}),
            "how": self.shape.how,
            "window": self.window.describe(),
            "time": ", ".join(self.times or ()),
            "lateness": str(self.lateness),
            "archive": str(self.archive),
            "slots": str(self.slots),
        }

    def _keys(self) -> str:
        return ", ".join(f"{ours} = {theirs}" for ours, theirs in self.shape.on)

    def explain(self) -> str:
        """The join, and how memory is spent."""
        each = self.memory // self.slots
        width = sum(sum(width_of(field.type) for field in schema) for schema in self.shape.sides) / 2
        fixed = fixed_width(self.shape.left) and fixed_width(self.shape.right)
        part = 0.6 if self.policy.lossy else 0.7
        room = self.memory * part / (width + ENTRY + (0 if fixed else SIZED))
        room = round(room, 2 - len(str(int(room))))  # two digits: it is an estimate
        late = f"; rows may be {format_duration(self.lateness)} late" if self.window.timed else ""
        shared = "half for each side" if self.fixed else "memory shared freely by both sides"
        kept = (
            "every row, and when it left memory: catch-up finds what is missed"
            if self.archive
            else "none: what is missed is counted, and stays missed"
            if self.policy.lossy
            else "none: nothing is missed"
        )
        about = "" if fixed else ", by a guess of their width"
        return "\n".join(
            [
                f"join_streams on {self._keys()} ({self.shape.how})",
                f"  window   {self.window.describe()}{late}",
                f"  policy   {self.policy.describe()}, {shared}",
                f"  work     {self.slots} slots, divided by key",
                f"  memory   {format_size(self.memory)} in all, {format_size(each)} a slot; "
                f"room for about {room:,.0f} rows of both sides{about}",
                f"  archive  {kept}",
            ]
        )


def read_policy(policy: str | Policy | Callable[..., Any]) -> Policy:
    """A policy by name, one that is made, or a function of the user's.

    >>> read_policy("prob").describe()
    'PROB'
    """
    if isinstance(policy, Policy):
        return policy
    if callable(policy):
        return Custom(policy)
    made = POLICIES.get(policy)
    if made is None:
        raise BadOption(
            f"policy={policy!r} is not a policy.",
            do=f"Choose one of {', '.join(POLICIES)}, or give a function of (keys, ages, partner probabilities).",
        )
    return made()


def _check_archive(given: Any) -> None:
    if not isinstance(given, bool):
        raise BadOption(
            f"archive={given!r} is neither True nor False.",
            why="Where the archive lies is said when the flow is started.",
            do='Give archive=True here, and flow.start(…, **ps.archive("archive/")).',
        )


def _check_probabilities(given: Any) -> None:
    pair = given if isinstance(given, tuple | list) else ()
    if len(pair) != 2 or not all(one is None or callable(one) for one in pair):
        raise BadOption(
            f"probabilities={given!r} is not one function for each side.",
            do="Give a pair of functions of an array of keys: probabilities=(left, right), None where it is not known.",
        )


def _half_life(given: str | timedelta | int, window: Window | None) -> float:
    if window is not None and not window.timed:
        if isinstance(given, int) and given > 0:
            return float(given)
        raise BadOption(
            f"half_life={given!r} is not a number of rows.", do="A row window counts in rows: half_life=5000."
        )
    length = parse_duration(given, option="half_life")  # type: ignore[arg-type]  # refused there
    if length <= 0:
        raise BadOption("A half-life of nothing forgets everything at once.", do='Give half_life="1 hour".')
    return float(length)


def _option_faults(window: Window | None, policy: Policy | None, slots: int, allocation: str) -> list[PenstockError]:
    faults = Faults()
    if faults.tried(parse_count, slots, option="slots", most=PARTITIONS) is None:
        return faults
    if window is not None and not window.timed and slots > 1:
        faults.append(
            BadOption(
                f"A window of rows cannot be divided among {slots} slots.",
                why="Each slot has the rows of some keys, and the window counts the rows of all.",
                do="Leave slots out, or give slots=1.",
            )
        )
    if policy is not None and policy.single_slot and slots > 1:
        faults.append(
            BadOption(
                f"{policy.describe()} cannot be divided among {slots} slots.",
                why="Its model is of the whole stream, and each slot sees the rows of some keys.",
                do="Leave slots out, or give slots=1.",
            )
        )
    if allocation not in get_args(Allocation):
        faults.append(BadOption(f"allocation={allocation!r} is not an allocation.", do='Give "variable" or "fixed".'))
    return faults
