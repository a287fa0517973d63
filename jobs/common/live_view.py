"""A live view on a terminal: reads again and again, and shows what was read last, until q or a signal.

One thread reads, and the main thread renders, so that a store which does not answer delays neither the keys nor the
clock. Nothing is written but the terminal, whose screen and settings are as before when the view ends.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Final, TextIO, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live

from silverfold.conf.errors import ConfigError
from silverfold.connectors.common.stopping import ending

_T = TypeVar("_T")

PAUSE: Final = 2.0
"""Seconds between the end of a reading and the next one."""

_TICK: Final = 0.5
"""Seconds between two renderings: ages grow, and the terminal may have another size."""


def require_terminal(key: str, out: TextIO) -> None:
    """Raise ConfigError unless the output is a terminal.

    Args:
        key: The option that needs one.
    """
    if not out.isatty():
        allowed = "it where the output is a terminal; without it, or with --json, status is printed once"
        raise ConfigError(file="command line", key=key, found="output that is no terminal", allowed=allowed)


def watch(read: Callable[[], _T], picture: Callable[[_T | None, float], RenderableType], out: TextIO) -> None:
    """Show what is read until q or a signal ends it. Main thread only.

    If a reading is at work then, the process ends at once, with 0: the store's library cannot be interrupted.

    Args:
        read: Reads once. Called in another thread; an error of it ends the view, and is raised here.
        picture: Returns what to show of the newest reading, None before the first, and of its age in seconds, or how
            long the first has been at work.
    """
    ended, results = threading.Event(), SimpleQueue[Future[_T]]()
    reader = threading.Thread(target=_read_on, args=(read, results, ended), name="read", daemon=True)
    with suppress(KeyboardInterrupt), _signals_interrupt(), _keys() as is_over, _on_screen(out) as live:
        newest, since = None, time.monotonic()
        reader.start()
        while True:
            with suppress(Empty):
                newest, since = results.get_nowait().result(), time.monotonic()
            live.update(picture(newest, time.monotonic() - since), refresh=True)
            if is_over(_TICK):
                break
    ended.set()
    reader.join(_TICK)
    if reader.is_alive():
        out.flush()
        os._exit(0)


def _read_on(read: Callable[[], _T], results: SimpleQueue[Future[_T]], ended: threading.Event) -> None:
    """Read until the view has ended, or a reading fails."""
    while not ended.is_set():
        result = Future[_T]()
        try:
            result.set_result(read())
        except BaseException as error:
            result.set_exception(error)
            return
        finally:
            results.put(result)
        ended.wait(PAUSE)


def _on_screen(out: TextIO) -> Live:
    """Return a view that takes the whole screen, and is cut off where it ends."""
    return Live(console=Console(file=out, highlight=False), screen=True, auto_refresh=False)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Let the signals that end a job raise KeyboardInterrupt inside the block."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ending()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits some seconds, and returns early, and True, for a q or the end of the input.

    Without a terminal as input, it only waits.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        yield _sleep
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def is_over(seconds: float) -> bool:
        if not select.select([terminal], [], [], seconds)[0]:
            return False
        pressed = os.read(terminal, 1024)
        return not pressed or b"q" in pressed.lower()

    try:
        tty.setcbreak(terminal, termios.TCSANOW)  # keys come without a line's end; what was typed before counts
        yield is_over
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
