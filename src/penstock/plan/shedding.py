"""The plan of a `join_table` that sheds rows under load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import BadOption, PenstockError
from penstock.kernels.contract import RESULTS, Metric
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.front import GAIN
from penstock.kernels.mesh.results import results_schema
from penstock.kernels.mesh.shed.gate import Overload
from penstock.kernels.mesh.shed.shedder import check_policy
from penstock.kernels.mesh.shedding import REASON, SHED, SheddingJoin, shed_schema, with_counts, with_inclusion
from penstock.plan.join_table import JoinTablePlan
from penstock.plan.units import format_duration, parse_count, parse_duration
from penstock.tables.keys import hash_range


@dataclass(frozen=True)
class SheddingJoinPlan(JoinTablePlan):
    """Join of a stream with a table, of which rows that would wait longer than `max_lag` are shed into an archive."""

    overload: Overload = field(kw_only=True)
    #: The column of the results with the probability that their row was kept, if there is to be one.
    inclusion: str | None = field(kw_only=True, default=None)

    reports: ClassVar[tuple[Metric, ...]] = SheddingJoin.reports
    #: A second query over the same stream would shed other rows: both channels are written by one.
    together: ClassVar[tuple[str, ...]] = (SHED,)

    @classmethod
    def of(
        cls, plan: JoinTablePlan, *, shed: str, max_lag: str | None, seed: int = 0, inclusion: str | None = None
    ) -> SheddingJoinPlan:
        """The same join with shedding, or why it cannot be."""
        policy = check_policy(shed).name
        if max_lag is None:
            raise BadOption(
                f"shed={shed!r} needs to know when to shed.",
                do='Give max_lag="10 seconds": how long a micro-batch may take before rows are shed.',
            )
        lag = parse_duration(max_lag, option="max_lag") / 1e6
        for fault in (*_faults(plan, lag), *_inclusion_faults(plan, policy, inclusion)):
            raise fault
        rate = None
        if plan.outlook is not None:
            seconds = plan.outlook.pass_seconds
            if lag < seconds:
                raise BadOption(
                    f"max_lag={max_lag!r} cannot be kept: one pass over {plan.table.path} takes "
                    f"{format_duration(round(seconds * 1e6))}.",
                    do=f'Give at least max_lag="{format_duration(round(seconds * 1.1e6))}", or less memory: fewer rows '
                    "share a pass then, and none waits as long.",
                )
            waiting = plan.outlook.choice.window * (plan.row_bytes + plan.condition.row_bytes)
            rate = waiting / seconds
        seed = parse_count(seed, option="seed", least=-(1 << 63), most=(1 << 63) - 1)
        return cls.extended(plan, overload=Overload(policy, lag, seed, rate), inclusion=inclusion)

    @property
    def least_memory(self) -> int:
        """As the exact join, and room to count partners."""
        exact = super().least_memory // self.slots
        return self.slots * with_counts(self.overload, exact)

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """Those of the join, and the rows that were shed."""
        stream = with_inclusion(self.stream, self.inclusion)
        results = results_schema(stream, self.table, self.condition, self.how)
        return {**super().channels, RESULTS: results, SHED: shed_schema(self.stream)}

    def make(self, slot: int) -> SheddingJoin:
        """The kernel of a slot."""
        condition = self.condition.slot(hash_range(slot, self.slots))
        assert isinstance(condition, Equal), "checked when the plan was made"
        return SheddingJoin(
            self.stream,
            self.table,
            on=condition,
            how=self.how,
            budget=self.memory // self.slots,
            overload=self.overload,
            pages=self.pages(slot),
            pages_per_step=self.pages_per_step,
            front=GAIN,
            inclusion=self.inclusion,
        )

    def identity(self) -> Mapping[str, str]:
        """As the exact join, and by which policy rows are shed; when, may change at a restart."""
        asked = {"inclusion": self.inclusion} if self.inclusion is not None else {}
        return {**super().identity(), "shed": self.overload.policy, **asked}

    def explain(self) -> str:
        """As the exact join, and when it sheds what."""
        kind = check_policy(self.overload.policy)
        lag = format_duration(round(self.overload.max_lag * 1e6))
        return (
            f"{super().explain()}\n  shed     {kind.name} ({kind.goal}), when a micro-batch would take more than {lag}"
        )

    def outcome(self, totals: Mapping[str, float]) -> dict[str, float]:
        """The part of all results that is there without the archive."""
        live, taken_in = totals.get("rows_out", 0.0), totals.get("rows_in", 0.0) - totals.get("rows_shed", 0.0)
        shed = totals.get("results_shed", 0.0)
        if not self.overload.counts_matches and taken_in:
            shed *= live / taken_in  # each as many as the others
        return {"estimated_recall": live / (live + shed) if live + shed else 1.0}


def _inclusion_faults(plan: JoinTablePlan, policy: str, name: Any) -> list[PenstockError]:
    faults: list[PenstockError] = []
    if name is None:
        return faults
    if check_policy(policy).goal != "random-sample":
        faults.append(
            BadOption(
                f'shed="{policy}" keeps no sample, so there is no probability for inclusion={name!r}.',
                why="It keeps the rows that it prefers, and the others never.",
                do='Give shed="samplew" or "cluster", or leave inclusion out.',
            )
        )
    if not isinstance(name, str) or not name:
        faults.append(BadOption(f"inclusion={name!r} is not a name of a column.", do='Give one: inclusion="chance".'))
    elif name.lower() in (each.lower() for each in plan.channels[RESULTS].names):
        faults.append(BadOption(f"The results have a column {name!r} already.", do="Give inclusion another name."))
    return faults


def _faults(plan: JoinTablePlan, lag: float) -> list[PenstockError]:
    faults: list[PenstockError] = []
    if lag <= 0:
        faults.append(
            BadOption("max_lag must be more than zero.", do='Give a time as people write it: max_lag="10 seconds".')
        )
    if not isinstance(plan.condition, Equal):
        faults.append(
            BadOption(
                f"A join on {plan.condition.describe(plan.table.key)} cannot shed rows.",
                why="What is shed is joined later by penstock catchup, which joins on equal keys.",
                do="Leave shed out, or join on the key.",
            )
        )
    if plan.division == "pages":
        faults.append(
            BadOption(
                'A join that sheds cannot be divided by "pages".',
                why="Every slot has every row then, and each would shed others, by how long it took itself.",
                do='Leave division out, or give "rows" or, with a prepared table, "key".',
            )
        )
    if REASON in plan.stream.names:
        faults.append(
            BadOption(f"The stream has a column {REASON!r}, as the archive has.", do="Rename it in the stream first.")
        )
    return faults
