"""Prints what people read: as wide as their terminal, and unfolded where a file or a pipe takes it."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console

_UNFOLDED = 1_000
"""Columns of a line, where no terminal sets them."""


def console_on(out: TextIO) -> Console:
    """Return a console that colours and folds for terminals only."""
    return Console(file=out, highlight=False, width=None if out.isatty() else _UNFOLDED)


def counted(count: int, noun: str) -> str:
    """Return how many there are of something: ``1 row``, ``2,000 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
