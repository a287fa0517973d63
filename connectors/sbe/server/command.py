"""``silverfold simulate sbe``: send the messages of a simulated market."""

from __future__ import annotations

from typing import Annotated

import typer

from silverfold.conf.text import counted
from silverfold.connectors.common.rate import Rate
from silverfold.connectors.common.simulation import Host, Port, QuietAfter, announce, change_visibly
from silverfold.connectors.common.stopping import stopped_by_signals
from silverfold.connectors.sbe.server.server import MarketServer
from silverfold.connectors.wire.framing.framings import find_framing


def sbe(
    *,
    framing: Annotated[
        str, typer.Option(metavar="NAME", help="How messages are framed; silverfold sbe decode --help lists the names.")
    ] = "sofh",
    port: Port = 0,
    host: Host = "127.0.0.1",
    changes_per_second: Annotated[float, typer.Option(min=0, help="Book entries and trades per second.")] = 10,
    changes_for: QuietAfter = None,
    seed: Annotated[int, typer.Option(help="Same seed, same sequence of messages.")] = 0,
) -> None:
    """Send a made-up market's messages in Simple Binary Encoding: book entries with update actions, and trades.

    Feeds read them with the schema builtin and the same framing. The first line printed says where it listens. A client
    gets the securities and the books as they stand, then every message. Ends on SIGINT or SIGTERM with exit code 0.
    """
    try:
        chosen = find_framing(framing)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--framing") from None
    if chosen.length is None and chosen.unframed == "whole":
        raise typer.BadParameter(f"{framing} is for one message, there are many", param_hint="--framing")
    if chosen.needs_datagrams:
        raise typer.BadParameter(f"{framing} ends packets with their datagrams, not over TCP", param_hint="--framing")
    with MarketServer.start(port, framing=chosen, host=host, seed=seed) as server, stopped_by_signals() as stop:
        announce(f"listening on {host}:{server.port}")
        made = change_visibly([server], Rate(changes_per_second, changes_for), stop, server)
        typer.echo(f"quiet after {counted(made, 'change')}")
        stop.wait()
