"""Waits for what must come to be, and no longer than that can take: a test that waits in vain tells what for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

PATIENCE: Final = 60.0
"""Seconds: far more than anything takes that comes at all, whatever else is running."""

PAUSE: Final = 0.005


def tries(what: str, *, seconds: float = PATIENCE) -> Iterator[None]:
    """Yield again and again, until so much time is over; then raise AssertionError."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
    raise AssertionError(f"waited {seconds:g} seconds in vain for {what}")


def wait_until(met: Callable[[], object], what: str, *, seconds: float = PATIENCE, pause: float = PAUSE) -> None:
    """Wait in this thread until something is the case."""
    for _ in tries(what, seconds=seconds):
        if met():
            return
        time.sleep(pause)


async def until(
    met: Callable[[], object], what: str, *, work: asyncio.Future[Any] | None = None, seconds: float = PATIENCE
) -> None:
    """Wait in this event loop until something is the case.

    Args:
        work: What brings it about. When that fails first, its error is raised.
    """
    for _ in tries(what, seconds=seconds):
        if met():
            return
        if work is not None and work.done():
            work.result()
            raise AssertionError(f"what was at work has ended without {what}")
        await asyncio.sleep(PAUSE)
