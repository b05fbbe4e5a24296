"""How much work a step may do: a number of units, or as many as fit a time by the steps before.

A step that is run again must do the same work, so no clock is looked at: how long the last step took is told by the
host, which stored it with the state.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.kernels.window.windows import FAR

#: Units of work a second, until a step has shown better.
_GUESS = 2_000_000.0
#: Never so little that a step gets nowhere.
_LEAST = 1_000


@dataclass
class Pace:
    """The share of work of one step: `most` units, or what takes about `seconds`; without either all there is.

    Guarantees
        Depends on what the host says and stores alone: `test_a_slice_follows_what_steps_took`.
    State and cost
        Three numbers.

    >>> pace = Pace(seconds=0.5)
    >>> pace.begin(None)
    >>> pace.units
    1000000
    >>> pace.end(1_000_000, cut=True)
    >>> pace.begin(1.0)  # a million units took a second: less from now on
    >>> pace.units
    750000
    """

    most: int | None = None
    seconds: float | None = None
    _rate: float = _GUESS
    _did: float = 0.0
    _cut: bool = False

    def begin(self, took: float | None) -> None:
        """A step begins; the last one took so many seconds."""
        if self.seconds is None or not took or not self._did:
            return
        seen = self._did / took
        # A step that had little to do says nothing of how much it could have done.
        self._rate = (self._rate + seen) / 2 if self._cut else max(self._rate, seen)

    def end(self, did: float, *, cut: bool) -> None:
        """A step has done so many units, and was cut off or had nothing left to do."""
        self._did, self._cut = did, cut

    @property
    def units(self) -> int:
        """What this step may do."""
        if self.seconds is not None:
            return max(int(self._rate * self.seconds), _LEAST)
        return FAR if self.most is None else self.most

    def head(self) -> list[float]:
        """As JSON has it."""
        return [self._rate, self._did, float(self._cut)]

    def restore(self, said: list[float]) -> None:
        """Know again what another knew."""
        self._rate, self._did, self._cut = said[0], said[1], bool(said[2])
