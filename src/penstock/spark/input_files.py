"""The input files of a query: which micro-batch reads which, and whether Spark read all of them, each once."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from penstock.errors import PlanError, SourceLost
from penstock.spark.spark_files import numbers, read_log
from penstock.spark.watermarks import nodes_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: In the offset of a file source, and of no other.
_OFFSET = '"logOffset"'
#: What makes Spark take a path for a pattern.
_LIKE_A_PATTERN = re.compile(r"[{}\[\]*?\\]")


class InputFiles:
    """Local input files by micro-batch, from what the file sources of a query have in its checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self.path = checkpoint

    def of(self, first: int, last: int) -> list[tuple[Path, int]]:
        """The local input files of some micro-batches, as far as Spark remembers them, with the times they had.

        The file source numbers its own log, where a micro-batch without input has no entry; the offsets say which
        entries are whose.
        """
        before, until = self.offsets(first - 1, last)
        files: dict[Path, int] = {}
        for log in (self.path / "sources").glob("*"):
            begin, end = before.get(log.name, -1) + 1, until.get(log.name, -1)
            for entry in sorted(_entries(log, begin, end), key=lambda entry: int(entry.stem)):
                for said in map(json.loads, read_log(entry)):
                    if isinstance(said, dict) and begin <= said.get("batchId", -1) <= end:
                        parts = urlparse(said["path"])
                        if parts.scheme in ("", "file"):
                            files[Path(unquote(parts.path))] = said["timestamp"]
        return list(files.items())

    def logs(self) -> list[int]:
        """The numbers of the sources that have a log."""
        return numbers(self.path / "sources")

    def offsets(self, *batches: int) -> list[dict[str, int]]:
        """How far these micro-batches read in the log of each file source."""
        entries = [self.path / "offsets" / str(batch) for batch in batches]
        said = [read_log(entry)[1:] if entry.exists() else [] for entry in entries]
        count = max(map(len, said))
        logs = logs_of([[one[n] if n < len(one) else "" for one in said] for n in range(count)], self.logs())
        return [
            {
                str(log): int(json.loads(line)["logOffset"])
                for log, line in zip(logs, one, strict=False)
                if _OFFSET in line
            }
            for one in said
        ]

    def check(self, batch: int, query: Callable[[], StreamingQuery | None]) -> None:
        """Stop before a micro-batch is committed of which Spark would pass over a file, or read one several times.

        `query` is asked until it is known: a micro-batch may be under way before its start has returned.
        """
        files = [path for path, _ in self.of(batch, batch)]
        missing = [path for path in files if not path.exists()]
        if missing:
            raise SourceLost(
                f"{len(missing)} input files were deleted before they were surely read: {missing[0]}"
                + (" and others." if len(missing) > 1 else "."),
                why="Their rows would be missing from the output without a word.",
                do="Put the files back and start again with the same checkpoint; nothing of this batch was committed.",
            )
        odd = [path for path in files if _LIKE_A_PATTERN.search(str(path))]
        if odd and len(files) > 1 and _reads_twice(query):
            raise PlanError(
                f"Spark reads files of this micro-batch several times: {odd[0]} has one of the signs {{}}[]*?\\ in its "
                "path.",
                why="It takes such a path for a pattern as well, and each of its rows would be in the output as often.",
                do='Read the stream with .option("recursiveFileLookup", "true"), in a pipeline with options = { '
                "recursiveFileLookup = true }, and start again with the same checkpoint; nothing of this batch was "
                "committed. Or keep such signs out of names.",
            )


def _reads_twice(query: Callable[[], StreamingQuery | None]) -> bool:
    """Whether a source of the micro-batch under way has a file more than once."""
    while (started := query()) is None:
        time.sleep(0.01)
    java: Any = started._jsq
    relations = [
        node.relation().location()
        for node in nodes_of(java.streamingQuery().lastExecution().analyzed())
        if node.nodeName() == "LogicalRelation"
    ]
    found = [location.allFiles() for location in relations]
    return any(files.size() > files.distinct().size() for files in found)


def logs_of(offsets: Sequence[Sequence[str]], logs: Sequence[int]) -> list[int]:
    """The number of each source's log, of those that are there, by the offsets of the sources in some micro-batches.

    Spark numbers sources as they come, and what a query reads twice, as in a join of a stream with itself, is one
    source with one log, whose offset stands in several places. Where another source has the same offsets, too, it does
    not matter which of the two is taken for it.

    >>> four, one = ['{"logOffset":4}'], ['{"logOffset":1}']
    >>> logs_of([four, four], [0, 1]), logs_of([four, four, one], [0, 1]), logs_of([four, one], [0])
    ([0, 1], [0, 0, 1], [0, 1])
    """

    def numbered(found: list[int]) -> list[int] | None:
        at = len(found)
        if at == len(offsets):
            return found if set(logs) <= set(found) else None
        again = [number for number, seen in zip(found, offsets, strict=False) if seen == offsets[at]]
        for number in dict.fromkeys([max(found, default=-1) + 1, *again]):
            if number in logs or not any(_OFFSET in said for said in offsets[at]):
                whole = numbered([*found, number])
                if whole is not None:
                    return whole
        return None

    return numbered([]) or list(range(len(offsets)))


def _entries(log: Path, begin: int, end: int) -> Iterator[Path]:
    """The entries of a file source's log with these numbers. Of a long run few are left: the others are compacted."""
    for entry in log.glob("[0-9]*"):
        number, _, kind = entry.name.partition(".")
        if kind in ("", "compact") and number.isdigit() and begin <= int(number) <= end:
            yield entry
