"""A started flow: wait for it, stop it cleanly, and be told plainly what went wrong."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from penstock.errors import SourceLost
from penstock.spark.failures import cause

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.checkpoint import Checkpoint
    from penstock.spark.flow import Flow


class Running:
    """One query of a flow, with its checkpoint held until it ends."""

    query: StreamingQuery

    def __init__(self, flow: Flow, checkpoint: Checkpoint) -> None:
        self.flow = flow
        self._checkpoint = checkpoint
        self._stopping = threading.Event()
        self._held = threading.Event()

    @property
    def active(self) -> bool:
        """Whether it still runs."""
        return bool(self.query.isActive)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it ends (True) or the time is over (False). Raises what went wrong, unwrapped."""
        try:
            # Spark's annotation says int; it takes fractions of a second too.
            ended = self.query.awaitTermination(None if seconds is None else max(seconds, 0.001))  # type: ignore[arg-type]
        except Exception as failure:
            self._checkpoint.close()
            raise cause(failure) from None
        if ended is None or ended:
            self._checkpoint.close()
            return True
        return False

    def stop(self, patience: float = 60.0) -> None:
        """Finish the micro-batch under way, then stop."""
        self._stopping.set()
        until = time.monotonic() + patience
        while self.active and time.monotonic() < until:
            status = self.query.status
            if self._held.is_set() or not status["isTriggerActive"]:
                break
            time.sleep(0.02)
        self.query.stop()
        self._checkpoint.close()

    def progress(self) -> dict[str, Any]:
        """As `Flow.progress`."""
        return self.flow.progress()

    def hold_if_stopping(self) -> None:
        """Keep the next micro-batch from starting once a stop is asked for; the stop then interrupts the wait."""
        if self._stopping.is_set():
            self._held.set()
            threading.Event().wait()

    def check_source(self, batch: int) -> None:
        """Stop if a file that this micro-batch should have read is gone: Spark would commit the batch without its
        rows.
        """
        missing = [path for path in self._source_files(batch) if not path.exists()]
        if missing:
            raise SourceLost(
                f"{len(missing)} input files were deleted before they were surely read: {missing[0]}"
                + (" and others." if len(missing) > 1 else "."),
                why="Their rows would be missing from the output without a word.",
                do="Put the files back and start again with the same checkpoint; nothing of this batch was committed.",
            )

    def _source_files(self, batch: int) -> list[Path]:
        files = []
        for log in (self._checkpoint.path / "sources").glob("*"):
            for name in (str(batch), f"{batch}.compact"):
                entry = log / name
                if entry.exists():
                    said = [json.loads(line) for line in entry.read_text().splitlines()[1:]]
                    files += [_local(item["path"]) for item in said if item.get("batchId") == batch and "path" in item]
        return [path for path in files if path is not None]


def _local(path: str) -> Path | None:
    parts = urlparse(path)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None
