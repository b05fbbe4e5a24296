"""A reader who comes at any moment is answered in time; and no table is refreshed without end for nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from penstock.kernels.views import pace
from penstock.kernels.views.costs import Linear
from penstock.kernels.views.naive import Naive
from penstock.kernels.views.online import Online
from penstock.kernels.views.pace import allowed, due
from penstock.kernels.views.planner import Planner

TICK = 0.25


@dataclass(frozen=True)
class Tables:
    """What refreshes of two tables cost, and how many changes a second they have."""

    costs: tuple[Linear, Linear]
    rates: tuple[float, float]


#: A setup for each table, as a query on Spark has; one table's changes cost ten times the other's.
SETUPS = Tables((Linear(each=0.0004, setup=1.0), Linear(each=0.00004, setup=1.5)), (500.0, 400.0))
#: As in the chapter: look-ups in an index for each change of one table, a scan for all changes of the other.
CHAPTER = Tables((Linear(each=0.24, setup=0.0), Linear(each=0.0, setup=8.0)), (1.0, 1.0))


@dataclass
class Played:
    """A run in simulated time: seconds of work, refreshes of each table, and what readers waited."""

    work: float = 0.0
    refreshes: list[int] = field(default_factory=lambda: [0, 0])
    waits: list[float] = field(default_factory=list)


def play(tables: Tables, planner: Planner, available: float, reads: list[float], until: float) -> Played:
    """As the service does: it looks every quarter of a second; readers wait for a refresh under way, then refresh."""
    out, now, done, waiting = Played(), 0.0, [0.0, 0.0], list(reads)

    def refresh(table: int) -> None:
        nonlocal now
        changes = int((now - done[table]) * tables.rates[table])
        out.work += tables.costs[table](changes)
        out.refreshes[table] += 1
        done[table], now = now, now + tables.costs[table](changes)

    def answer(came: float) -> None:
        for table in (0, 1):
            refresh(table)
        planner.refreshed(now)
        out.waits.append(now - came)

    while now < until:
        planner.arrived(now, [rate * TICK for rate in tables.rates])
        pending = [int((now - d) * rate) for d, rate in zip(done, tables.rates, strict=True)]
        situation = due(pending, tables.rates, tables.costs, available, TICK, now)
        for table in planner.choose(situation) if situation else ():
            refresh(table)
            if waiting and waiting[0] <= now:
                # The reader refreshes everything, also what was to come.
                answer(waiting.pop(0))
                break
        now += TICK
        while waiting and waiting[0] <= now:
            came = waiting.pop(0)
            now = max(now - TICK, came)
            answer(came)
    return out


@pytest.mark.parametrize("planner", [Naive, Online, lambda: Online(marginal=True)])
@pytest.mark.parametrize("seed", range(3))
def test_readers_are_answered_in_time_whenever_they_come(planner, seed):
    reads = np.cumsum(7 + np.random.default_rng(seed).exponential(15.0, 60)).tolist()
    played = play(SETUPS, planner(), 6.5, reads, reads[-1] + 1)
    assert len(played.waits) == 60
    assert max(played.waits) <= 6.5


def test_online_saves_what_there_is_to_save():
    """A third of the work or more where one cost is linear and the other flat; little where each table has a setup."""
    reads = [300.0 * n + 7 for n in range(6)]
    for tables, available, most in ((CHAPTER, 20.0, 0.67), (SETUPS, 6.5, 0.97)):
        online, naive = (play(tables, p, available, reads, 1_800.0) for p in (Online(marginal=True), Naive()))
        assert online.work <= most * naive.work
        assert max(online.waits) <= available


@pytest.mark.parametrize(
    ("promise", "small_rate", "least", "most"), [(4, 10, 0.65, 0.75), (4, 100, 0.8, 0.9), (9, 10, 0.93, 1)]
)
def test_what_there_is_to_save_on_spark(promise, small_rate, least, most):
    """Processor seconds of refreshes at TPC-H scale 1, lines and suppliers; the promise as a multiple of a supplier's.

    Something is to be saved where the promise is short and the flat cost stays flat.
    """
    lines, suppliers = Linear(each=7e-6, setup=0.95), Linear(each=6e-4, setup=1.5)
    spark, available = Tables((lines, suppliers), (0.2 / lines.each, small_rate)), promise * suppliers.setup
    reads = np.cumsum(available + np.random.default_rng(3).exponential(30.0, 30)).tolist()
    online, naive = (play(spark, p, available / 1.1, reads, reads[-1]) for p in (Online(marginal=True), Naive()))
    assert least <= online.work / naive.work <= most
    assert max(online.waits) <= available


def test_a_promise_that_is_too_short_does_not_have_tables_refreshed_without_end(monkeypatch):
    """Both setups alone are more than the promise: what waits may still grow by a quarter before anything is done."""
    played = play(SETUPS, Online(marginal=True), 2.0, [], 600.0)
    monkeypatch.setattr(pace, "LEEWAY", 0.0)
    assert played.work < 0.9 * play(SETUPS, Online(marginal=True), 2.0, [], 600.0).work


def test_a_view_that_nobody_changes_is_left_alone():
    assert due([0, 0], SETUPS.rates, SETUPS.costs, 1.0, 1.0, 0.0) is None
    assert allowed([0, 0], (0.0, 0.0), SETUPS.costs, 1.0) == 1.0
