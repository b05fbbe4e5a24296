"""Whether a checkpoint and the outputs of a query tell of the same micro-batches, asked before it starts.

Files beside the checkpoint's own remember what is needed: which channel went where since which batch, under which terms
(memory, version of the table, …) batches were last run, and what the last start began with.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.errors import CheckpointDamaged, CheckpointMismatch, SinkDamaged
from penstock.spark.files import read_whole, write_whole
from penstock.spark.spark_files import RESTORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.plan.base import Plan
    from penstock.spark.checkpoint import Checkpoint
    from penstock.spark.sink import Ledger


def check_agreement(checkpoint: Checkpoint, plan: Plan, ledgers: Mapping[str, Ledger]) -> None:
    """Refuse outputs that are not those of this very state of the checkpoint, and terms under which a batch that is in
    the output already would be run again differently.
    """
    for ledger in ledgers.values():
        _check_not_ahead(checkpoint, ledger)
    sinks = checkpoint.path / "penstock-sinks.json"
    known = _read(sinks)
    for channel, ledger in ledgers.items():
        if channel in known:
            _check_not_behind(checkpoint, ledger, known[channel])
    terms = checkpoint.path / "penstock-terms.json"
    was, now = _read(terms), terms_of(plan)
    if was and was != now:
        _check_nothing_half_done(checkpoint, ledgers, was, now)
    if was != now:
        write_whole(terms, now)
    since = checkpoint.committed() + 1
    added = {channel: {"place": str(ledger.place), "since": since} for channel, ledger in ledgers.items()}
    # A channel that has no place any more gets no batches: if it comes back, it begins anew.
    kept = added | {channel: said for channel, said in known.items() if channel in ledgers}
    if kept != known:
        write_whole(sinks, kept)


def as_begun(checkpoint: Checkpoint, plan: Plan, ledgers: Mapping[str, Ledger]) -> Plan:
    """The plan, with what a micro-batch was begun with whose results are in the output already: it is run again alike.

    Written before anything runs. One of which nothing is in the output is begun anew: what it was begun with may be
    old by now.
    """
    if not plan.begun_with:
        return plan
    path = checkpoint.path / "penstock-begun.json"
    known, now = _read(path), {name: getattr(plan, name) for name in plan.begun_with}
    if known and _is_half_done(checkpoint, ledgers):
        begun: Any = plan
        return replace(begun, **known) if known != now else plan
    if known != now:
        write_whole(path, now)
    return plan


def terms_of(plan: Plan) -> dict[str, str]:
    """What decides which results of a batch come in it and which later, beside what its identity says."""
    return {"version of penstock": penstock.__version__, **dict(_inner("", plan))}


def _inner(before: str, value: Any) -> Iterator[tuple[str, str]]:
    loose = getattr(value, "loose", ())
    for each in fields(value) if is_dataclass(value) and not isinstance(value, type) else ():
        if each.name not in loose:
            yield from _terms(before + each.name, getattr(value, each.name))


def _terms(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, int | float | str | None):
        yield name, str(value)
    elif isinstance(getattr(value, "version", None), str):
        yield f"version of the {name}", value.version
    elif isinstance(getattr(value, "name", None), str) and not is_dataclass(value):  # a policy
        yield name, value.name
    else:
        yield from _inner(f"{name}.", value)


def _check_not_ahead(checkpoint: Checkpoint, ledger: Ledger) -> None:
    last = max(ledger.batches(), default=-1)
    if last > checkpoint.planned():
        raise SinkDamaged(
            f"{ledger.place} has batch {last}, and the checkpoint {checkpoint.path} has got to {checkpoint.planned()}.",
            why="The checkpoint is older than the output, so what it would do next is there already.",
            do="Restore the directory and the checkpoint from the same copy.",
        )


def _check_not_behind(checkpoint: Checkpoint, ledger: Ledger, known: dict[str, Any]) -> None:
    committed = checkpoint.committed()
    if committed >= known["since"] and committed not in ledger.batches():
        raise SinkDamaged(
            f"{ledger.place} does not have batch {committed}, which the checkpoint {checkpoint.path} committed to "
            f"{known['place']}.",
            why="What was written before is missing from it.",
            do="Put the directory back (is it mounted?), or start with a new checkpoint.",
        )


def _check_nothing_half_done(
    checkpoint: Checkpoint, ledgers: Mapping[str, Ledger], was: dict[str, str], now: dict[str, str]
) -> None:
    # The batch will be run again, and its results thrown away because they are there: so they must be the same ones.
    if _is_half_done(checkpoint, ledgers):
        again = checkpoint.planned()
        differing = [name for name in was | now if was.get(name) != now.get(name)]
        raise CheckpointMismatch(
            f"Batch {again} is in the output and not yet in the checkpoint; it must be finished as it was begun.",
            why="; ".join(f"{name} was {was.get(name)} and is now {now.get(name)}" for name in differing) + ".",
            do="Start once more as before and stop it cleanly; then it may change.",
        )


def _is_half_done(checkpoint: Checkpoint, ledgers: Mapping[str, Ledger]) -> bool:
    """Whether some of a micro-batch that is not yet committed is in the output."""
    again = checkpoint.planned()
    return again > checkpoint.committed() and any(again in ledger.batches() for ledger in ledgers.values())


def _read(path: Path) -> dict[str, Any]:
    said = read_whole(path) if path.exists() else {}
    if said is None:
        raise CheckpointDamaged(f"{path} is cut or changed.", do=RESTORE)
    return said
