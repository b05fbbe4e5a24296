"""Every error Penstock raises, each saying what happened, why, and what to do.

::

    PenstockError
    ├── PlanError              found before anything runs
    │   ├── BadOption          an option's value is not one of the allowed ones
    │   ├── UnknownColumn      a column that is not there, with the nearest names
    │   ├── KeyTypeMismatch    the two sides of a join have keys of different kinds
    │   ├── UnsupportedType    a column type that cannot travel
    │   ├── UnreadableTable    a path that holds no table, or one that cannot be read
    │   ├── UnknownTable       a table that is not there, with the nearest names
    │   ├── NotMaintainable    a view's SQL has a clause that cannot be kept up to date
    │   ├── AnswerTimeTooShort a view promises less time than its least refresh takes
    │   ├── BadQuery           a standing query that cannot be: no id, an empty range, another type
    │   │   └── BadSQL         the text of a query has a fault, with the place where it is
    │   ├── BadPipeline        a pipeline's file has faults; each is told with its line
    │   ├── UnknownQuery       a query that is not registered, with the nearest names
    │   ├── NameTaken          a query of this name is registered
    │   ├── LimitReached       the server holds as much as it may
    │   ├── MemoryTooSmall     a budget below the smallest that would do
    │   ├── SessionNotReady    a foreign Spark session without the needed settings
    │   └── CheckpointMismatch a checkpoint made by a different plan or version
    ├── CheckpointInUse        another process runs on this checkpoint
    ├── ArchiveInUse           another catch-up runs on this archive
    ├── ViewInUse              another process maintains this view
    ├── ViewDamaged            a file of a view is missing, cut or changed
    ├── CheckpointDamaged      a file of the checkpoint is missing, cut or changed
    ├── StateDamaged           state read back is not the state that was written
    ├── TableChanged           a file of the table vanished or changed during a run
    ├── SourceLost             unread input was deleted before it was read
    ├── ServerInUse            another server has this folder
    ├── ServerDamaged          a file of a server's folder is cut or changed, or another version's
    ├── ResultsGone            results that were asked for are no longer kept
    ├── SinkDamaged            a committed output file or ledger entry is missing or changed
    ├── OverBudget             rows that must be kept no longer fit the memory they were given
    ├── BadFrame               what came over a broker is no message of subscriptions
    ├── BrokerUnreachable      no broker answers, or none can be started
    ├── PredicateFailed        a function that decides a join raised an error
    └── KernelFault            a kernel broke its own promise (a bug; please report it)
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable


class PenstockError(Exception):
    """What happened in one line, then why it matters and what to do."""

    def __init__(self, what: str, *, why: str = "", do: str = "") -> None:
        super().__init__("\n  ".join(part for part in (what, why, do) if part))
        self.what = what
        self.why = why
        self.do = do

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.why, self.do))


def _rebuild(kind: type[PenstockError], what: str, why: str, do: str) -> PenstockError:
    return kind(what, why=why, do=do)


class PlanError(PenstockError):
    """Found while the plan is made, before anything runs."""


class BadOption(PlanError):
    """An option's value is not one of the allowed ones."""


