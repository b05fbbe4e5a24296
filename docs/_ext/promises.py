"""Docstrings as this project writes them, made readable for docutils: the entries of *Parameters* become a list."""

from __future__ import annotations

import re
from typing import Any

_TITLE = re.compile(r"^( *)(Parameters)$")
_ENTRY = re.compile(r"^([\w, ]+): (.*)$")


def listed(lines: list[str]) -> list[str]:
    """The same lines, with each parameter an entry of a list, on one line."""
    found: list[str] = []
    inside: int | None = None  # how far the title of the section stands in
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if inside is not None and line.strip() and depth <= inside:
            inside = None
            found.append("")
        if title := _TITLE.match(line):
            inside = len(title[1])
            found += ["", f"{title[1]}{title[2]}", ""]
        elif inside is not None and line.strip():
            entry = _ENTRY.match(line.strip()) if depth == inside + 4 else None
            if entry:
                found.append(f"{' ' * inside}* **{entry[1]}**: {entry[2]}")
            elif found[-1].lstrip().startswith("*"):
                found[-1] += f" {line.strip()}"
            else:
                found.append(" " * inside + line.strip())
        else:
            found.append(line)
    return found


def process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Called for every docstring; changes it in place."""
    lines[:] = listed(lines)


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True}
