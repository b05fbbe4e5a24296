"""What is registered: the books as memory has them, shared by the calls that change them and the keeper."""

from __future__ import annotations

import threading
from typing import Any

from penstock.errors import BadOption, PenstockError, UnknownQuery
from penstock.server.books import Books, Entry
from penstock.server.group import BEGIN_ANEW
from penstock.server.made import Made
from penstock.server.making import Maker


class Member:
    """A registered query and what it takes to read its results; `error` says why it cannot be answered."""

    def __init__(self, entry: Entry, made: Made | None, error: PenstockError | None = None) -> None:
        self.entry = entry
        self.made = made
        self.error = error
        #: Results of batches that were committed since the server started.
        self.rows: int | None = 0
        #: The last batch that its sink has, None where there is no sink; and why the sink cannot be written.
        self.carried: int | None = None
        self.sink_error: BaseException | None = None


class Registry:
    """All queries by name, and what each group says of itself. Whoever looks at several things holds `lock`."""

    def __init__(self, books: Books, maker: Maker) -> None:
        self.books = books
        self.maker = maker
        self.lock = threading.RLock()
        self.members: dict[str, Member] = {}
        self.said: dict[str, dict[str, Any]] = {}
        #: Grows whenever there are new results, or the queries change.
        self.generation = 0
        self.wake = threading.Event()

    def load(self) -> None:
        """What is in the books."""
        self.said = self.books.groups()
        for entry in self.books.entries():
            made, error = None, None
            try:
                made = self._made(entry)
                if entry.group not in self.said or not made.fits(self.said[entry.group]):
                    raise BadOption(
                        f"Query {entry.name!r} would now be answered by another group than it was.",
                        why="A stream, a table or the way queries are understood has changed.",
                        do=f"Make it as it was; {BEGIN_ANEW}",
                    )
            except PenstockError as fault:
                made, error = None, fault
            self.members[entry.name] = Member(entry, made, error)

    def _made(self, entry: Entry) -> Made:
        maker = self.maker.as_begun(self.said[entry.group]) if entry.group in self.said else self.maker
        if entry.text is not None:
            return maker.text(entry.text)
        return maker.operator(entry.name, entry.operator or "", entry.options)

    def member(self, name: str) -> Member:
        """The query of this name."""
        found = self.members.get(name)
        if found is None:
            raise UnknownQuery.among(str(name)[:80], self.members)
        return found

    def of_group(self, id_: str | None) -> dict[str, Made]:
        """The queries of a group that can be answered, by name."""
        members = [member for member in self.members.values() if member.entry.group == id_]
        return {member.entry.name: member.made for member in members if member.made is not None}

    def changed(self) -> None:
        """Tell those who follow, and the keeper."""
        self.generation += 1
        self.wake.set()
