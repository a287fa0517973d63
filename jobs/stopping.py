"""Lets a job that runs for good end in order when it is told to."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set; a second signal ends the process at once. Only in the main thread.

    After the block, signals do what they did before.
    """
    stop = threading.Event()

    def end(*_: object) -> None:
        stop.set()
        for number in before:
            signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
