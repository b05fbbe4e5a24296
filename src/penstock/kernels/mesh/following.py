"""A mesh join with a table that changes: each row meets one version, and may wait for one that has its partner."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import StateDamaged
from penstock.kernels.contract import Batch, Changes, Emission, Metric
from penstock.kernels.fingerprint import fingerprints
from penstock.kernels.measure import measure, runs, widths
from penstock.kernels.mesh.budget import SLICE_BYTES
from penstock.kernels.mesh.condition import Condition
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.kernels.mesh.results import How
from penstock.kernels.mesh.window import pack_rows, unpack_rows
from penstock.tables.base import Page, Table
from penstock.tables.versions import check_same_columns

if TYPE_CHECKING:
    from penstock.tables.keys import Mask

#: Of the budget, for rows that wait for a later version.
_PARKED_SHARE = 4


class Source(Protocol):
    """Where versions of a table come from, as `penstock.tables.versions.Versions` does."""

    @property
    def kept(self) -> bool:
        """Whether older versions can be read."""

    def newest(self) -> str:
        """The newest version."""

    def load(self, version: str) -> Table:
        """The table as of a version."""


class Group(NamedTuple):
    """Rows that were parked by one step, and how many more steps they may wait."""

    name: str
    rows: pa.RecordBatch
    patience: int


class _Lot:
    """Takes rows up to a number of bytes; beyond, those with the greatest fingerprints go, whatever their order.

    Once a row had to go, no row with a greater fingerprint stays, however small it is: had it come first, it would have
    gone with the other.

    State and cost
        The rows, up to an eighth more of them until `settle`, so that few passes over all of them choose; a batch is
        cut by itself.
    """

    def __init__(self, room: float) -> None:
        self.room = room
        self.batches: list[pa.RecordBatch] = []
        self.nbytes = 0.0
        self._line = np.uint64((1 << 64) - 1)

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows in; gives those that have to go."""
        stays = fingerprints(rows) <= self._line
        if not stays.all():
            yield rows.filter(pa.array(~stays))
            rows = rows.filter(pa.array(stays))
        if rows.num_rows:
            self.batches.append(rows)
            self.nbytes += measure(rows)
        if self.nbytes > self.room * 9 / 8:
            yield from self.settle()

    def settle(self) -> Iterator[pa.RecordBatch]:
        """Hold no more than there is room for; gives those that have to go."""
        if self.nbytes <= self.room:
            return
        ranks = np.concatenate([fingerprints(rows) for rows in self.batches])
        sizes = np.concatenate([widths(rows, np.arange(rows.num_rows)) for rows in self.batches])
        order = np.argsort(ranks, kind="stable")
        fits = int(np.searchsorted(np.cumsum(sizes[order]), self.room, side="right"))
        self._line = min(self._line, ranks[order[fits]])
        stays = np.zeros(len(ranks), np.bool_)
        stays[order[:fits]] = True
        del ranks, sizes, order
        begin = 0
        for place, rows in enumerate(self.batches):
            here = stays[begin : begin + rows.num_rows]
            begin += rows.num_rows
            if not here.all():
                self.batches[place] = rows.filter(pa.array(here))
                yield rows.filter(pa.array(~here))
        self.batches = [rows for rows in self.batches if rows.num_rows]
        self.nbytes = sum(map(measure, self.batches))


