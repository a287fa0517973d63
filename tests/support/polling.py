"""Polls for a condition with a timeout; a timeout names the condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

PATIENCE: Final = 60.0
"""Default timeout in seconds: far longer than any condition takes, even under load."""

PAUSE: Final = 0.005


def tries(what: str, *, seconds: float = PATIENCE) -> Iterator[None]:
    """Yield repeatedly until the time is over; then raise AssertionError."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
    raise AssertionError(f"waited {seconds:g} seconds in vain for {what}")


def wait_until(met: Callable[[], object], what: str, *, seconds: float = PATIENCE, pause: float = PAUSE) -> None:
    """Block this thread until the condition is met."""
    for _ in tries(what, seconds=seconds):
        if met():
            return
        time.sleep(pause)


async def until(
    met: Callable[[], object], what: str, *, work: asyncio.Future[Any] | None = None, seconds: float = PATIENCE
) -> None:
    """Wait in the event loop until the condition is met.

    Args:
        work: Future that brings it about. If it fails first, its error is raised.
    """
    for _ in tries(what, seconds=seconds):
        if met():
            return
        if work is not None and work.done():
            work.result()
            raise AssertionError(f"what was at work has ended without {what}")
        await asyncio.sleep(PAUSE)
