"""What the cost model expects of a `join_table`, from what `penstock tune` measured of its table on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import MemoryTooSmall
from penstock.kernels.mesh.tune_cache import known
from penstock.models.mesh_cost import Coefficients
from penstock.models.mesh_online import Advice, OnlineTuner
from penstock.models.mesh_tuner import Choice, breakdown, default_buffer, fastest, with_buffer
from penstock.plan.units import format_duration, format_size
from penstock.tables.base import Table

_WORK = {
    "read": "reading keys", "probe": "probing", "open": "getting at rows of pages that match", "result": "results",
    "append": "indexing the window", "fetch": "taking rows in", "expire": "letting rows go", "batch": "micro-batches",
}  # fmt: skip
#: Pages of another size are worth a word if they would be this much faster.
_WORTH = 0.05


@dataclass(frozen=True)
class Outlook:
    """One slot's part of a join as the cost model sees it. `combined` slots add up to the rate of all."""

    c: Coefficients
    choice: Choice
    #: The default buffer of Naeem et al.: what the second paper would read at once, whatever the budget.
    default: Choice
    combined: int

    @property
    def rate(self) -> float:
        """Rows a second, of all slots, when the window is always full."""
        return self.choice.rate * self.combined

    @property
    def pass_seconds(self) -> float:
        """Seconds of one pass over the table with a full window."""
        return float(self.choice.loop.total * self.choice.k)

    def step_seconds(self, rows: float) -> float:
        """Seconds that kernels take for a micro-batch of this many rows, of all slots."""
        return self.c.batch_seconds(self.choice.w, self.choice.b, rows / self.combined)

    def advice(self, arrival_rate: float, budget: float) -> Advice:
        """What rows that arrive at this rate, over all slots, need: the least memory, or that some must be shed."""
        tuner = OnlineTuner(self.c, budget)
        tuner.observe(arrival_rate / self.combined, 1.0)
        return tuner.advise()

    def lines(self) -> list[str]:
        """For people."""
        share = breakdown(self.choice.loop)
        most = max(share, key=lambda name: share[name])
        once = format_duration(round(self.pass_seconds * 1e6))
        page, usual = (format_size(round(b * self.c.v_P)) for b in (self.choice.b, self.default.b))
        lines = [
            f"  expect   {self.rate:,.0f} rows/s in kernels, where the window is always full",
            f"           a pass takes {once}, most of it ({share[most]:.0%}) for {_WORK[most]}",
            f"  chosen   {self.choice.window:,} rows wait in a slot; {page} of the table are read at once, a page",
        ]
        gain = self.default.rate / self.choice.rate - 1
        if gain > _WORTH:
            lines.append(f"           pages of {usual}, the default buffer, would be {gain:.0%} faster: penstock tune")
        return lines


def outlook(table: Table, row_bytes: int, budget: float, slots: int, division: str) -> Outlook | None:
    """What is expected; None where the table was never measured on this machine, or the model does not fit in."""
    c = known(table, row_bytes) if table.rows else None
    if c is None:
        return None
    assert division in ("key", "rows", "pages")
    part = c.divided(slots, division)  # type: ignore[arg-type]
    own = min(max(round(table.rows * c.v_R / len(table.pages) / c.v_P), 1), part.N_R)
    try:
        return Outlook(
            part,
            fastest(part, budget, among=own),
            with_buffer(part, budget, default_buffer(part)),
            1 if division == "pages" else slots,
        )
    except MemoryTooSmall:
        return None
