"""The `penstock` command. Commands are loaded when they are called, so that `penstock --help` answers at once."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from penstock.cli.app import app

    app()
