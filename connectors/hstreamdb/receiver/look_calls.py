"""Calls of a look at the source: a few at once, each for itself; one that fails again and again is a warning."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.frames import Frame, mark

_T = TypeVar("_T")

_AT_ONCE: Final = 16
"""Calls in flight together: a stream may have a thousand shards, and each shard some gaps."""
_MOST_FAILURES: Final = 3
"""Failures of one call in a row that are a warning: nodes that restart, or hand a shard over, fail once or twice."""


class LookCalls:
    """The calls of an epoch's looks. A call that fails costs only what it is for.

    Args:
        failures: Failures in a row of each call, by its name. Is kept up to date.
    """

    def __init__(self, stream: str, failures: Counter[str]) -> None:
        self._stream, self._failures = stream, failures
        self._failing: dict[str, str] = {}

    async def each(self, calls: Iterable[tuple[str, Callable[[], Awaitable[_T]]]]) -> list[_T | None]:
        """Return the results of calls, in their order; None for one that failed.

        Args:
            calls: The name of each, by which its failures are counted, and what begins it.
        """
        turns = asyncio.Semaphore(_AT_ONCE)

        async def answer(begin: Callable[[], Awaitable[_T]]) -> _T | SilverfoldError | TimeoutError:
            async with turns:
                try:
                    return await begin()
                except (SilverfoldError, TimeoutError) as error:
                    return error

        found, errors = list[_T | None](), dict[str, Exception]()
        calls = list(calls)
        for (name, _), each in zip(calls, await asyncio.gather(*(answer(begin) for _, begin in calls)), strict=True):
            if isinstance(each, SilverfoldError | TimeoutError):
                errors[name] = each
                found.append(None)
            else:
                found.append(each)
        self._count([name for name, _ in calls], errors)
        return found

    def _count(self, names: Iterable[str], errors: Mapping[str, Exception]) -> None:
        for name in set(names) - errors.keys():
            self._failures.pop(name, None)
        for name, error in errors.items():
            self._failures[name] += 1
            if self._failures[name] == _MOST_FAILURES:
                self._failing[name] = str(error) or "no answer in time"

    async def one(self, name: str, begin: Callable[[], Awaitable[_T]]) -> _T | None:
        """Return the result of a call; None if it failed."""
        (found,) = await self.each([(name, begin)])
        return found

    def failing(self) -> list[Frame]:
        """Return a mark of the calls that fail again and again, each once until it succeeds."""
        if not self._failing:
            return []
        failing, self._failing = self._failing, {}
        why = "calls that tell what is lost or late fail again and again"
        return [mark("look fails", stream=self._stream, level="warning", reason=why, calls=failing)]
