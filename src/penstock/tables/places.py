"""Where a path that somebody gave leads to."""

from __future__ import annotations

import os
import re
from pathlib import Path

from penstock.errors import BadOption


def place_of(path: str | os.PathLike[str], what: str) -> Path:
    """The absolute local path; `what` it is for, is said if it is none.

    >>> place_of("file:///srv/out", "results").as_posix(), place_of("~", "results") == Path.home()
    ('/srv/out', True)
    """
    given: object = path  # whatever somebody gave
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else ""
    if not isinstance(text, str) or not text or "\0" in text:
        said = repr(path) if isinstance(given, str | bytes | int | None) else f"a {type(path).__name__}"
        raise BadOption(f"{what}: {said} is not a path.", do="Give the path of a directory.")
    if text.startswith("file:/"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    if re.match(r"[A-Za-z][\w+.-]+:/", text) or text.startswith("file:"):
        raise BadOption(
            f"{what}: {text} is not a local path.",
            why="Penstock reads and writes files itself, on a file system that all workers see.",
            do="Give a path on a local or mounted file system.",
        )
    try:
        place = Path(text).expanduser().absolute()
        place.exists()  # also says whether a file system takes the name
    except PermissionError:
        pass  # of which those tell who need it
    except (OSError, RuntimeError) as fault:
        why = (fault.strerror if isinstance(fault, OSError) else str(fault)) or ""
        raise BadOption(
            f"{what}: {text[:80]!r} is not a path here: {why.rstrip('.')}.", do="Give the path of a directory."
        ) from fault
    return place
