"""How the commands speak: one console, errors in red, a line for each thing that is done."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.markup import escape

from penstock.errors import PenstockError

console = Console(highlight=False)
complaints = Console(stderr=True, highlight=False)


def show_error(error: PenstockError) -> None:
    """What happened, in red; then why, and what to do."""
    complaints.print(f"[bold red]{type(error).__name__}:[/] [red]{escape(error.what)}[/]", soft_wrap=True)
    for text in (error.why, error.do):
        if text:
            complaints.print(f"  {escape(text)}", soft_wrap=True)


def without_interrupts() -> None:
    """Have no trace in the log for a micro-batch that is let go when a query is asked to stop."""

    def is_news(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], InterruptedError))

    logging.getLogger("py4j.clientserver").addFilter(is_news)


@contextmanager
def asking(to_stop: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Have the first SIGTERM or Ctrl-C call `to_stop`; the second does what it did before. Gives what listens again."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    asked = False

    def restore() -> None:
        for number, old in before.items():
            signal.signal(number, old)

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        restore()
        to_stop()

    def listen() -> None:
        for number in () if asked else before:
            signal.signal(number, ask)

    listen()
    try:
        yield listen
    finally:
        restore()


class Step:
    """Something that is being done; `done` is what is said of it afterwards."""

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.done = doing


@contextmanager
def step(doing: str) -> Iterator[Step]:
    """Say what is being done while it is done, and what came of it with the time it took."""
    this = Step(doing)
    began = time.monotonic()
    if console.is_terminal:
        with console.status(f"{doing} …", spinner="dots"):
            yield this
    else:
        console.print(f"… {doing}")
        yield this
    console.print(f"[green]✓[/] {this.done} [dim]({time.monotonic() - began:.1f} s)[/]", soft_wrap=True)
