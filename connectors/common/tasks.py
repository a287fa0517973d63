"""Runs awaitables concurrently until one of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def until_first_ends(*parts: Awaitable[object]) -> None:
    """Run the parts until one of them ends, then cancel the others; all have ended on return. Safe to cancel.

    Unlike in `asyncio.TaskGroup`, a part that returns ends the others as well, and an error is raised unwrapped.

    Raises:
        BaseException: The error of the part that ended first; of several at once, the first in argument order.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if task in ended:
            task.result()
