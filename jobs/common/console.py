"""Output for users: wrapped to the terminal's width, or not wrapped in a file or a pipe."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console

_UNFOLDED = 1_000
"""Width of a line in columns if there is no terminal."""


def console_on(out: TextIO) -> Console:
    """Return a console that colours and wraps for terminals only."""
    return Console(file=out, highlight=False, width=None if out.isatty() else _UNFOLDED)
