"""Contestants that take turns over the same work, and what their times say.

A benchmark is one table: contestants, and claims about them. Every round each contestant has one turn (A B C, A B C,
…), so that whatever else the machine does falls on all of them. Round 0 warms up and checks results; it is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sample:
    """One measured micro-batch: how long it took, and how many seconds of all cores went into it, if known."""

    rows: int
    seconds: float
    busy: float | None = None
    results: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """One turn of one contestant. Round 0 warms up: its samples are not counted, its results are checked in full."""

    round: int
    say: Say

    @property
    def warming(self) -> bool:
        return self.round == 0


@dataclass(frozen=True)
class Contestant:
    """A way to do the work. `run` does one turn and returns its samples, without those that only warmed it up.

    With `missing` it cannot run, for that reason, and is left out.
    """

    name: str
    run: Callable[[Turn], Sequence[Sample]]
    missing: str = ""


@dataclass(frozen=True)
class Ratio:
    """The claim that `fast` handles at least `goal` times the rows a second of `slow`."""

    fast: str
    slow: str
    goal: float | None = None


@dataclass(frozen=True)
class Limit:
    """The claim that a contestant reaches a rate (rows a second), or keeps below a time (seconds a micro-batch)."""

    name: str
    rate: float | None = None
    seconds: float | None = None
    aim: float | None = None


@dataclass(frozen=True)
class Recall:
    """The claim that `part` gives at least the share `goal` of the results of `whole`, for the same rows."""

    part: str
    whole: str
    goal: float | None = None


@dataclass(frozen=True)
class Share:
    """The claim that of what the samples of a contestant count as `whole`, at least the share `goal` is `part`."""

    name: str
    part: str
    whole: str
    goal: float | None = None


@dataclass(frozen=True)
class Told:
    """What a contestant tells in its samples beside their times, said as it is."""

    name: str
    detail: str
    about: str
    unit: str


@dataclass(frozen=True)
class Benchmark:
    """One table of measurements. `setup` is entered before the first turn and left after the last."""

    name: str
    about: str
    contestants: Callable[[], Sequence[Contestant]]
    ratios: tuple[Ratio, ...] = ()
    limits: tuple[Limit, ...] = ()
    setup: Callable[[Say], AbstractContextManager[None]] | None = None
    recalls: tuple[Recall, ...] = ()
    shares: tuple[Share, ...] = ()
    told: tuple[Told, ...] = ()


@dataclass(frozen=True)
class Summary:
    """Median and spread of some numbers."""

    median: float
    low: float
    high: float
    first_quartile: float
    third_quartile: float
    count: int

    @classmethod
    def of(cls, numbers: Iterable[float]) -> Summary:
        """Of at least one number."""
        found = sorted(numbers)
        if not found:
            raise ValueError("no measurement to summarise")
        quartiles = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else [found[0]] * 3
        return cls(statistics.median(found), found[0], found[-1], quartiles[0], quartiles[2], len(found))


@dataclass
class Measured:
    """The turns of one contestant: a list of samples for each counted round."""

    name: str
    turns: list[list[Sample]] = field(default_factory=list)

    @property
    def seconds(self) -> Summary:
        """Seconds a micro-batch, over all rounds."""
        return Summary.of(sample.seconds for turn in self.turns for sample in turn)

    @property
    def rate(self) -> Summary:
        """Rows a second, over all rounds."""
        return Summary.of(sample.rows / sample.seconds for turn in self.turns for sample in turn)

    @property
    def busy(self) -> Summary | None:
        """Seconds of processor time a micro-batch, over all rounds. Hardly moved by what else the machine does."""
        found = [sample.busy for turn in self.turns for sample in turn if sample.busy is not None]
        return Summary.of(found) if found else None

    def results_of(self, turn: int) -> int:
        """All results of one round."""
        return sum(sample.results or 0 for sample in self.turns[turn])

    def rate_of(self, turn: int) -> float:
        """The median rate of one round."""
        return statistics.median(sample.rows / sample.seconds for sample in self.turns[turn])


@dataclass(frozen=True)
class Verdict:
    """A claim against what was measured. `met` is None where there is no goal."""

    text: str
    value: float
    low: float
    high: float
    unit: str
    goal: float | None
    met: bool | None


@dataclass
class Outcome:
    """What one benchmark measured."""

    benchmark: Benchmark
    measured: dict[str, Measured]
    missing: dict[str, str]
    took: float = 0.0

    def verdicts(self) -> list[Verdict]:
        """All claims about contestants that ran."""
        found = [_judge_limit(limit, self.measured[limit.name]) for limit in self.benchmark.limits if self._ran(limit)]
        found += [
            _judge_ratio(ratio, self.measured[ratio.fast], self.measured[ratio.slow])
            for ratio in self.benchmark.ratios
            if ratio.fast in self.measured and ratio.slow in self.measured
        ]
        found += [_judge_share(one, self.measured[one.name]) for one in self.benchmark.shares if self._ran(one)]
        found += [_say(one, self.measured[one.name]) for one in self.benchmark.told if self._ran(one)]
        return found + [
            _judge_recall(recall, self.measured[recall.part], self.measured[recall.whole])
            for recall in self.benchmark.recalls
            if recall.part in self.measured and recall.whole in self.measured
        ]

    def _ran(self, claim: Limit | Share | Told) -> bool:
        return claim.name in self.measured


def _judge_ratio(ratio: Ratio, fast: Measured, slow: Measured) -> Verdict:
    # The value is of the medians over everything; the spread is round by round, where both met the same neighbours.
    value = fast.rate.median / slow.rate.median
    rounds = min(len(fast.turns), len(slow.turns))
    spread = Summary.of(fast.rate_of(turn) / slow.rate_of(turn) for turn in range(rounds))
    met = None if ratio.goal is None else value >= ratio.goal
    return Verdict(f"{ratio.fast} : {ratio.slow}", value, spread.low, spread.high, "×", ratio.goal, met)


def _judge_recall(recall: Recall, part: Measured, whole: Measured) -> Verdict:
    rounds = range(min(len(part.turns), len(whole.turns)))
    found = Summary.of(100 * part.results_of(turn) / whole.results_of(turn) for turn in rounds)
    goal = None if recall.goal is None else 100 * recall.goal
    met = None if goal is None else found.median >= goal
    return Verdict(f"{recall.part}, results of {recall.whole}", found.median, found.low, found.high, "%", goal, met)


def _judge_share(share: Share, measured: Measured) -> Verdict:
    counts = [[sum(s.details[key] for s in turn) for key in (share.part, share.whole)] for turn in measured.turns]
    parts, wholes = (sum(column) for column in zip(*counts, strict=True))
    spread = Summary.of(100 * part / whole if whole else 100.0 for part, whole in counts)
    value, goal = 100 * parts / wholes if wholes else 100.0, None if share.goal is None else 100 * share.goal
    text = f"{share.name}, {share.part} of {wholes:,} {share.whole}"
    return Verdict(text, value, spread.low, spread.high, "%", goal, None if goal is None else value >= goal)


def _say(told: Told, measured: Measured) -> Verdict:
    samples = [sample for turn in measured.turns for sample in turn if told.detail in sample.details]
    found = Summary.of(sample.details[told.detail] for sample in samples)
    return Verdict(f"{told.name}, {told.about}", found.median, found.low, found.high, told.unit, None, None)


def _judge_limit(limit: Limit, measured: Measured) -> Verdict:
    if limit.rate is not None:
        found, unit, goal, met = measured.rate, "rows/s", limit.rate, measured.rate.median >= limit.rate
    elif limit.seconds is not None:
        found, unit, goal, met = measured.seconds, "s", limit.seconds, measured.seconds.median <= limit.seconds
    else:
        raise ValueError(f"The limit of {limit.name} has neither a rate nor seconds.")
    return Verdict(limit.name, found.median, found.low, found.high, unit, goal, met)


def chosen(contestants: Sequence[Contestant], only: Sequence[str]) -> list[Contestant]:
    """Those whose name has one of the given words in it; all without words."""
    return [one for one in contestants if not only or any(word.lower() in one.name.lower() for word in only)]


def run(
    benchmark: Benchmark,
    *,
    rounds: int,
    say: Say,
    only: Sequence[str] = (),
    last: Callable[[Contestant], AbstractContextManager[None] | None] | None = None,
) -> Outcome:
    """All rounds of a benchmark. With `last`, one more turn, not counted, inside the context that it gives."""
    began = time.monotonic()
    with (benchmark.setup or _nothing)(say):
        everybody = chosen(benchmark.contestants(), only)
        missing = {one.name: one.missing for one in everybody if one.missing}
        ready = [one for one in everybody if not one.missing]
        measured = {one.name: Measured(one.name) for one in ready}
        for number in range(rounds + 1):
            for one in ready:
                phase = "warm-up and check" if number == 0 else f"round {number} of {rounds}"
                prefix = f"{benchmark.name} · {phase} · {one.name}"
                say(prefix)
                samples = list(one.run(Turn(number, lambda text, at=prefix: say(f"{at} · {text}"))))
                if number:
                    measured[one.name].turns.append(samples)
        for one in ready:
            around = last(one) if last else None
            if around is not None:
                prefix = f"{benchmark.name} · profile · {one.name}"
                with around:
                    one.run(Turn(rounds + 1, lambda text, at=prefix: say(f"{at} · {text}")))
    return Outcome(benchmark, measured, missing, time.monotonic() - began)


@contextmanager
def _nothing(say: Say) -> Iterator[None]:
    yield
