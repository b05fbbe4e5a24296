"""Pairs of a join on their way to subscribers: a pair concerns everybody in whose two ranges it was or is.

A message has one row of numbers, as those of ranges have, and the keys of its two rows beside it. Its rectangle on the
plane of the left column's ranges is drawn around those that have either place: whoever is told is told by the places
themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.subscriptions.codes import decode, encode, python_values

if TYPE_CHECKING:
    from penstock.broker.messages import Kind

I64 = npt.NDArray[np.int64]
#: The name of what subscribers of a join are told, in the place of an aggregate.
PAIRS = "pairs"
#: Columns of a message: its number, which places there are, where its keys are, the rectangle's two sides, and the
#: places of the left and of the right row, before and after.
SEQ, FLAGS, KEYS, _, INNER_LEFT, INNER_RIGHT, LEFT_BEFORE, LEFT_AFTER = range(8)
RIGHT_BEFORE, RIGHT_AFTER = 10, 11
_WIDTH = 12
IS, WAS = 1, 2


class Pair(NamedTuple):
    """What a subscriber of a join is told: a pair of rows came into its ranges, left them, or moved within them.

    `left` and `right` are the rows' keys; `before` and `after` the values of the two columns, None where there is no
    such pair.
    """

    what: Literal["gained", "lost", "moved"]
    left: dict[str, Any]
    right: dict[str, Any]
    before: tuple[Any, Any] | None
    after: tuple[Any, Any] | None


def pair_rows(messages: pa.Table) -> I64:
    """Messages as rows; the columns are those of the results of `Subscriptions` with a join."""
    out = np.zeros((messages.num_rows, _WIDTH), np.int64)
    out[:, SEQ], out[:, KEYS] = messages.column("seq").to_numpy(), np.arange(messages.num_rows)
    named = {LEFT_BEFORE: "left_before", LEFT_AFTER: "left_after"}
    named |= {RIGHT_BEFORE: "right_before", RIGHT_AFTER: "right_after"}
    for place, name in named.items():
        codes, able = encode(messages.column(name).combine_chunks())
        out[:, place] = np.where(able, codes, 0)
        if place in (LEFT_BEFORE, LEFT_AFTER):
            out[:, FLAGS] |= np.where(able, WAS if place == LEFT_BEFORE else IS, 0)
    before, after = out[:, LEFT_BEFORE], out[:, LEFT_AFTER]
    before = np.where(out[:, FLAGS] & WAS, before, after)
    after = np.where(out[:, FLAGS] & IS, after, before)
    out[:, INNER_LEFT], out[:, INNER_RIGHT] = np.maximum(before, after), np.minimum(before, after)
    return out


def seen(rows: I64, pairs: I64, ends: I64) -> tuple[I64, I64]:
    """Of (message, subscriber), those that the message concerns, and for each which of `IS` and `WAS` it saw."""
    told, (x1, x2, low, high) = rows[pairs[:, 0]], ends[:, pairs[:, 1]]
    saw = np.zeros(len(pairs), np.int64)
    for flag, left, right in ((WAS, LEFT_BEFORE, RIGHT_BEFORE), (IS, LEFT_AFTER, RIGHT_AFTER)):
        inside = (x1 <= told[:, left]) & (told[:, left] <= x2) & (low <= told[:, right]) & (told[:, right] <= high)
        saw |= np.where(inside & (told[:, FLAGS] & flag != 0), flag, 0)
    return pairs[saw != 0], saw[saw != 0]


def shown(kind: Kind, rows: I64, keys: pa.Table) -> list[tuple[dict[str, Any], dict[str, Any], Any, Any]]:
    """Of each message both keys and both places, as people have them."""
    places = []
    for flag, left, right in ((WAS, LEFT_BEFORE, RIGHT_BEFORE), (IS, LEFT_AFTER, RIGHT_AFTER)):
        columns = zip((left, right), (kind.x, kind.x2 or kind.x), strict=True)
        values = (python_values(decode(np.ascontiguousarray(rows[:, at]), of)) for at, of in columns)
        there = (rows[:, FLAGS] & flag != 0).tolist()
        places.append([pair if here else None for pair, here in zip(zip(*values, strict=True), there, strict=True)])
    named = keys.take(pa.array(rows[:, KEYS])).to_pylist()
    halves = (
        [{name.removeprefix(side): value for name, value in one.items() if name.startswith(side)} for one in named]
        for side in ("left_", "right_")
    )
    return list(zip(*halves, *places, strict=True))
