"""A program that is asked to end (SIGTERM, Ctrl-C) finishes the micro-batch under way first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol


class Stoppable(Protocol):
    """What can be stopped: a `Running`, or a query of Spark."""

    def stop(self) -> None:
        """Stop it."""


@contextmanager
def stop_on_signal(*running: Stoppable, signals: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)) -> Iterator[None]:
    """Stop what is running when a signal comes; waiting for it then ends as if the input had ended.

    ::

        with stop_on_signal(running):
            running.wait()
        spark.stop()

    The signal comes but once: a second one does what it did before. Only in the main thread, as Python has it.
    """
    asked = threading.Event()
    before = {number: signal.getsignal(number) for number in signals}

    def stop_all() -> None:
        for one in running:
            one.stop()

    # Waiting blocks the main thread inside py4j, and a handler may not use the same connection: another thread stops.
    stopper = threading.Thread(target=stop_all, name="penstock-stop", daemon=True)

    def handle(number: int, frame: FrameType | None) -> None:
        for each, old in before.items():
            signal.signal(each, old)
        asked.set()
        stopper.start()

    for number in signals:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        if asked.is_set():
            stopper.join()
