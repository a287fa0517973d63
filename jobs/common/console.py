"""Output for users: wrapped to the terminal's width, or not wrapped in a file or a pipe; and for scripts, as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console

if TYPE_CHECKING:
    from silverfold.pipelines.report import Report

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]

_UNFOLDED = 1_000
"""Width of a line in columns if there is no terminal."""


def console_on(out: TextIO) -> Console:
    """Return a console that colours and wraps for terminals only."""
    return Console(file=out, highlight=False, width=None if out.isatty() else _UNFOLDED)


def print_json(report: Report) -> None:
    """Print a command's result as one object."""
    print(json.dumps(report.model_dump(mode="json"), indent=2, ensure_ascii=False))
