"""One Spark query that answers all queries of a group: started, watched, stopped, and its results read."""

from __future__ import annotations

import contextlib
import logging
import statistics
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.errors import BadOption, CheckpointMismatch, PenstockError, PlanError
from penstock.plan.pipeline.data_files import shown_files
from penstock.server.committed import Committed
from penstock.spark.failures import cause
from penstock.spark.shared_flow import SharedFlow

if TYPE_CHECKING:
    from penstock.plan.base import Plan
    from penstock.spark.flow import Flow
    from penstock.spark.running import Running

log = logging.getLogger("penstock.server")
#: A group that failed is started again after so many seconds, twice as many each time.
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
#: Seconds until a group is past the hard part of its first micro-batch, or failed: Spark waits 10 for a Python process.
_BEGINS = 15.0
#: Micro-batches that say how long an answer takes now.
_RECENT = 20
#: Seconds between two looks at the input files.
_LOOK_AGAIN = 5.0


#: What somebody does whose query cannot go on from where it was.
BEGIN_ANEW = (
    "or begin anew: remove the query and register it again. One of the pipeline's "
    "file gets another name there, and another sink."
)


class Making(Protocol):
    """How the flow of a group is made."""

    @property
    def operator(self) -> str:
        """The operator's name."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The streams and tables that it reads."""

    def describe(self) -> str:
        """For people."""

    @property
    def once(self) -> tuple[str, ...]:
        """The streams among them that cannot be read again."""

    @property
    def channel(self) -> str:
        """The channel that has the results of its queries."""

    def plan(self, folder: Path) -> Plan:
        """What will run in a folder."""

    def flow(self, folder: Path) -> Flow:
        """The flow, on Spark."""

    def places(self, folder: Path) -> dict[str, str]:
        """Channels that have a place of their own."""

    def folders(self, folder: Path) -> list[Path] | None:
        """The folders whose files it reads, one for each input; None where an input is no files."""


