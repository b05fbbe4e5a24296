"""The five questions that every kernel is asked. Each raises with a small example where the answer is no."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from penstock.errors import KernelFault
from penstock.kernels.contract import Emission, Kernel, Portion
from penstock.testing.case import Case, Tables, same_tables
from penstock.testing.event_time import repeated
from penstock.testing.host import Host
from penstock.testing.markers import CRASH, CRASH_MIDWAY, TICK, Crash, CrashMidway, Line, play, shuffled
from penstock.testing.strategies import batches
from penstock.testing.weigh import Scale, WeighingHost

P = TypeVar("P")
T = TypeVar("T")

_BULK_EXAMPLES = 3
_BULK_STEPS = 20
_ALL = 1_000_000_000
_A_DAY_IN_2026 = 1_790_000_000_000


@dataclass(frozen=True, repr=False)
class Scenario(Generic[P]):
    """A plan and its input, cut into micro-batches."""

    plan: P
    batches: list[list[Portion]]

    @property
    def portions(self) -> list[Portion]:
        """All portions in the order of their arrival."""
        return [portion for batch in self.batches for portion in batch]

    def __repr__(self) -> str:
        text = [[(side, rows.to_pydict()) for side, rows in batch] for batch in self.batches]
        return f"plan={self.plan!r}, batches of (side, rows)={text!r}"


def equals_twin(case: Case[P], examples: int | None = None) -> None:
    """(a) Are all results, drained, those of the naive twin?"""

    def ask(scenario: Scenario[P]) -> None:
        got = _host(case, scenario.plan).run(scenario.batches)
        case.judge(scenario.plan, got, case.twin(scenario.plan, scenario.portions), "against the naive twin")

    _ask(ask, _scenarios(case), examples)


def every_prefix(case: Case[P], examples: int | None = None) -> None:
    """(b) Are the results of every prefix, drained, those of recomputing it from scratch?

    Asked twice: of a kernel that is drained for the first time at the end of the prefix, and of one that is drained
    after every batch and goes on.
    """

    def ask(scenario: Scenario[P]) -> None:
        plan, often = scenario.plan, _host(case, scenario.plan)
        for end, batch in enumerate(scenario.batches, start=1):
            prefix = Scenario(plan, scenario.batches[:end])
            want = case.twin(plan, prefix.portions)
            case.judge(plan, _host(case, plan).run(prefix.batches), want, f"drained after batch {end}")
            case.judge(plan, often.run([batch]), want, f"drained after each of {end} batches")

    _ask(ask, _scenarios(case), examples)


def any_cut(case: Case[P], examples: int | None = None) -> None:
    """(c) Are the results the same however the rows are cut into batches, and whatever the clock says?"""

    def ask(drawn: tuple[Scenario[P], list[list[Portion]], int]) -> None:
        scenario, otherwise, pace = drawn
        got = _host(case, scenario.plan).run(scenario.batches)
        again = _host(case, scenario.plan, now=_A_DAY_IN_2026, pace=pace).run(otherwise)
        settled = case.settled or (lambda plan, tables: tables)
        both = settled(scenario.plan, got), settled(scenario.plan, again)
        same_tables(*both, ordered=case.ordered, label="cut in two ways")

    def both_ways(scenario: Scenario[P]) -> SearchStrategy[tuple[Scenario[P], list[list[Portion]], int]]:
        paces = st.sampled_from([1, 0, 86_400_000, -3_600_000])  # also a clock that stands still, or is set back
        return st.tuples(st.just(scenario), batches(scenario.portions), paces)

    _ask(ask, _scenarios(case).flatmap(both_ways), examples)


def after_restore(case: Case[P], examples: int | None = None) -> None:
    """(d) Are the results the same after a restore at any point, between steps and inside of them?

    A kernel restored before every step must emit in each step what an undisturbed one emits, also in a long stream; a
    script of crashes and ticks must give the same in the end; and a step that is run again, its rows in another order
    and other portions, must emit what it had emitted the first time.
    """

    def restored(plan: P, steps: Sequence[list[Portion]]) -> Host:
        calm, restarted = _host(case, plan), _host(case, plan, restart_every_step=True)
        for number, batch in enumerate(steps, start=1):
            _same_step(calm, calm.step(batch), restarted.step(batch), f"step {number} after a restore")
        _same_step(calm, calm.drain(), restarted.drain(), "the last tick after a restore")
        return calm

    def ask(drawn: tuple[Scenario[P], list[Line]]) -> None:
        scenario, script = drawn
        plan, settled = scenario.plan, case.settled or (lambda plan, tables: tables)
        calm = settled(plan, restored(plan, scenario.batches).results())
        for lines in (_each_lost_at_its_end(scenario.batches), script):
            disturbed, undisturbed = (play(_host(case, plan), some) for some in (lines, _without_crashes(lines)))
            same_tables(disturbed, undisturbed, ordered=False, label="crashed and run again")
            same_tables(settled(plan, disturbed), calm, ordered=False, label="with and without ticks")

    def with_script(scenario: Scenario[P]) -> SearchStrategy[tuple[Scenario[P], list[Line]]]:
        return st.tuples(st.just(scenario), _scripts(scenario.batches))

    def ask_bulk(scenario: Scenario[P]) -> None:
        restored(scenario.plan, _bulk(case, scenario.portions))

    _ask(ask, _scenarios(case).flatmap(with_script), examples)
    _ask_bulk(ask_bulk, case)


def within_budget(case: Case[P], examples: int | None = None) -> None:
    """(e) Is memory never above the budget, as the kernel counts it and as it weighs?

    Asked of every example, and of a few that are repeated until there are many rows.
    """

    def ask(scenario: Scenario[P]) -> None:
        _weighing(case, scenario.plan).run(scenario.batches)

    def ask_bulk(scenario: Scenario[P]) -> None:
        host = _weighing(case, scenario.plan)
        for number, batch in enumerate(_bulk(case, scenario.portions)):
            host.step(batch)
            # Some restores: what comes back from the store weighs something, too.
            if number % 4 == 3:
                host.crash()
        host.drain()

    _ask(ask, _scenarios(case), examples)
    _ask_bulk(ask_bulk, case)


#: The questions by the words of the style guide.
QUESTIONS: dict[str, Callable[..., None]] = {
    "equal to the naive twin": equals_twin,
    "equal to recomputing from scratch at every prefix": every_prefix,
    "the same however batches are cut": any_cut,
    "the same after restore at any point": after_restore,
    "memory never above the budget": within_budget,
}


def questions_for(case: Case[Any]) -> dict[str, Callable[..., None]]:
    """The questions that apply: all, but for the cut where results are defined by it."""
    return {words: ask for words, ask in QUESTIONS.items() if case.cut_free or ask is not any_cut}


def _ask_bulk(ask: Callable[[Scenario[P]], None], case: Case[P]) -> None:
    """Put a question to a few examples that are repeated until there are many rows; fewer would not show the fault."""
    some = _scenarios(case).filter(lambda scenario: any(portion.rows.num_rows for portion in scenario.portions))
    _ask(ask, some, _BULK_EXAMPLES, without=(Phase.shrink,))


def _ask(
    ask: Callable[[T], None], drawn: SearchStrategy[T], examples: int | None, without: tuple[Phase, ...] = ()
) -> None:
    """Put a question to many examples: as many as the Hypothesis profile says, unless told otherwise."""
    profile = settings()
    asked = settings(
        profile,
        max_examples=examples or profile.max_examples,
        deadline=None,
        report_multiple_bugs=False,
        # Explaining repeats the test many times over, for hints that a bag of rows gives better.
        phases=[phase for phase in profile.phases if phase not in (Phase.explain, *without)],
        suppress_health_check=list(HealthCheck),
    )(given(drawn)(ask))
    asked()


def _scenarios(case: Case[P]) -> SearchStrategy[Scenario[P]]:
    @st.composite
    def scenarios(draw: DrawFn) -> Scenario[P]:
        plan = draw(case.plans)
        return Scenario(plan, draw(batches(draw(case.inputs(plan)))))

    return scenarios()


def _each_lost_at_its_end(steps: Sequence[list[Portion]]) -> list[Line]:
    """Every step emits all it has, is lost before it is stored, and runs again with its rows in another order."""
    return [line for number, step in enumerate(steps) for line in (CRASH_MIDWAY(_ALL, shuffled(number)), step)]


def _without_crashes(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if not isinstance(line, Crash | CrashMidway)]


def _scripts(steps: Sequence[list[Portion]]) -> SearchStrategy[list[Line]]:
    """The steps, with markers drawn before each of them and after the last."""
    losses = st.builds(CRASH_MIDWAY, st.sampled_from([0, 1, 2, _ALL]), st.integers(0, 9).map(shuffled))
    mishaps: SearchStrategy[list[Line]] = st.lists(st.one_of(st.just(CRASH), losses, st.just(TICK)), max_size=2)

    def script(before: list[list[Line]]) -> list[Line]:
        lines = [line for marks, step in zip(before, steps, strict=True) for line in (*marks, step)]
        return [*lines, CRASH_MIDWAY(1), TICK]

    return st.lists(mishaps, min_size=len(steps), max_size=len(steps)).map(script)


def _maker(case: Case[P], plan: P) -> Callable[[], Kernel]:
    def make() -> Kernel:
        kernel = case.make(plan)
        if type(kernel) is not case.kernel:
            raise KernelFault(
                f"The case {case.name!r} is for {case.kernel.__name__} and makes a {type(kernel).__name__}.",
                do="Let `kernel` and `make` speak of the same class.",
            )
        return kernel

    return make


def _host(case: Case[P], plan: P, **options: Any) -> Host:
    return Host(_maker(case, plan), event_time=case.event_time, **options)


def _weighing(case: Case[P], plan: P) -> WeighingHost:
    make = _maker(case, plan)
    # What a second kernel of the plan can reach as well belongs to the plan; their own objects are different ones.
    scale = Scale([make(), plan, *case.lent(plan)])
    return WeighingHost(
        make, budget=case.budget(plan), event_time=case.event_time, scale=scale, allowance=case.allowance
    )


def _bulk(case: Case[P], portions: Iterable[Portion]) -> list[list[Portion]]:
    """The rows of each side again and again, each time later, until there are many; the sides take turns."""
    sides: dict[int, list[pa.RecordBatch]] = {}
    for side, rows in portions:
        if rows.num_rows:
            sides.setdefault(side, []).append(rows)
    whole = {side: pa.concat_batches(parts) for side, parts in sides.items()}
    times = -(-case.bulk_rows // sum(rows.num_rows for rows in whole.values()))
    count = max(case.bulk_rows // len(whole) // case.bulk_portion, 1)
    pieces = []
    for side, rows in repeated(whole, case.event_time, times).items():
        ends = [rows.num_rows * number // count for number in range(count + 1)]
        pieces.append([Portion(side, rows.slice(begin, end - begin)) for begin, end in pairwise(ends)])
    turns = [portion for turn in zip(*pieces, strict=True) for portion in turn]
    size = -(-len(turns) // _BULK_STEPS)
    return [turns[i : i + size] for i in range(0, len(turns), size)]


def _same_step(host: Host, calm: list[Emission], other: list[Emission], label: str) -> None:
    same_tables(_tables(host, other), _tables(host, calm), ordered=False, label=label)


def _tables(host: Host, emissions: list[Emission]) -> Tables:
    return {
        channel: pa.Table.from_batches([e.rows for e in emissions if e.channel == channel], schema=schema)
        for channel, schema in host.kernel.channels.items()
    }
