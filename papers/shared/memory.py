"""§5.3: how much the queues in front of the join and the results that wait behind it add to the join's own rows.

Bytes as the kernel has them for rows of an integer and a time: a waiting row, a row with jobs left, a held pair.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.shared.drawing import bars
from papers.shared.simulate import Outcome
from papers.shared.windows import DISTRIBUTIONS, LOADS, run_all
from penstock.kernels.window.side import ENTRY

ROW = 16 + ENTRY
#: Side, number, rows before it, where it goes on, pairs found, arrival; and the two rows of a pair and their distance.
QUEUED, PAIR = 37, 25
RATE, WIDEST = 100, 600


class Share(NamedTuple):
    """Shares of the join's rows, in bytes: queued rows, held pairs; and the same counted."""

    queue: float
    held: float
    queue_rows: float
    held_pairs: float


def share(one: Outcome) -> Share:
    """Of one run, at its most."""
    rows = 2 * RATE * WIDEST
    return Share(one.queue * QUEUED / (rows * ROW), one.held * PAIR / (rows * ROW), one.queue / rows, one.held / rows)


def run(quick: bool, say: Say) -> dict[float, dict[str, dict[str, Share]]]:
    """All distributions and schedulers at three loads."""
    found = run_all(quick, say, loads=LOADS, rate=RATE, hashed=True)
    return {
        busy: {name: {who: share(one) for who, one in by.items()} for name, by in each.items()}
        for busy, each in found.items()
    }


def claims(found: dict[float, dict[str, dict[str, Share]]]) -> list[Claim]:
    """What the paper says, at each load; it does not say its own."""
    made = []
    for busy, each in found.items():
        for who in ("SWF", "Greedy"):
            queue = max(by[who].queue for by in each.values())
            held, pairs = max((by[who].held, by[who].held_pairs) for by in each.values())
            at = f"busy {busy:.0%} of the time"
            made += [
                Claim("memory", f"{who}, {at}: queues are below 10% of the join's rows", "below 10%",
                      f"{queue:.2%}", queue < 0.1),
                Claim("memory", f"{who}, {at}: held results are below 3%", "below 3%",
                      f"{held:.2%} in bytes; {pairs:.1%} as many pairs as rows", held < 0.03),
            ]  # fmt: skip
    return made


def plot(found: dict[float, dict[str, dict[str, Share]]], path: Path) -> None:
    """Held results at each load."""
    panels = {
        f"held results, busy {busy:.0%}": {
            who: [100 * each[name][who].held for name in DISTRIBUTIONS] for who in ("SWF", "Greedy")
        }
        for busy, each in found.items()
    }
    bars(path, panels, list(DISTRIBUTIONS), "% of the join's rows, in bytes", log=False)


MEMORY = Figure("memory", "queues and held results against the rows of the join (§5.3)", run, claims, plot)
