"""Lets a job that runs for good end in order when it is told to."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM)

_TWICE: Final = 0.5
"""Seconds in which a second signal is the first one again: ``timeout`` sends one to a process, and one to its group."""


def let_the_next_end_at_once() -> None:
    """Let the next signal end the process by itself, not by an exception, which could leave a lock held for good."""
    until = time.monotonic() + _TWICE

    def end(number: int, _frame: object) -> None:
        if time.monotonic() >= until:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in ENDING:
        signal.signal(number, end)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set; a second signal, `_TWICE` later or more, ends the process at once.

    Only in the main thread. Whoever presses Ctrl-C is told so, for what is at work may take its time to end. After the
    block, signals do what they did before, unless one came: then what goes on behind it ends the process as well.
    """
    stop = threading.Event()
    heard = SimpleQueue[bool]()

    def end(*_: object) -> None:
        heard.put(True)  # not `stop.set`: whom the signal interrupts may hold the event's lock
        let_the_next_end_at_once()

    def heed() -> None:
        if heard.get():
            stop.set()
            if sys.stderr.isatty():
                print("silverfold: ending what is at work; once more ends it at once", file=sys.stderr)

    heeding = threading.Thread(target=heed, name="heed signals", daemon=True)
    heeding.start()
    before = {number: signal.signal(number, end) for number in ENDING}
    try:
        yield stop
    finally:
        if all(signal.getsignal(number) is end for number in ENDING):
            for number, handler in before.items():
                signal.signal(number, handler)
        heard.put(False)
        heeding.join()
