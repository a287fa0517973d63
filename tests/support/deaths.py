"""Lets a process die at a step of its work, without killing the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Died(BaseException):
    """The process is gone: nobody may catch this."""


def dying(step: Callable[..., Any], after: bool) -> Callable[..., Any]:
    """Return what dies instead of the step, or once it is done."""

    def die(*args: Any, **kwargs: Any) -> Any:
        if after:
            step(*args, **kwargs)
        raise Died

    return die
