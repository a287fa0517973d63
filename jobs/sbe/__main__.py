"""``silverfold sbe``: the SBE core on the command line, for users and scripts."""

from __future__ import annotations

import typer

from silverfold.jobs.cli import main_of
from silverfold.jobs.sbe.check import check
from silverfold.jobs.sbe.decode import decode
from silverfold.jobs.sbe.validate import validate

app = typer.Typer(no_args_is_help=True)


@app.callback()
def sbe() -> None:
    """Decode messages of Simple Binary Encoding, and judge and compare their schemas."""


for _command in (decode, validate, check):
    app.command()(_command)


if __name__ == "__main__":
    main_of("sbe")
