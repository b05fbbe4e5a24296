"""What a window join knows of its streams, and what it thinks of a row by that."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import ChunkLog
from penstock.kernels.window.arrivals import Ready
from penstock.kernels.window.estimates import Given, KeyEstimates
from penstock.kernels.window.intake import Intake
from penstock.kernels.window.policy import Arrivals, Candidates, Policy, checked_scores
from penstock.kernels.window.shape import Shape
from penstock.kernels.window.side import SideRows
from penstock.kernels.window.windows import LEFT, RIGHT, Clock, Window

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


class Judgement:
    """A policy, and the key counts that it judges by; `counts` bytes for those of each side.

    Guarantees
        The same rows have the same scores in a step that is run again: what is random comes from `seed` and the step.
        Restored, it judges as the first would have; another policy than before begins with nothing learned.
    State and cost
        Key counts of both sides, where the policy lets rows go; what the policy has learned.
    """

    def __init__(
        self,
        policy: Policy,
        shape: Shape,
        window: Window,
        intake: Intake,
        *,
        counts: int,
        half_life: float,
        given: tuple[Given | None, Given | None],
        seed: int,
    ) -> None:
        self.policy = copy.deepcopy(policy)
        self.window = window
        self._shape, self._intake, self._given, self._seed = shape, intake, given, seed
        self._counts = tuple(KeyEstimates(tag, counts, half_life) for tag in ("lk", "rk")) if policy.lossy else ()

    def memory(self) -> float:
        """Bytes held."""
        return sum(one.memory() for one in self._counts)

    def learn(self, side: int, ready: Ready, first: int, clock: Clock) -> None:
        """See rows that came, numbered from `first` on."""
        if not self._counts or not len(ready.hashes):
            return
        timed = self.window.timed
        self._counts[side].add(ready.hashes, float(clock.latest[side] if timed else clock.rows[side]))
        times = ready.times if timed else np.arange(first, first + len(ready.hashes))
        self.policy.observe(Arrivals(side, times, first, lambda: self._intake.keys(side, ready.rows)))

    # -- scores ------------------------------------------------------------------------------------------------

    def waiting(self, side: int, rows: SideRows, clock: Clock, begin: int, end: int) -> Candidates:
        """Some of the rows in memory, by their places."""
        names = self._shape.keys[side]
        return self._candidates(
            side,
            rows.column("hashes")[begin:end],
            rows.column("moments")[begin:end],
            rows.column("numbers")[begin:end],
            clock,
            lambda: self._intake.keys(side, rows.take(np.arange(rows.first + begin, rows.first + end), names)),
        )

    def coming(self, side: int, ready: Ready, clock: Clock) -> Candidates:
        """Rows that are not in memory yet."""
        moments = self.window.moments(ready.times)
        numbers = np.full(len(moments), clock.rows[side])
        keys = lambda: self._intake.keys(side, ready.rows)  # noqa: E731
        return self._candidates(side, ready.hashes, moments, numbers, clock, keys)

    def scores(self, rows: Candidates, step: int) -> F64:
        """The score of each in a step; the lowest go."""
        salt = (self._seed * 0x9E3779B97F4A7C15 + step * 0xD6E8FEB86659FD93 + 1) & 0x7FFFFFFFFFFFFFFF
        return checked_scores(self.policy, rows, salt)

    def _candidates(
        self, side: int, hashes: U64, moments: I64, numbers: I64, clock: Clock, keys: Callable[[], pa.Array]
    ) -> Candidates:
        life = self.window.life(side, moments, numbers, clock)
        given = self._given[1 - side]

        def partner() -> F64:
            if given is not None:
                return np.asarray(given(keys()), np.float64)
            return self._counts[1 - side].probability(hashes)

        return Candidates(side, hashes, numbers, life, self.window.span(side) - life, clock, partner, keys)

    # -- state -------------------------------------------------------------------------------------------------

    def store(self, number: int, log: ChunkLog) -> None:
        """Write what is new."""
        for one in self._counts:
            one.store(number, log)

    def head(self) -> dict[str, Any]:
        """What the chunks do not say."""
        return {
            "estimates": [one.head() for one in self._counts],
            "policy": [self.policy.name, self.policy.head()],
        }

    def restore(self, said: Mapping[str, Any], chunks: Mapping[str, pa.Buffer]) -> None:
        """Know it again."""
        if said["estimates"] and self._counts:
            for side in (LEFT, RIGHT):
                self._counts[side].restore(said["estimates"][side], chunks)
        name, learned = said["policy"]
        if name == self.policy.name:
            self.policy.restore(learned)
