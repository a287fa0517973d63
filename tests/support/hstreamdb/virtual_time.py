"""An event loop whose time passes only while nothing else is to do: hours take no time, and every run is the same."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen"
            self.now += max(timeout, 0.0)
        return ready


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    selector = _JumpingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]  # the loop takes its time from this method
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)
