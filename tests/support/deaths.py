"""Simulates the death of a process at a step of its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Died(BaseException):
    """Simulated death of the process; must not be caught by the code under test."""


def dying(step: Callable[..., Any], after: bool) -> Callable[..., Any]:
    """Return the step, wrapped to raise `Died` before or after its work."""

    def die(*args: Any, **kwargs: Any) -> Any:
        if after:
            step(*args, **kwargs)
        raise Died

    return die
