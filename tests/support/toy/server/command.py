"""``silverfold simulate toy``: print the lines of the source."""

from __future__ import annotations

from typing import Annotated

import typer

from toy.protocol import line


def toy(*, lines: Annotated[int, typer.Option(min=1, help="Number of lines.")] = 2) -> None:
    """Print the lines of a toy."""
    for number in range(lines):
        typer.echo(line(number))
