"""Online tuning of a mesh join (000 §3.3): follow the arrival rate, and say so when memory is not enough."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import BadOption
from penstock.models.mesh_cost import Coefficients
from penstock.models.mesh_tuner import Choice, default_buffer, fastest, smallest, with_buffer


@dataclass(frozen=True)
class Advice:
    """What the next iterations should use."""

    choice: Choice
    #: The arrival rate it was made for.
    arrival_rate: float
    #: The part of the arriving rows that cannot be served within the budget: 0 unless shedding would be needed.
    excess: float

    @property
    def must_shed(self) -> bool:
        """Whether no memory is left: rows must wait in the source or, if the user asked for it, be shed."""
        return self.excess > 0


class OnlineTuner:
    """Re-solves the cost model as the arrival rate changes.

    Guarantees
        The advised rate is at least the arrival rate, or `must_shed` is set and the advice is the fastest that the
        budget allows: `test_online_tuner_serves_the_arrival_rate`. Advice never takes more than the budget, and does
        not change while the rate stays within a tenth: `test_online_tuner_is_calm`.
    State and cost
        One number and the last advice; a solution takes some milliseconds.

    `headroom` is how much faster than the arrivals to be; after `half_life` seconds an observation counts for half.
    With `tune_buffer` b is solved for as well, else it stays the default one (001).
    """

    def __init__(
        self,
        coefficients: Coefficients,
        budget: float,
        *,
        headroom: float = 0.1,
        half_life: float = 30.0,
        tune_buffer: bool = False,
    ) -> None:
        if headroom < 0 or half_life <= 0:
            raise BadOption("headroom may not be negative, and half_life must be more than 0 seconds.")
        self._c = coefficients
        self._budget = budget
        self._headroom = headroom
        self._half_life = half_life
        self._among = None if tune_buffer else with_buffer(coefficients, budget, default_buffer(coefficients)).b
        self._seconds = 0.0
        self._rate = 0.0
        self._last: Advice | None = None

    @property
    def arrival_rate(self) -> float:
        """λ: rows a second, the recent past counting most."""
        return self._rate

    def observe(self, rows: float, seconds: float) -> None:
        """So many rows arrived in so many seconds."""
        if seconds <= 0:
            return
        kept = 0.5 ** (seconds / self._half_life)
        # Before a half-life has passed, the plain mean: the first seconds must not look like a slow stream.
        weight = max(1 - kept, seconds / (self._seconds + seconds) if self._seconds < self._half_life else 0.0)
        self._rate += weight * (rows / seconds - self._rate)
        self._seconds += seconds

    def advise(self) -> Advice:
        """The w and b for now."""
        last = self._last
        if last is None or not self._still_good(last):
            last = self._last = self._solve(self._rate)
        return last

    def _still_good(self, last: Advice) -> bool:
        near = abs(self._rate - last.arrival_rate) <= 0.1 * last.arrival_rate
        return near and last.must_shed == (self._rate > last.choice.rate)

    def _solve(self, rate: float) -> Advice:
        best = fastest(self._c, self._budget, self._among)
        if rate > best.rate:
            return Advice(best, rate, 1 - best.rate / rate)
        wanted = min(max(rate, 1e-9) * (1 + self._headroom), best.rate)
        cheap = smallest(self._c, wanted, self._among)
        return Advice(cheap if cheap.memory.total <= self._budget else best, rate, 0.0)