class Group:
    """The Spark query of a group. Used by one thread, and read by others."""

    def __init__(self, id_: str, folder: Path, making: Making) -> None:
        self.id = id_
        self.folder = folder
        self.making = making
        self.plan = making.plan(folder)
        self.channels: Mapping[str, pa.Schema] = self.plan.channels
        self.state = "waiting"
        self.error: BaseException | None = None
        self.committed = Committed(folder / making.channel, self.channels[making.channel])
        self._running: Running | None = None
        self._pause = _FIRST_PAUSE
        self._again = 0.0
        #: When it was started, and what was committed before.
        self._started = (-_BEGINS, -1)
        self._behind = (-_LOOK_AGAIN, 0)
        self._told: dict[str, Any] = {}

    @property
    def wants_start(self) -> bool:
        """Whether it stands still and could be started now."""
        return self.state in ("waiting", "stopped") or (self.state == "failed" and time.monotonic() >= self._again)

    @property
    def beginning(self) -> bool:
        """Whether its first micro-batch since it was started may be under way."""
        when, before = self._started
        if self.state != "running" or self.committed.last > before or time.monotonic() > when + _BEGINS:
            return False
        with contextlib.suppress(Exception):  # Spark may be gone
            return self._running is None or not self._running.query.status["message"].startswith("Waiting")
        return False

    def start(self, trigger: Mapping[str, Any]) -> None:
        """Start its Spark query, or note why that cannot be."""
        self.state = "starting"
        before = self.committed.last
        try:
            self._check_once()
            flow = self.making.flow(self.folder)
            places = {name: str(self.folder / name) for name in flow.channels} | self.making.places(self.folder)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._running = flow.start(checkpoint=str(self.folder / "checkpoint"), trigger=trigger, **places)
        except CheckpointMismatch as fault:
            what = "It cannot go on from where it was."
            self._fail(CheckpointMismatch(what, why=fault.why, do=f"Make it as it was; {BEGIN_ANEW}"))
            return
        except Exception as fault:
            self._fail(cause(fault))
            return
        self.error = None
        self._started = (time.monotonic(), before)
        self.state = "running"

    def _check_once(self) -> None:
        """Refuse to go on with a stream that cannot: Spark would take its new lines for those that it had before."""
        if self.making.once and any((self.folder / "checkpoint" / "offsets").glob("[0-9]*")):
            raise BadOption(
                f"Stream {self.making.once[0]!r} is a socket, which says nothing twice.",
                why="What came while nobody listened, and what was not yet answered, is lost; and of what comes now "
                "as many lines would be passed over as were read before.",
                do='Begin anew: another folder = "…" in the pipeline\'s file, or register the query again.',
            )

    def poll(self) -> None:
        """See whether it still runs, and what is new."""
        if self._running is not None:
            try:
                if not self._running.active and self._running.wait(0):
                    self.state = "ended"
            except Exception as fault:
                self._running = None
                self._fail(cause(fault))
            else:
                if self.state == "running" and self.committed.last > self._started[1]:
                    self._pause = _FIRST_PAUSE
        self.committed.look()

    def _fail(self, fault: BaseException) -> None:
        self.error = fault
        self.state = "failed"
        log.warning("group %s failed: %s", self.id, fault if isinstance(fault, PenstockError) else told_error(fault))
        # What is wrong with a plan stays wrong, until somebody changes something and starts the server again.
        self._again = float("inf") if isinstance(fault, PlanError) else time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def stop(self) -> None:
        """Finish the micro-batch under way, and stop."""
        running, self._running = self._running, None
        if running is not None:
            try:
                running.stop()
                self._told = running.progress()
            except Exception as fault:
                self._fail(cause(fault))
                return
        if self.state != "failed":
            self.state = "stopped"
        self.committed.look()

    # -- telling -----------------------------------------------------------------------------------------------------

    def response(self) -> dict[str, float] | None:
        """Seconds from the begin of a micro-batch until its results can be read."""
        seconds = [batch["seconds"] for batch in self.history()[-_RECENT:]]
        if not seconds:
            return None
        return {"last": seconds[-1], "median": statistics.median(seconds), "worst": max(seconds)}

    def response_of(self, name: str) -> dict[str, float] | None:
        """How long the results of one of the queries of a shared join took lately, in units of work and in seconds."""
        running = self._running
        if running is None or not isinstance(running.flow, SharedFlow):
            return None
        return running.flow.response(name, running.flow.history()[-_RECENT:])

    def history(self) -> list[dict[str, Any]]:
        """The numbers of its last micro-batches."""
        running = self._running
        return running.flow.history() if running is not None else []

    def files_behind(self) -> int | None:
        """Input files that are there and not yet read; looked at every few seconds. None where input is no files."""
        running, folders = self._running, self.making.folders(self.folder)
        if running is None or folders is None:
            return None
        if time.monotonic() >= self._behind[0] + _LOOK_AGAIN:
            try:
                there = sum(_files(place) for place in set(folders))
            except OSError:
                return None  # a folder is gone; its query will say so
            self._behind = (time.monotonic(), max(0, there - running.files_read()))
        return self._behind[1]

    def progress(self) -> dict[str, Any]:
        """What it did since it was started here, or until it was stopped; empty if it never was."""
        running = self._running
        if running is None:
            return self._told
        try:
            return running.progress()
        except Exception as fault:  # Spark may be gone
            return {"notes": [str(cause(fault))]}


def _files(place: Path) -> int:
    """Files that Spark would read: of a folder and its partitions, those that are not hidden."""
    return 1 if place.is_file() else len(shown_files(place))


def told_error(error: BaseException | None) -> dict[str, str] | None:
    """An error for people, without its trace."""
    if error is None:
        return None
    if isinstance(error, PenstockError):
        return {"kind": type(error).__name__, "what": error.what, "why": error.why, "do": error.do}
    first = (str(error).strip().splitlines() or [""])[0]
    # What `penstock.spark.failures` found in the pages of it, and where all of it is.
    notes = "\n".join(getattr(error, "__notes__", ()))
    return {"kind": type(error).__name__, "what": first[:500], "why": notes, "do": ""}
