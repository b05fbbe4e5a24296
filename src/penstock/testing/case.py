"""What the conformance suite needs to know about a kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa
from hypothesis.strategies import SearchStrategy

from penstock.errors import BadOption
from penstock.kernels.contract import Kernel, Portion
from penstock.testing.event_time import EventTime
from penstock.testing.rows import assert_same_rows

P = TypeVar("P")

Tables = Mapping[str, pa.Table]


def no_budget(plan: object) -> int | None:
    """The budget of a kernel that has none."""
    return None


def nothing_lent(plan: object) -> Iterable[object]:
    """For a kernel that holds nothing but its own."""
    return ()


@dataclass(frozen=True)
class Case(Generic[P]):
    """One kernel, how to make it, what to feed it, and its naive twin: slow, obvious, and the judge.

    A *plan* here is whatever `make` needs: a frozen plan, a number, a table. See `penstock.testing.conformance` for an
    example.
    """

    #: Names the case; a kernel may have several.
    name: str
    #: The class that `make` makes an object of.
    kernel: type[Kernel]
    #: Plans to go through.
    plans: SearchStrategy[P]
    #: The same plan gives the same kernel.
    make: Callable[[P], Kernel]
    #: Rows in the order of their arrival.
    inputs: Callable[[P], SearchStrategy[list[Portion]]]
    #: All results of these rows, by channel; a channel that is left out is to be empty.
    twin: Callable[[P, Sequence[Portion]], Tables]
    #: Bytes that `memory()` may not exceed.
    budget: Callable[[P], int | None] = no_budget
    #: Whether results must come in the twin's order. The rows of one batch that is run again may come in any order.
    ordered: bool = False
    #: Whether results depend on the rows alone, and not on how they were cut into batches.
    cut_free: bool = True
    #: How close is close enough, where "the same rows" is too strict: raises AssertionError for (plan, got, want).
    agree: Callable[[P, Tables, Tables], None] | None = None
    #: What of the output does not depend on how rows were cut into batches, where that is not all of it: a policy may
    #: choose among the rows of a batch, but what it chose and what it left must add up.
    settled: Callable[[P, Tables], Tables] | None = None
    #: Where rows have their event time, if the kernel looks at the watermark.
    event_time: EventTime | None = None
    #: What can be reached from a kernel of this plan but is not its memory: a mapped table, a reader that many share.
    lent: Callable[[P], Iterable[object]] = nothing_lent
    #: Bytes by which a kernel may weigh more than it says: the Python objects that nobody counts one by one.
    allowance: int = 32 * 1024
    #: How many rows to weigh it with; lower it where results grow with the square of the rows.
    bulk_rows: int = 20_000
    #: Rows in each portion of these.
    bulk_portion: int = 100

    def judge(self, plan: P, got: Tables, want: Tables, label: str) -> None:
        """Fail unless `got` is what the twin wants."""
        unknown = want.keys() - got.keys()
        if unknown:
            raise AssertionError(f"The twin of {self.name} has channels that the kernel does not: {sorted(unknown)}.")
        full = {channel: want.get(channel, table.slice(0, 0)) for channel, table in got.items()}
        if self.agree is not None:
            self.agree(plan, got, full)
            return
        same_tables(got, full, ordered=self.ordered, label=label)


def same_tables(got: Tables, want: Tables, *, ordered: bool, label: str) -> None:
    """Fail unless both have the same rows on each channel."""
    for channel, table in got.items():
        assert_same_rows(table, want[channel], ordered=ordered, label=f"{label}: rows on {channel!r}")


def side_of(portions: Iterable[Portion], side: int, schema: pa.Schema) -> pa.Table:
    """All rows of one side, in order: what most naive twins start with."""
    return pa.Table.from_batches([rows for number, rows in portions if number == side], schema=schema)


#: Every registered case, by name.
CASES: dict[str, Case[Any]] = {}
_homes: dict[str, tuple[str, str]] = {}


def register(case: Case[P]) -> Case[P]:
    """Have the conformance suite ask its questions of this case, too."""
    caller = inspect.stack(context=0)[1].frame
    module, file = str(caller.f_globals.get("__name__")), caller.f_code.co_filename
    # The same file may be imported twice, under two names: by the suite, and by a search for doctests.
    first_module, first_file = _homes.get(case.name, ("", ""))
    if case.name in CASES and (file != first_file or module == first_module):
        raise BadOption(
            f"There already is a case {case.name!r}, from {first_file}.", do="Give each case a name of its own."
        )
    CASES[case.name] = case
    _homes[case.name] = (module, file)
    return case
