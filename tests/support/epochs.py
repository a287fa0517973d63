"""Runs a receiver beside a test: one epoch, or one after another as the receive loop does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.frames import FrameSink, Receiver, Resume


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run work while the block runs, then cancel it and wait for its end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def epochs(
    receiver: Receiver,
    sink: FrameSink,
    resume_of: Callable[[int], Resume] = Resume,
    *,
    ends: type[SilverfoldError] = SilverfoldError,
) -> None:
    """Run epochs for ever.

    Args:
        resume_of: Returns where an epoch begins, by its number.
        ends: Error that ends an epoch; any other is raised.
    """
    for number in count(1):
        with suppress(ends):
            await receiver.run(sink, resume_of(number))
        await asyncio.sleep(0.01)
