"""Spark wraps what a worker raised in thousands of characters; this finds it again."""

from __future__ import annotations

import re

from penstock import errors
from penstock.errors import PenstockError, StateDamaged
from penstock.spark.gateway import log_file

_OURS = re.compile(r"penstock\.errors\.(\w+): (.*?)(?=\n\S|\n\n|\n\tat |\Z)", re.DOTALL)

#: What follows a trace, Python's or the JVM's: the fault that it is of.
_FAULT = re.compile(r"^[ \t].*\n(?:Caused by: )?([A-Za-z_][\w.$]*: .+)", re.MULTILINE)


def cause(failure: BaseException) -> BaseException:
    """The Penstock error inside what Spark raised, or `failure` itself when there is none, with a note that says in one
    line what the pages of it are about: notes come last where an error is printed.

    >>> from penstock.errors import TableChanged
    >>> type(
    ...     cause(
    ...         RuntimeError(
    ...             "[X] wrapped\\npenstock.errors.TableChanged: a.parquet is gone.\\n  Put it back.\\n\\tat org.x"
    ...         )
    ...     )
    ... )
    <class 'penstock.errors.TableChanged'>
    """
    found = _OURS.findall(str(failure))
    if not found and "CANNOT_LOAD_STATE_STORE" in str(failure):
        return _state_lost(failure)
    if isinstance(failure, PenstockError) or not found:
        if not isinstance(failure, PenstockError):
            _annotate(failure)
        return failure
    name, text = found[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
        return failure
    what, *rest = (line.strip() for line in text.strip().splitlines())
    ours = kind(what, why="\n  ".join(rest))
    ours.__cause__ = failure
    return ours


def _annotate(failure: BaseException) -> None:
    faults = _FAULT.findall(str(failure).partition("=== Streaming Query ===")[0])
    if faults and not getattr(failure, "__notes__", None):
        failure.add_note(f"In short: {faults[-1]}")
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
