"""A started flow: wait for it, stop it cleanly, and be told plainly what went wrong."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from numbers import Real
from typing import TYPE_CHECKING, Any

from penstock.errors import BadOption
from penstock.plan.given import shown
from penstock.spark.failures import cause
from penstock.spark.signals import interrupts_are_free, stop_on_signal
from penstock.spark.slots import shuffle_partitions

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.checkpoint import Checkpoint
    from penstock.spark.flow import Flow


#: Seconds between two looks at the times of all input files.
_LOOK_AGAIN = 10.0
#: Seconds that Java can count in milliseconds, and that nobody waits for.
_EVER = 1e9


def _seconds(given: float | None) -> float | None:
    """How long to wait, as Spark takes it. A fault that came out of its call would pass for the end of the query."""
    if given is None:
        return None
    said: object = given
    if isinstance(said, bool) or not isinstance(said, Real) or said != said:
        raise BadOption(
            f"wait({shown(said)}): this is no number of seconds.", do="Give one, or none to wait for the end."
        )
    return min(max(given, 0.001), _EVER)


class Running:
    """One query of a flow, with its checkpoint held until it ends."""

    query: StreamingQuery

    def __init__(self, flow: Flow, checkpoint: Checkpoint) -> None:
        self.flow = flow
        self._checkpoint = checkpoint
        self._stopping = threading.Event()
        self._held = threading.Event()
        self._notes: list[str] = []
        self._looked: tuple[float, list[str]] = (-_LOOK_AGAIN, [])
        checkpoint.is_used = self._is_used

    def __repr__(self) -> str:
        return f"<Running {self.flow!r} on {self._checkpoint.path}, {'active' if self.active else 'ended'}>"

    @property
    def _seen(self) -> Flow:
        return self.flow._of_run(str(self.query.runId))

    @property
    def active(self) -> bool:
        """Whether it still runs."""
        return bool(self.query.isActive)

    @property
    def beginning(self) -> bool:
        """Whether its first micro-batch since the start may be under way. It starts Python processes, for which Spark
        waits ten seconds, no longer: where many queries begin at once, on few cores, all fail.
        """
        with contextlib.suppress(Exception):  # Spark may be gone
            waits = self.query.status["message"].startswith("Waiting")
            return self.active and self.query.lastProgress is None and not waits
        return False

    def _is_used(self) -> bool:
        try:
            return not hasattr(self, "query") or self.active
        except Exception:  # its JVM is gone
            return False

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it ends (True) or the time is over (False). Raises what went wrong, unwrapped.

        Ctrl-C meanwhile stops it as `stop` does, and is raised after that, unless the program handles it itself.
        """
        seconds = _seconds(seconds)
        if not interrupts_are_free():
            return self._wait(seconds)
        with stop_on_signal(self, signals=(signal.SIGINT,)) as asked:
            ended = self._wait(seconds)
        if asked.is_set():
            raise KeyboardInterrupt
        return ended

    def _wait(self, seconds: float | None) -> bool:
        try:
            # Spark's annotation says int; it takes fractions of a second too.
            ended = self.query.awaitTermination(seconds)  # type: ignore[arg-type]
        except Exception as failure:
            self._checkpoint.close()
            raise cause(failure) from None
        if ended is None or ended:
            self._checkpoint.close()
            self._hear_out()
            return True
        return False

    def _hear_out(self, patience: float = 10.0) -> None:
        """Wait for the numbers of the last micro-batch: Spark tells them by a thread of its own, a little later."""
        last = self.query.lastProgress
        until = time.monotonic() + patience
        # A report without them is of a look for input that found none.
        while last is not None and self.flow.id in last["observedMetrics"] and time.monotonic() < until:
            heard = self._seen.history()
            if heard and heard[-1]["batch"] >= last["batchId"]:
                return
            time.sleep(0.02)

    def stop(self, patience: float = 60.0) -> None:
        """Finish the micro-batch under way, then stop."""
        self._stopping.set()
        until = time.monotonic() + patience
        idle = False
        while self.active and not self._held.is_set() and time.monotonic() < until:
            was_idle, idle = idle, not self.query.status["isTriggerActive"]
            # A single look may fall between two micro-batches: the next one would be interrupted in its middle.
            if was_idle and idle:
                break
            time.sleep(0.02)
        self.query.stop()
        self._checkpoint.close()

    def progress(self) -> dict[str, Any]:
        """As `Flow.progress`, of this query alone, and `notes`: what a person should know although nothing failed."""
        return self._seen.progress() | {"notes": [*self._notes, *self._rewritten()]}

    def files_read(self) -> int:
        """How many of the input files that are there are in committed micro-batches, as far as Spark remembers."""
        return sum(path.exists() for path, _ in self._checkpoint.inputs.of(0, self._checkpoint.committed()))

    def note(self, text: str) -> None:
        """Have something said in `progress()` from now on."""
        self._notes.append(text)

    def note_partitions(self) -> None:
        """Say so where the session has other shuffle partitions than those that the query keeps."""
        kept, now = self._checkpoint.partitions(), shuffle_partitions(self.flow._spark)
        if kept is not None and kept != now and not self.flow._plan.keeps_nothing:
            self.note(f"The session has {now} shuffle partitions; this query keeps the {kept} it began with.")

    def hold_if_stopping(self) -> None:
        """Keep the next micro-batch from starting once a stop is asked for; the stop then interrupts the wait."""
        if self._stopping.is_set():
            self._held.set()
            # This callback runs in the query's own JVM thread, which a stop interrupts and then waits for. Waiting in
            # Python would keep it waiting for ever; a sleep in the JVM ends with the interrupt.
            jvm: Any = self.flow._spark._jvm
            with contextlib.suppress(Exception):
                jvm.java.lang.Thread.sleep(86_400_000)
            # By this text Spark knows a callback that was interrupted by a stop; at full length, with the stack of the
            # JVM behind it, its search overflows the stack.
            raise InterruptedError(
                "py4j.protocol.Py4JJavaError: An error occurred while calling: java.lang.InterruptedException"
            )

    def check_source(self, batch: int) -> None:
        """Stop if Spark would commit this micro-batch without the rows of a file, or with them twice."""
        self._checkpoint.note_sources()
        self._checkpoint.inputs.check(batch, lambda: getattr(self, "query", None))

    def _rewritten(self) -> list[str]:
        """Input files that changed after they were read: the file source never reads a name twice."""
        if self.active and time.monotonic() < self._looked[0] + _LOOK_AGAIN:
            return self._looked[1]
        found = []
        for path, read in self._checkpoint.inputs.of(0, self._checkpoint.committed()):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime_ns // 1_000_000 > read:
                    found.append(f"{path} was rewritten after it was read; what is new in it is not in the output.")
        self._looked = (time.monotonic(), found)
        return found
