"""Runs pieces of work beside each other, for as long as all of them go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def until_first_ends(*parts: Awaitable[object]) -> None:
    """Run the parts until one of them ends, then cancel the others; all have ended on return. Safe to cancel.

    Unlike in `asyncio.TaskGroup`, a part that ends in order ends the others as well, and an error comes out as it is.

    Raises:
        BaseException: What the part raised that ended first; of several at once, the one named first.
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
