"""Faults planted in the maintenance of views must be found by the very check that the other tests rely on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import KernelFault
from penstock.kernels.views.net import Netted
from penstock.spark.views import maintain
from penstock.spark.views.delta import Deltas
from penstock.spark.views.logs import Log
from penstock.spark.views.maintain import Maintainer
from tests.spark.views.test_maintenance import QUICK, follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Plant = Callable[[pytest.MonkeyPatch], None]


def state_bug(patch: pytest.MonkeyPatch) -> None:
    """Changes of a table that occurs twice are joined with its newest version on both sides."""
    honest, version = Deltas.refreshed, Deltas._version

    def refreshed(self, state, tables, table, part):
        self.newest = {table: part}
        return honest(self, state, tables, table, part)

    def newest(self, source, tables, plus=None):
        return version(
            self, source, tables, plus=self.__dict__.get("newest", {}).get(self._query.sources[source].table)
        )

    patch.setattr(Deltas, "refreshed", refreshed)
    patch.setattr(Deltas, "_version", newest)


def extreme_kept(patch: pytest.MonkeyPatch) -> None:
    """A group whose least or greatest value left is not computed anew."""
    patch.setattr(Deltas, "can_lose", lambda self: False)


def taken_twice(patch: pytest.MonkeyPatch) -> None:
    """A version forgets which files of changes it has taken."""
    waiting = Log.waiting
    patch.setattr(Log, "waiting", lambda self, taken: waiting(self, ()))


def deletes_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Rows that leave are not taken away."""
    signed = maintain.signed
    patch.setattr(maintain, "signed", lambda net: signed(Netted(net.removed.slice(0, 0), net.added, net.aside)))


def last_change_dropped(patch: pytest.MonkeyPatch) -> None:
    """One row of each refresh is lost on the way."""
    signed = maintain.signed
    patch.setattr(maintain, "signed", lambda net: signed(net).slice(1))


def aside_uncounted(patch: pytest.MonkeyPatch) -> None:
    """Senseless changes are left out without a word."""
    net = Maintainer._net

    def quiet(self, table, changes, ends):
        found = net(self, table, changes, ends)
        return replace(found, aside=found.aside.slice(0, 0))

    patch.setattr(Maintainer, "_net", quiet)


@pytest.mark.parametrize(
    ("kind", "plant"),
    [
        ("bag over a table twice", state_bug),
        ("groups", extreme_kept),
        ("one row, floating sums", taken_twice),
        pytest.param("groups", deletes_forgotten, marks=pytest.mark.slow),
        pytest.param("groups", last_change_dropped, marks=pytest.mark.slow),
        pytest.param("one row, floating sums", aside_uncounted, marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_planted_fault_is_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, plant: Plant
) -> None:
    plant(monkeypatch)
    # Found by the judge, or by the view itself: a group with less than no rows is refused.
    with pytest.raises((AssertionError, KernelFault)):
        follow(spark, tmp_path, *QUICK[kind], seed=3, rounds=1)
