"""Lets a job that runs for good end in order when it is told to."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set, and put back what they did before. Only in the main thread."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
