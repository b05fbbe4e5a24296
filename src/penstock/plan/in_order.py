"""The plan of a `join_table` whose results come in the order of the stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import BadOption, UnknownColumn, UnsupportedType
from penstock.kernels.mesh.front import GAIN
from penstock.kernels.mesh.in_order import SORT_SHARE, OrderedMeshJoin
from penstock.kernels.mesh.runs import sortable
from penstock.plan.join_table import JoinTablePlan
from penstock.tables.keys import hash_range


@dataclass(frozen=True)
class OrderedJoinPlan(JoinTablePlan):
    """Join of a stream with a table; in each slot, the results of a micro-batch come by a column of the stream."""

    order_by: str = field(kw_only=True)

    @classmethod
    def of(cls, plan: JoinTablePlan, *, order_by: str) -> OrderedJoinPlan:
        """The same join in order, or why it cannot be."""
        if not isinstance(order_by, str):
            raise BadOption(f"order_by={order_by!r} is not a column.", do="Name one column of the stream.")
        if order_by not in plan.stream.names:
            raise UnknownColumn.among(order_by, plan.stream.names, "The stream")
        kind = plan.stream.field(order_by).type
        if not sortable(kind):
            raise UnsupportedType(
                f"{order_by!r} is a {kind}, which has no order.", do="Name a column of numbers, texts, dates or times."
            )
        if plan.division == "pages" or plan.pages_per_step is not None:
            other = 'division="pages"' if plan.division == "pages" else "pages_per_step"
            raise BadOption(
                f"order_by and {other} exclude each other.",
                why="All results of a row must be in one slot and in one micro-batch to come in order.",
                do="Leave it out.",
            )
        return cls.extended(plan, order_by=order_by)

    @property
    def least_memory(self) -> int:
        """As the join, and a quarter for sorting."""
        return super().least_memory * SORT_SHARE // (SORT_SHARE - 1) + self.slots

    def make(self, slot: int) -> OrderedMeshJoin:
        """The kernel of a slot."""
        return OrderedMeshJoin(
            self.stream,
            self.table,
            on=self.condition.slot(hash_range(slot, self.slots)),
            order_by=self.order_by,
            how=self.how,
            budget=self.memory // self.slots,
            pages=self.pages(slot),
            front=GAIN,
        )

    def explain(self) -> str:
        """As the join, and its order."""
        return f"{super().explain()}\n  order    by {self.order_by!r}, in each slot and micro-batch"
