"""Graceful shutdown of long-running jobs by signals."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final

_TWICE: Final = 0.5
"""Seconds within which a second signal counts as a repeat: ``timeout`` signals a process, then its process group."""


def ending() -> Sequence[signal.Signals]:
    """Return the signals that end a job: SIGHUP, of a terminal that closes, unless the process ignores it (nohup)."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if is_ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_at_next_signal() -> None:
    """Make the next signal kill the process by its default action; an exception could leave a lock held forever."""
    until = time.monotonic() + _TWICE

    def end(number: int, _frame: object) -> None:
        if time.monotonic() >= until:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in ending():
        signal.signal(number, end)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that a signal of `ending` sets; a second one, `_TWICE` later or more, ends the process at once.

    Only in the main thread. On a terminal a message says so, because work in progress may take a while to end. After
    the block the previous signal handlers are restored, unless a signal came: then the next one still ends the process.
    """
    stop = threading.Event()
    signals = SimpleQueue[bool]()

    def end(*_: object) -> None:
        signals.put(True)  # not `stop.set`: the interrupted code may hold the event's lock
        end_at_next_signal()

    def wait_for_signal() -> None:
        if signals.get():
            stop.set()
            if sys.stderr.isatty():
                print("silverfold: ending what is at work; once more ends it at once", file=sys.stderr)

    waiter = threading.Thread(target=wait_for_signal, name="heed signals", daemon=True)
    waiter.start()
    before = {number: signal.signal(number, end) for number in ending()}
    try:
        yield stop
    finally:
        if all(signal.getsignal(number) is end for number in before):
            for number, handler in before.items():
                signal.signal(number, handler)
        signals.put(False)
        waiter.join()
