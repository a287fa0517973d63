"""``silverfold sbe``: SBE schemas and messages, without a feed."""

from __future__ import annotations

import typer

from jobs.cli import main_of
from jobs.sbe_check import check

app = typer.Typer(no_args_is_help=True)
app.command()(check)


@app.callback()
def sbe() -> None:
    """Work with SBE schemas and the messages they describe."""


if __name__ == "__main__":
    main_of("sbe")
