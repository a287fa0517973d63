"""Output for users: wrapped to the terminal's width, or not wrapped in a file or a pipe; and for scripts, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TextIO

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


def print_json(result: Report | Mapping[str, Any] | Sequence[Mapping[str, Any]], out: TextIO | None = None) -> None:
    """Print a command's result as one object or array: indented on a terminal, else on one line."""
    out = out or sys.stdout
    content = result if isinstance(result, Mapping | Sequence) else result.model_dump(mode="json")
    print(json.dumps(content, indent=2 if out.isatty() else None, ensure_ascii=False), file=out)
