"""Named crash points: places where a test may have the whole driver, or one worker, die by SIGKILL.

Off unless `PENSTOCK_CRASH` is set, to `point:hit:who` (or several, with commas) with `who` one of "driver" and
"worker": at the given hit of the point, counted over all processes, the session of processes or the process itself is
killed. `PENSTOCK_CRASH_LOG` names the file that says which crash points killed; the hits are counted in files beside
it.
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
    "before-commit",
    "in-commit",
    "after-sink",
    "after-commit",
)

#: Those in code that runs in Python workers; the others are in the driver's Python.
IN_WORKERS = ("after-read", "in-restore", "between-chunks", "after-store", "in-sink")

_SPECS = [spec.split(":") for spec in os.environ.get("PENSTOCK_CRASH", "").split(",") if spec]


def crash_point(name: str) -> None:
    """Die here if a test asked for it."""
    if not any(point == name for point, _, _ in _SPECS):
        return
    log = os.environ["PENSTOCK_CRASH_LOG"]
    hits = _append(f"{log}.{name}", b".")
    for point, hit, who in _SPECS:
        if point == name and int(hit) == hits:
            _append(log, f"{point}:{hit}:{who}\n".encode())
            for pid in [os.getpid()] if who == "worker" else _session_members(os.getsid(0)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _append(path: str, text: bytes) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, text)
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    finally:
        os.close(descriptor)


def _session_members(session: int) -> list[int]:
    # Ourselves last, so that we can finish the list.
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(stat[3]) == session:
                    members.append(int(entry.name))
    return sorted(members, key=lambda pid: pid == os.getpid())
