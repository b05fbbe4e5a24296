"""The shapes of standing queries: what all of them have in common, so that each is a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

LEFT, RIGHT, CHANGES = 0, 1, 2
SIDES = ("left", "right")
#: The columns of a query of a band join.
BAND = ("band_from", "band_to")


@dataclass(frozen=True)
class SelectJoin:
    """Equal keys, and a range on each side: σ(A in range) R ⋈ σ(C in range) S.

    `on` has the key columns of both sides; `ranges` the columns that have a range in every query, for each side. With
    several on a side, groups are made of the first; rows are selected by whichever the fewest queries want.

    >>> shape = SelectJoin((("product",), ("product",)), (("offered",), ("wanted",)))
    >>> shape.bounds
    ('left_offered_from', 'left_offered_to', 'right_wanted_from', 'right_wanted_to')
    """

    on: tuple[tuple[str, ...], tuple[str, ...]]
    ranges: tuple[tuple[str, ...], tuple[str, ...]]

    own: ClassVar[bool] = True

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns of a query: from and to for each range, left before right."""
        return tuple(
            f"{SIDES[side]}_{column}_{end}"
            for side, columns in enumerate(self.ranges)
            for column in columns
            for end in ("from", "to")
        )

    def describe(self) -> str:
        """For people."""
        keys = " and ".join(f"left.{a} = right.{b}" for a, b in zip(*self.on, strict=True))
        ranges = [f"{SIDES[side]}.{column}" for side, columns in enumerate(self.ranges) for column in columns]
        return f"{keys}, ranges on {', '.join(ranges)}"


@dataclass(frozen=True)
class BandJoin:
    """The difference of one column of the right side and one of the left lies in a range: R ⋈(S.B − R.B in range) S.

    With `on` keys must be equal as well.

    >>> BandJoin((("position",), ("position",))).bounds
    ('band_from', 'band_to')
    """

    ranges: tuple[tuple[str], tuple[str]]
    on: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    own: ClassVar[bool] = False

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns of a query."""
        return BAND

    def describe(self) -> str:
        """For people."""
        keys = "".join(f"left.{a} = right.{b}, " for a, b in zip(*self.on, strict=True))
        return f"{keys}right.{self.ranges[1][0]} - left.{self.ranges[0][0]} in a range"


Shape = SelectJoin | BandJoin
