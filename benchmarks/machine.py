"""What a measurement was taken on, and how busy it was."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("penstock", "pyspark", "pyarrow", "numpy", "numba", "pandas", "duckdb")


def facts() -> dict[str, Any]:
    """Cores, memory, versions, the commit, and the load at this moment."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_free_bytes": psutil.virtual_memory().available,
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": _java(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len((_git("status", "--porcelain", "--untracked-files=no") or "").splitlines()),
    }


def in_short(found: dict[str, Any]) -> str:
    """The same in one line, for people."""
    gb = found["memory_bytes"] / 2**30
    load = ", ".join(f"{load:.2f}" for load in found["load_average"])
    commit = (found["commit"] or "no commit")[:10] + (" with changes" if found["changed_files"] else "")
    packages = found["packages"]
    return (
        f"{found['cores']} cores, {gb:.0f} GB, load {load}; Python {found['python']}, pyspark {packages['pyspark']}, "
        f"pyarrow {packages['pyarrow']}; {commit}"
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    said = _said([f"{home}/bin/java" if home else "java", "-version"])
    return said.splitlines()[0] if said else None


def _git(*words: str) -> str | None:
    return _said(["git", "-C", str(ROOT), *words])


def _said(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout or done.stderr).strip()
