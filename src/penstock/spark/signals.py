"""A program that is asked to end (SIGTERM, Ctrl-C) finishes the micro-batch under way first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from pyspark import SparkContext, TaskContext


class Stoppable(Protocol):
    """What can be stopped: a `Running`, or a query of Spark."""

    def stop(self) -> None:
        """Stop it."""


@contextmanager
def stop_on_signal(
    *running: Stoppable, signals: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)
) -> Iterator[threading.Event]:
    """Stop what is running when a signal comes; waiting for it then ends as if the input had ended.

    ::

        with stop_on_signal(running):
            running.wait()
        spark.stop()

    The signal comes but once: a second one does what it did before. Only in the main thread, as Python has it. Gives an
    event that is set once a signal came.
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
        yield asked
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        if asked.is_set():
            stopper.join()


def interrupts_are_free() -> bool:
    """Whether Ctrl-C in this thread would do what Python or Spark have it do, and nobody else has said otherwise."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    # Spark's handler cancels the jobs of the micro-batch under way, and the query fails.
    return handler is signal.default_int_handler or getattr(handler, "__module__", "") == SparkContext.__module__


def ignore_interrupts() -> None:
    """Have Ctrl-C, which a terminal sends to all its processes, not end the Python worker that this runs in."""
    if TaskContext.get() is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
