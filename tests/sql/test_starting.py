"""Many groups of queries are started a few at a time."""

from __future__ import annotations

import pytest

from penstock.sql import standing
from penstock.sql.standing import Standing


class Group:
    """One whose first micro-batch takes some looks."""

    def __init__(self, log, looks):
        self.log, self.looks = log, looks

    def start(self, *places, only):
        self.log.append(self)
        return self

    @property
    def beginning(self):
        return self.looks > 0


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(standing.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(standing, "_AT_ONCE", 2)
    return now


def started(groups, clock, monkeypatch, log):
    """How many groups begin, at most, at the same time."""
    most = [0]

    def sleep(seconds):
        clock[0] += seconds
        most[0] = max(most[0], sum(one.beginning for one in log))
        for one in log:
            one.looks -= 1

    monkeypatch.setattr(standing.time, "sleep", sleep)
    Standing({}, groups, {}).start(results="out", checkpoint="ck")
    return most[0]


def test_no_more_begin_at_once_than_the_machine_can_take(clock, monkeypatch):
    log = []
    assert started([Group(log, looks=30) for _ in range(7)], clock, monkeypatch, log) == 2
    assert len(log) == 7


def test_one_that_takes_long_is_not_waited_for(clock, monkeypatch):
    log = []
    assert started([Group(log, looks=10**6) for _ in range(4)], clock, monkeypatch, log) == 3
    assert len(log) == 4
    assert clock[0] == pytest.approx(2 * standing._BEGINS, abs=1)
