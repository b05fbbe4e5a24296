"""Spark wraps what a worker raised in thousands of characters; this finds it again."""

from __future__ import annotations

import re

from penstock import errors
from penstock.errors import CheckpointMismatch, PenstockError, StateDamaged
from penstock.spark.gateway import log_file

_OURS = re.compile(r"penstock\.errors\.(\w+): (.*?)(?=\n\S|\n\n|\n\tat |\Z)", re.DOTALL)

#: What Spark appends to a message, a code for each layer of wrapping.
_CODES = re.compile(r"(\s+SQLSTATE: \w{5})+\s*\Z")

#: What follows a trace, Python's or the JVM's: the fault that it is of.
_FAULT = re.compile(
    r"^[ \t].*\n(?:Caused by: |py4j\.protocol\.Py4JJavaError: .*\n: )?([A-Za-z_][\w.$]*: .+)", re.MULTILINE
)

#: How the note begins that says what a failure is about.
_IN_SHORT = "In short: "

#: What Spark says of a file that it cannot read; the faults below it do not name the file.
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE[.\w]*\] (.+)")

#: What Spark says of a checkpoint of a query over more or fewer streams.
_SOURCES = re.compile(r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\]")


def cause(failure: BaseException) -> BaseException:
    """The Penstock error inside what Spark raised, or `failure` itself when there is none, with a note that says in one
    line what the pages of it are about: notes come last where an error is printed.

    >>> said = "[X] wrapped\\npenstock.errors.TableChanged: a.parquet is gone.\\n  Put it back. SQLSTATE: 39000"
    >>> cause(RuntimeError(said + "\\n\\tat org.x")).do
    'Put it back.'
    """
    found = _OURS.findall(str(failure))
    if not found and "CANNOT_LOAD_STATE_STORE" in str(failure):
        return _state_lost(failure)
    if not found and (sources := _SOURCES.search(str(failure))):
        return _other_sources(failure, *sources.groups())
    if isinstance(failure, PenstockError) or not found:
        if not isinstance(failure, PenstockError):
            _annotate(failure)
        return failure
    name, text = found[-1]
    text = _CODES.sub("", text)
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
        return failure
    what, *rest = (line.strip() for line in text.strip().splitlines())
    # What to do comes last in every error.
    ours = kind(what, why="\n  ".join(rest[:-1]), do="".join(rest[-1:]))
    ours.__cause__ = failure
    return ours


def in_short(fault: BaseException) -> str:
    """One line of what `cause` found.

    >>> in_short(cause(RuntimeError("penstock.errors.TableChanged: a.parquet is gone.\\n  Put it back.")))
    'a.parquet is gone.'
    """
    notes = [note for note in getattr(fault, "__notes__", []) if note.startswith(_IN_SHORT)]
    said = notes[0].removeprefix(_IN_SHORT) if notes else str(fault)
    return said.strip().partition("\n")[0]


def _annotate(failure: BaseException) -> None:
    if getattr(failure, "__notes__", None):
        return  # it was asked for the cause of this one before
    said = str(failure).partition("=== Streaming Query ===")[0]
    faults = [*_UNREADABLE.findall(said)[-1:], *_FAULT.findall(said)[-1:]]
    if faults:
        failure.add_note(f"{_IN_SHORT}{' '.join(_CODES.sub('', fault) for fault in faults)}")
        failure.add_note(
            "Nothing of this micro-batch was committed: mend it, and start again with the same checkpoint."
        )
    log = log_file()
    if log is not None:
        failure.add_note(f"Spark's own log is {log}")


def _state_lost(failure: BaseException) -> StateDamaged:
    file = re.search(r"(?:file:)?(/[^\s]*/state/[^\s]+)", str(failure))
    ours = StateDamaged(
        f"{file[1]} cannot be read back." if file else "The state files of the checkpoint cannot be read back.",
        why="Spark could not load the state that the query left; going on would lose or repeat results.",
        do="Restore the checkpoint directory from a copy, or start with a new one.",
    )
    ours.__cause__ = failure
    return ours


def _other_sources(failure: BaseException, before: str, now: str) -> CheckpointMismatch:
    ours = CheckpointMismatch(
        f"This query reads from {now} streams, and the one that made the checkpoint from {before}.",
        why="The checkpoint says of each how far it was read.",
        do="Start it with the same streams again, or give it a new checkpoint directory.",
    )
    ours.__cause__ = failure
    return ours
