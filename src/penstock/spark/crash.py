"""Named crash points: places where a test may have the whole driver, or one worker, die by SIGKILL.

Off unless `PENSTOCK_CRASH` is set, to `point:hit:who` with `who` one of "driver" and "worker": at the given hit of the
point (counted over all processes by a file beside `PENSTOCK_CRASH_LOG`), the session of processes or the process itself
is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

POINTS = (
    "after-read",
    "in-restore",
    "between-chunks",
    "after-store",
    "before-sink",
    "in-sink",
    "in-commit",
    "after-sink",
    "after-commit",
)

_SPEC = os.environ.get("PENSTOCK_CRASH", "")


def crash_point(name: str) -> None:
    """Die here if a test asked for it."""
    if not _SPEC:
        return
    point, hit, who = _SPEC.split(":")
    if point != name or _count_hit() != int(hit):
        return
    if who == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    for pid in _session_members(os.getsid(0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _count_hit() -> int:
    log = os.environ["PENSTOCK_CRASH_LOG"]
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, b".")
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _session_members(session: int) -> list[int]:
    # The driver's Python first started everything else; killing ourselves last lets us finish the list.
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(stat[3]) == session:
                    members.append(int(entry.name))
    return sorted(members, key=lambda pid: pid == os.getpid())
