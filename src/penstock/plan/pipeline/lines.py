"""Where in a TOML file a value stands, and all faults of a file told together.

`tomllib` keeps no lines. But it says of any beginning of the file whether it can be read by itself and what is in it: a
value stands in the lines by which it first appears. So the parser that reads the file is also the one that says where.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.errors import BadPipeline, PenstockError

#: Names and positions that lead to a value: ("queries", "enriched", "on").
Path = tuple[str | int, ...]
T = TypeVar("T")
#: Values lie at most so many tables and lists inside each other; options need five.
DEEPEST = 20


def lines_of(text: str) -> dict[Path, int]:
    """The line, counted from 1, in which each value begins; a table, where it is first spoken of.

    >>> lines_of("a = 1\\n[b]\\nc = [\\n  2,\\n]\\nd.e = 3\\n")[("b", "c")]
    3
    """
    lines = text.split("\n")
    # From its heading on a table can be read by itself, too, so that long files take no longer than many short ones;
    # but not one of a list of tables, whose place in the list is said by those before it.
    apart = not any(line.lstrip().startswith("[[") for line in lines)
    found: dict[Path, int] = {}
    first = begin = 0
    for end, after in enumerate([*lines[1:], ""], 1):
        try:
            said = tomllib.loads("\n".join(lines[first:end]))
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value
        for path in _paths(said, ()):
            found.setdefault(path, begin + 1)
        begin = end
        if apart and after.lstrip().startswith("["):
            first = end
    return found


def _values(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _paths(value: Any, here: Path) -> Iterator[Path]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        yield (*here, name)
        yield from _paths(each, (*here, name))


@dataclass
class Faults:
    """The faults of one file, gathered while it is read."""

    name: str
    text: str
    found: list[tuple[Path, PenstockError]] = field(default_factory=list)

    def add(self, path: Path, error: PenstockError) -> None:
        """A value at `path` is wrong, or missing there."""
        self.found.append((path, error))

    def tried(self, path: Path, work: Callable[[], T]) -> T | None:
        """What `work` gives; None if it finds a fault, which is kept."""
        try:
            return work()
        except PenstockError as error:
            self.add(path, error)
            return None

    def check(self) -> None:
        """Raise one error that names every fault with its line, if there is any."""
        if not self.found:
            return
        lines = lines_of(self.text)
        told = sorted(((self._line(lines, path, error), error) for path, error in self.found), key=lambda one: one[0])
        shown = [f"{self.name}:{line}: {_inset(error)}" for line, error in told]
        count = len(shown)
        raise BadPipeline(
            f"{count} fault{'s' * (count > 1)} in {self.name}.",
            why="\n  ".join(shown),
            do="Mend them and ask again: penstock check " + self.name,
        )

    def _line(self, lines: dict[Path, int], path: Path, error: PenstockError) -> int:
        while path and path not in lines:
            path = path[:-1]
        line = lines.get(path, 1)
        inside = getattr(error, "line", None)
        if inside is None or not path:
            return line
        # A text that begins behind its quotes has its first line there; TOML drops a line break right after them.
        opened = self.text.split("\n")[line - 1].rstrip()
        return int(line + inside - 1 + (opened.endswith(('"""', "'''")) and opened.count(opened[-3:]) == 1))


def parse(text: str, name: str) -> dict[str, Any]:
    """A TOML file as it is read, or the place where it cannot be."""
    try:
        said = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(name) from None
    except ValueError as error:  # of numbers with thousands of digits, not TOML's own
        told = re.fullmatch(r"(.*?) \(at (?:line (\d+), column (\d+)|end of document)\)", str(error), re.DOTALL)
        line = told[2] if told and told[2] else str(max(1, len(text.splitlines())))
        raise BadPipeline(
            f"{name}:{line}: this is not TOML: {told[1] if told else error}.",
            do="Texts are written in quotes, paths too; a longer text in three of them.",
        ) from None
    inside: list[Any] = [said]
    for _ in range(DEEPEST):
        inside = [each for one in inside for each in _values(one)]
    if inside:
        raise _too_deep(name)
    return said


def _too_deep(name: str) -> BadPipeline:
    return BadPipeline(f"{name} is nested too deeply.", why=f"At most {DEEPEST} levels are read.")


def _inset(error: PenstockError) -> str:
    return str(error).replace("\n", "\n  ")
