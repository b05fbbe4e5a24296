"""The `penstock` command. Commands are loaded when they are called, so that `penstock --help` answers at once."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command line."""
    from penstock.cli.app import app

    # What the terminal's encoding lacks is shown as "?": a sign in a line of output must not end a run.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
