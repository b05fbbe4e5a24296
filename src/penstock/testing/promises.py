"""The promises of the kernel contract that a host can check at every step, each broken one a `KernelFault`."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.errors import KernelFault
from penstock.kernels.contract import Changes, Emission, Kernel

_COMBINES = ("sum", "max", "min")


def name_of(kernel: Kernel) -> str:
    """How an error speaks of a kernel."""
    return type(kernel).__name__


def check_declarations(kernel: Kernel) -> None:
    """Channels have schemas; metrics have names of their own and a way to be combined."""
    if not kernel.channels or not all(isinstance(schema, pa.Schema) for schema in kernel.channels.values()):
        raise KernelFault(
            f"{name_of(kernel)} declares no channel, or one without a schema.",
            do="Set `channels` to a mapping from each channel's name to its pyarrow schema.",
        )
    names = [metric.name for metric in kernel.reports]
    wrong = [metric.name for metric in kernel.reports if metric.combine not in _COMBINES]
    if wrong or len(set(names)) < len(names):
        raise KernelFault(
            f"{name_of(kernel)} declares metrics that cannot be told apart or combined: {', '.join(wrong or names)}.",
            do=f"Give each metric its own name and one of {', '.join(_COMBINES)} as `combine`.",
        )


def check_emission(kernel: Kernel, emission: Emission) -> None:
    """Rows leave on a declared channel, with exactly its schema, and are sound."""
    schema = kernel.channels.get(emission.channel)
    if schema is None:
        raise KernelFault(
            f"{name_of(kernel)} emitted on the channel {emission.channel!r}, which it does not declare.",
            why=f"It declares: {', '.join(kernel.channels)}.",
            do="Add the channel and its schema to `channels`.",
        )
    if not isinstance(emission.rows, pa.RecordBatch):
        raise KernelFault(
            f"{name_of(kernel)} emitted a {type(emission.rows).__name__} on {emission.channel!r}.",
            do="Emit record batches.",
        )
    if not emission.rows.schema.equals(schema):
        raise KernelFault(
            f"{name_of(kernel)} emitted rows on {emission.channel!r} that do not have its declared schema.",
            why=f"Declared: {_on_one_line(schema)}. Emitted: {_on_one_line(emission.rows.schema)}.",
            do="Emit exactly the declared columns, types and nullability.",
        )
    try:
        emission.rows.validate(full=True)
    except pa.ArrowInvalid as error:
        raise KernelFault(
            f"{name_of(kernel)} emitted rows on {emission.channel!r} that are not sound.", why=str(error)
        ) from error


def check_memory(kernel: Kernel, memory: int, budget: int | None) -> None:
    """What the kernel says it holds is a number of bytes within its budget."""
    if memory < 0:
        raise KernelFault(f"{name_of(kernel)} says that it holds {memory} bytes.")
    if budget is not None and memory > budget:
        raise KernelFault(
            f"{name_of(kernel)} held {memory:,} bytes, {memory - budget:,} more than its budget of {budget:,}.",
            do="Let go of something before taking hold of more.",
        )


def check_head(kernel: Kernel, head: bytes, limit: int) -> None:
    """The head is bytes, and few of them: it is written at every step."""
    if not isinstance(head, bytes):
        raise KernelFault(f"The head of {name_of(kernel)} is a {type(head).__name__}.", do="Return bytes from head().")
    if len(head) > limit:
        raise KernelFault(
            f"The head of {name_of(kernel)} has {len(head):,} bytes, more than {limit:,}.",
            why="It is written after every step, however little has changed.",
            do="Keep what grows with the state in chunks.",
        )


def check_changes(kernel: Kernel, changes: Changes, live: AbstractSet[str]) -> None:
    """A chunk is written once and dropped once."""
    for name, blob in changes.new.items():
        if not isinstance(blob, pa.Buffer):
            raise KernelFault(f"The chunk {name!r} of {name_of(kernel)} is a {type(blob).__name__}, not a buffer.")
    rewritten = sorted(live & changes.new.keys())
    if rewritten:
        raise KernelFault(
            f"{name_of(kernel)} wrote the chunk {rewritten[0]!r} again while it is live.",
            why="A chunk never changes: hosts write it once, cache it and read it from anywhere.",
            do="Write a new chunk under a new name and drop the old one.",
        )
    dropped = list(changes.gone)
    unknown = sorted(set(dropped) - live)
    if unknown or len(set(dropped)) < len(dropped):
        raise KernelFault(
            f"{name_of(kernel)} dropped a chunk that is not live: {(unknown or dropped)[0]!r}.",
            do="Drop each chunk once, and only those that an earlier changes() has named as new.",
        )


def check_metrics(kernel: Kernel) -> None:
    """The metrics are exactly those declared, and any of the families declared; all numbers."""
    metrics: Mapping[str, object] = kernel.metrics()
    declared = {metric.name for metric in kernel.reports if not metric.is_family}
    families = tuple(metric.name for metric in kernel.reports if metric.is_family)
    if {name for name in metrics if name in declared or not name.startswith(families)} != declared:
        raise KernelFault(
            f"The metrics of {name_of(kernel)} are not the declared ones.",
            why=f"Declared: {', '.join(sorted(declared))}. Reported: {', '.join(sorted(metrics))}.",
            do="Return exactly the names in `reports` from metrics().",
        )
    wrong = [name for name, value in metrics.items() if not isinstance(value, (int, float, np.number))]
    if wrong:
        raise KernelFault(f"The metric {wrong[0]!r} of {name_of(kernel)} is not a number: {metrics[wrong[0]]!r}.")


@dataclass
class LentChunks:
    """Chunks as a live kernel handed them out, to see that it does not change them behind the host's back."""

    _lent: dict[str, tuple[pa.Buffer, bytes]] = field(default_factory=dict)

    def take_in(self, changes: Changes) -> None:
        """Remember the new ones; look at the gone ones for the last time."""
        gone = {name: self._lent.pop(name) for name in changes.gone if name in self._lent}
        LentChunks(gone).check_unchanged()
        self._lent |= {name: (blob, blob.to_pybytes()) for name, blob in changes.new.items()}

    def check_unchanged(self) -> None:
        """Every chunk still is as it was when it was handed out."""
        for name, (blob, was) in self._lent.items():
            if blob.to_pybytes() != was:
                raise KernelFault(
                    f"The chunk {name!r} changed after it was handed out.",
                    why="The host may not have written it yet, or not only once.",
                    do="Hand out a buffer of its own, or never write into it again.",
                )


def _on_one_line(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema)