class UnknownColumn(PlanError):
    """A column that is not there."""

    @classmethod
    def among(cls, name: str, columns: Iterable[str], where: str) -> UnknownColumn:
        """The error for `name` missing from `columns`, with the nearest names."""
        have = list(columns)
        # Spark does not tell capitals from small letters unless it is asked to; here a name is what it says.
        near = [other for other in have if other.lower() == str(name).lower()]  # a file may say a number
        near = near or difflib.get_close_matches(str(name), have, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        return cls(
            f"{where} has no column {name!r}.",
            why=f"Its columns are: {', '.join(have)}.",
            do=hint,
        )


class KeyTypeMismatch(PlanError):
    """The two sides of a join have keys of different kinds."""


class UnsupportedType(PlanError):
    """A column type that cannot travel."""


class UnreadableTable(PlanError):
    """A path that holds no table, or one that cannot be read."""


class UnknownTable(PlanError):
    """A table that is not there."""

    @classmethod
    def among(cls, name: str, tables: Iterable[str], where: str) -> UnknownTable:
        """The error for `name` missing from `tables`, with the nearest names."""
        have = list(tables)
        near = difflib.get_close_matches(name, have, n=3, cutoff=0.5)
        return cls(
            f"{where} names no table {name!r}.",
            why=f"The tables are: {', '.join(have)}.",
            do=f"Did you mean {' or '.join(repr(n) for n in near)}?" if near else "",
        )


class NotMaintainable(PlanError):
    """A view's SQL has a clause that cannot be kept up to date."""


class AnswerTimeTooShort(PlanError):
    """A view promises less time than its least refresh takes."""


class BadQuery(PlanError):
    """A standing query that cannot be."""


class BadSQL(BadQuery):
    """The text of a query has a fault; `line` and `column` (from 1) say where, and a caret shows it."""

    def __init__(self, what: str, *, why: str = "", do: str = "", text: str = "", start: int = 0, end: int = 0) -> None:
        start = min(max(start, 0), len(text))
        before = text[:start].rpartition("\n")[2]
        rest = text[start:].partition("\n")[0]
        self.line, self.column = text.count("\n", 0, start) + 1, len(before) + 1
        self.text, self.start, self.end = text, start, max(end, start + 1)
        super().__init__(what, why=why, do=do)
        carets = max(min(self.end - start, len(rest), 80), 1)
        before, rest = before[-80:], rest[:80]
        # Tabs stay tabs above the caret, so that it stands where the fault is.
        lead = "".join(mark if mark == "\t" else " " * _width(mark) for mark in before)
        carets = max(sum(map(_width, rest[:carets])), 1)
        shown = f"{before}{rest}".encode("utf-8", "replace").decode()
        place = f"line {self.line}, column {self.column}:\n  | {shown}\n  | {lead}{'^' * carets}"
        self.args = ("\n  ".join(part for part in (what, place, why, do) if part),)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_sql, (self.what, self.why, self.do, self.text, self.start, self.end))


def _width(mark: str) -> int:
    """Columns of a terminal that a character takes: some have two, and accents that are characters have none."""
    return 0 if unicodedata.combining(mark) else 2 if unicodedata.east_asian_width(mark) in "WF" else 1


def _rebuild_sql(what: str, why: str, do: str, text: str, start: int, end: int) -> BadSQL:
    return BadSQL(what, why=why, do=do, text=text, start=start, end=end)


class BadPipeline(PlanError):
    """A pipeline's file has faults."""


class UnknownQuery(PlanError):
    """A query that is not registered."""

    @classmethod
    def among(cls, name: str, queries: Iterable[str]) -> UnknownQuery:
        """The error for `name` missing from `queries`, with the nearest names."""
        near = difflib.get_close_matches(name, list(queries), n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        return cls(f"There is no query {name!r}.", do=hint)


class NameTaken(PlanError):
    """A query of this name is registered."""


class LimitReached(PlanError):
    """The server holds as much as it may."""


class MemoryTooSmall(PlanError):
    """A budget below the smallest that would do."""


class SessionNotReady(PlanError):
    """A foreign Spark session without the needed settings."""


class CheckpointMismatch(PlanError):
    """A checkpoint made by a different plan or version."""


class CheckpointInUse(PenstockError):
    """Another process runs on this checkpoint."""


class ArchiveInUse(PenstockError):
    """Another catch-up runs on this archive."""


class ViewInUse(PenstockError):
    """Another process maintains this view."""


class ViewDamaged(PenstockError):
    """A file of a view is missing, cut or changed."""


class CheckpointDamaged(PenstockError):
    """A file of the checkpoint is missing, cut or changed."""


class StateDamaged(PenstockError):
    """State read back is not the state that was written."""


class TableChanged(PenstockError):
    """A file of the table vanished or changed during a run."""


class SourceLost(PenstockError):
    """Unread input was deleted before it was read."""


class ServerInUse(PenstockError):
    """Another server has this folder."""


class ServerDamaged(PenstockError):
    """A file of a server's folder is cut or changed, or was written by another version."""


class ResultsGone(PenstockError):
    """Results that were asked for are no longer kept."""


class SinkDamaged(PenstockError):
    """A committed output file or ledger entry is missing or changed."""


class OverBudget(PenstockError):
    """Rows that must be kept no longer fit the memory they were given."""


class BadFrame(PenstockError):
    """What came over a broker is no message of subscriptions."""


class BrokerUnreachable(PenstockError):
    """No broker answers, or none can be started."""


class PredicateFailed(PenstockError):
    """A function of the user's that decides a join raised an error."""


class KernelFault(PenstockError):
    """A kernel broke its own promise; this is a bug, please report it."""