class FollowingJoin(MeshJoin):
    """MESHJOIN with the version of the table that is the newest when a step begins; no row waits longer than its step.

    With `patience` a row without partner is parked for so many further steps, and tried again whenever there is a new
    version: the first version that has a partner is the one it is joined with. When its patience ends it is what `how`
    makes of a row without partner.

    Guarantees
        No row meets two versions: `test_every_row_is_joined_with_one_version`. Where the source keeps versions, which
        one a step uses was stored by the step before, so a step that is run again uses the same; the first step uses
        `first`, if that is given: `test_the_first_step_uses_the_version_it_is_told`.
        Equal to the exact join while the table does not change: `test_conformance`.
    State and cost
        As `MeshJoin`; parked rows take up to a quarter of the budget, one chunk for each step that parked some, and
        when there are more, some give up early and are counted. A new version costs a pass for each of these chunks.
    """

    reports: tuple[Metric, ...] = (
        *MeshJoin.reports,
        Metric("rows_parked", help="rows that wait for a version of the table with their partner, after the step"),
        Metric("rows_gave_up", help="rows whose patience ended, or for which there was no room to wait"),
        Metric("versions", help="times that a slot took up a new version of the table"),
    )

    def __init__(
        self,
        schema: pa.Schema,
        table: Table,
        *,
        on: Condition,
        budget: int,
        source: Source,
        choose: Callable[[Table], Sequence[Page]],
        how: How = "inner",
        patience: int = 0,
        first: str = "",
        front: float | None = None,
    ) -> None:
        super().__init__(
            schema, table, on=on, budget=budget, how=how, pages=choose(table), front=front, tells_lonely=patience > 0
        )
        self._planned = table
        self._source = source
        self._choose = choose
        self._patience = patience
        self._for_parked = budget // _PARKED_SHARE if patience else 0
        self._use(table, choose(table), self._for_parked)
        self._groups: list[Group] = []
        self._lot = _Lot(0.0)
        self._steps = 0
        #: The version that the last step used, the one that the next is to use if that is known, and the one at hand.
        self._using, self._next, self._loaded = "", first, ""
        self._parked_names: set[str] = set()

    # -- the contract ------------------------------------------------------------------------------------------

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Take up a new version if there is one, try the rows again that wait for it, and join what came."""
        self._begin()
        self._steps += 1
        changed = self._take_up()
        yield from self._again(changed)
        yield from self._park(self._take_in(self._counted(rows for _, rows in batch)), self._patience)
        self._next = self._source.newest() if self._source.kept else ""

    def _take_up(self) -> bool:
        """Use the version that this step is to use; whether it is a new one."""
        wanted = self._next or self._source.newest()
        changed = bool(self._using) and wanted != self._using
        if changed and self._front.cache:
            self._front.clear()  # also where the new files look like the old ones
        if wanted != self._loaded:
            table = self._source.load(wanted)
            check_same_columns(self._planned, table)
            self._use(table, self._choose(table), self._for_parked)
            self._loaded = wanted
        self._using = wanted
        self._counts["versions"] += changed
        return changed

    def _again(self, changed: bool) -> Iterator[Emission]:
        """A step's worth of patience is gone; with a new version the rows that wait have another chance."""
        groups, self._groups, held = self._groups, [], 0.0
        for group in groups:
            held += measure(group.rows)
            if held > self._for_parked / 2:  # there was more memory before a restart
                yield from self._give_up(group.rows)
            elif changed:
                yield from self._park(self._take_in([group.rows]), group.patience - 1)
            elif group.patience > 1:
                self._groups.append(group._replace(patience=group.patience - 1))
            else:
                yield from self._give_up(group.rows)

    def _park(self, joining: Iterator[Emission], patience: int) -> Iterator[Emission]:
        """Run a join whose rows without partner are parked."""
        # Half of what is set aside: while a lot is cut to size there are two of it.
        self._lot = _Lot(self._for_parked / 2 - self._parked_bytes() if patience > 0 else 0.0)
        yield from joining
        for gone in self._lot.settle():
            yield from self._give_up(gone)
        if self._lot.batches:
            rows = pa.concat_batches(self._lot.batches)
            # By its place: where patience was shortened since, two groups of a step may have as much of it left.
            self._groups.append(Group(f"w{self._steps:08d}-{len(self._groups)}", rows, patience))
        self._lot = _Lot(0.0)

    def _unmatched(self, rows: pa.RecordBatch, which: Mask) -> Iterator[Emission]:
        if not self._patience:
            yield from super()._unmatched(rows, which)
            return
        numbers = np.flatnonzero(which)
        for begin, end in runs(widths(rows, numbers), SLICE_BYTES):
            # Some at a time: of a window that nothing was found for there is no room for another copy.
            for gone in self._lot.add(rows.take(pa.array(numbers[begin:end]))):
                yield from self._give_up(gone)

    def _give_up(self, rows: pa.RecordBatch) -> Iterator[Emission]:
        self._counts["rows_gave_up"] += rows.num_rows
        yield from self._alone(rows, np.ones(rows.num_rows, np.bool_))

    def _due(self, admitted: float) -> int:
        return len(self._pages)

    def _parked_bytes(self) -> float:
        return sum(measure(group.rows) for group in self._groups)

    def memory(self) -> int:
        """As `MeshJoin`, and the parked rows."""
        return super().memory() + (self._for_parked if self._groups else 0)

    # -- state -------------------------------------------------------------------------------------------------

    def changes(self) -> Changes:
        """Groups that are new and gone; nothing else outlives a step."""
        new, gone = super().changes()
        alive = {group.name: group for group in self._groups}
        fresh = {name: pack_rows([group.rows]) for name, group in alive.items() if name not in self._parked_names}
        left = tuple(sorted(self._parked_names - alive.keys()))
        self._parked_names = set(alive)
        return Changes({**new, **fresh}, (*gone, *left))

    def head(self) -> bytes:
        """Which version is in use, which comes next, and who waits."""
        groups = [[group.name, group.rows.num_rows, group.patience] for group in self._groups]
        said = {"using": self._using, "next": self._next, "steps": self._steps, "groups": groups}
        return json.dumps(said | {"front": self._front.head()}).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Go on with the same version and the same rows waiting."""
        said: dict[str, Any] = json.loads(head)
        self._steps, self._using, self._next = said["steps"], said["using"], said["next"]
        self._groups = []
        for name, count, patience in said["groups"]:
            rows = pa.concat_batches(unpack_rows(chunks[name]))
            if rows.num_rows != count:
                raise StateDamaged(
                    f"Parked rows {name} are {rows.num_rows} where the head says {count}.",
                    do="Restore the checkpoint from a copy, or start with a new one.",
                )
            self._groups.append(Group(name, rows, patience))
            self._parked_names.add(name)
        self._restore_front(said.get("front"), chunks)

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step."""
        return {**super().metrics(), "rows_parked": sum(group.rows.num_rows for group in self._groups)}
