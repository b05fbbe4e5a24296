"""Fills the page `reference/commands` with what each command says about itself."""

from __future__ import annotations

import os
from typing import Any

PAGE = "reference/commands"


def helps() -> dict[str, str]:
    """The help of each command of `penstock`, by name."""
    import typer
    from typer.testing import CliRunner

    from penstock.cli.app import app

    names = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    os.environ["COLUMNS"] = "100"
    run = CliRunner()
    said = {name: run.invoke(app, [name, "--help"], prog_name="penstock").output for name in names}
    return {name: text.strip("\n") for name, text in said.items()}


def fill(app: Any, page: str, source: list[str]) -> None:
    """Add every command to the reference."""
    if page == PAGE:
        source[0] += "".join(f"\n## penstock {name}\n\n```text\n{text}\n```\n" for name, text in helps().items())


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True}
