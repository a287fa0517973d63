"""What the commands of simulators share: some of their options, lines printed, and changes at a steady rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from silverfold.conf.errors import SourceUnavailable
from silverfold.conf.text import in_one_line
from silverfold.connectors.common.rate import Changeable, Rate, change_steadily
from silverfold.connectors.common.server_thread import ServerThread

Host: TypeAlias = Annotated[str, typer.Option(help="Address to listen on. There is no authentication.")]
Port: TypeAlias = Annotated[int, typer.Option(min=0, max=65_535, help="TCP port; 0 for any free one.")]
QuietAfter: TypeAlias = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Be quiet after that; default: never.")
]


def announce(line: str) -> None:
    """Print a line, with the control characters of names in it escaped."""
    typer.echo(in_one_line(line))


def change_visibly(
    changers: Sequence[Changeable], rate: Rate, stop: threading.Event, server: ServerThread | None = None
) -> int:
    """Make changes until the time is over or ``stop`` is set; return their number. A terminal shows the progress.

    Args:
        changers: Each is changed at the rate.
        server: The server whose clients are counted in the progress.

    Raises:
        SourceUnavailable: A change failed before ``stop`` was set.
    """
    made = 0
    with Console().status("changing") as status:

        def progress(changes: int) -> None:
            nonlocal made
            made += changes
            status.update(f"{made} changes" + (f", {server.client_count} clients" if server else ""))

        try:
            change_steadily(changers, rate, clock=time.monotonic, stopped_within=stop.wait, progress=progress)
        except SourceUnavailable:
            if not stop.is_set():
                raise
    return made
