"""`View`: fresh when asked, within a promised time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.plan.units import parse_duration
from penstock.spark.views.opening import open_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.views.answer import Answer
    from penstock.spark.views.maintain import Refreshed
    from penstock.spark.views.service import Progress


class View:
    """The result of a query over tables that change, kept so that readers always have it fresh within a promised time.

    Guarantees
        After every refresh the view is the query over the tables as far as they were taken in, bag for bag, whatever
        was inserted, updated or deleted, in any order of tables: also after a crash at any moment, which leaves the
        last version. `read()` has all changes that had arrived when it was called.
        What waits is processed before it would take longer than `answer_within` to process all of it.
        Changes that make no sense are counted, and set aside with a reason, in `aside/` of the view's directory.
    State and cost
        The groups of the view, and the rows that entered or left each table, as Parquet files. A refresh of one table
        is one query of Spark over its changes and the other tables, and rewrites the groups; a second one computes
        groups anew that lost their MIN or MAX. Up to a million changes at once are in the driver's memory.

    Parameters
        sql: a SELECT with inner equi-joins, conditions, GROUP BY, COUNT, SUM, AVG, MIN, MAX, HAVING, DISTINCT. It is
            read by us, and never by Spark; what cannot be maintained is refused with the clause and the reason.
        tables: a name of the SQL for each table: a path of Parquet files or a DataFrame if it never changes, or
            `ps.Changing(base, changes=…)`.
        at: the directory of the view. One that is there is gone on with.
        answer_within: how long a reader may wait, "12 seconds".
        planner: "online", which knows only how fast changes came; "simulate", which repeats the best plan for
            `reads_every`; or "naive", which refreshes everything whenever it must anything.
        reads_every: how often readers come, for "simulate"; 30 × `answer_within` by default.
        spark: the session; that of the tables, or the active one, by default.

    Example::

        view = ps.View(
            "SELECT region, SUM(amount) AS total FROM orders JOIN customers USING (customer_id) GROUP BY region",
            tables={
                "orders": ps.Changing("orders/", changes="orders-changes/"),
                "customers": ps.Changing("customers/", changes=stream, key="customer_id"),
            },
            at="views/totals",
            answer_within="12 seconds",
        )
        with view.start():
            answer = view.read()
            answer.frame.show()
            print(answer.fresh, answer.took)
    """

    def __init__(
        self,
        sql: str,
        *,
        tables: Mapping[str, Any],
        at: str | os.PathLike[str],
        answer_within: str | timedelta,
        planner: str = "online",
        reads_every: str | timedelta | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        self._opened = open_view(
            spark, sql, tables, at, answer_within=answer_within, planner=planner, reads_every=reads_every
        )

    def start(self, *, every: str | timedelta | None = None) -> View:
        """Take in streams of changes, and keep the promise from now on, in the background.

        `every` is how often the logs are looked at: a twentieth of the promised time, a second at most, by default.
        """
        self._opened.follow(processingTime="0 seconds")
        self._opened.service.start(parse_duration(every, option="every") / 1e6 if every is not None else None)
        return self

    def take_in(self) -> None:
        """Take in all that streams of changes have now, and no more: for runs that end."""
        self._opened.follow(availableNow=True)

    def read(self, *, max_staleness: str | timedelta | None = None) -> Answer:
        """The view with all changes that have arrived; or at once, if it lacks none older than `max_staleness`."""
        self._opened.check_streams()
        allowed = parse_duration(max_staleness, option="max_staleness") / 1e6 if max_staleness is not None else None
        return self._opened.service.read(allowed)

    def refresh(self, *tables: str) -> list[Refreshed]:
        """Bring all waiting changes into the view now, of some tables or all."""
        from penstock.errors import UnknownTable

        for name in tables:
            if name not in self._opened.plan.changing():
                raise UnknownTable.among(name, self._opened.plan.changing(), "Of the tables that change, tables={…}")
        return self._opened.service.refresh(tables or None)

    def tick(self) -> list[Refreshed]:
        """Do what must be done now to keep the promise, if anything: for programs with a loop of their own."""
        return self._opened.service.tick()

    def explain(self) -> str:
        """What is kept, and how."""
        return self._opened.plan.explain()

    def progress(self) -> Progress:
        """What waits, what refreshes cost, how long readers waited, and whether the promise can be kept."""
        return self._opened.progress()

    def close(self) -> None:
        """Finish the refresh under way, stop, and let others have the directory."""
        self._opened.close()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
