"""``silverfold simulate sqlitecloud-webhooks``: post changes of a simulated table to a feed, as the vendor would."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import urlsplit

import typer

from silverfold.conf.secrets import Secret
from silverfold.conf.text import counted, without_secrets
from silverfold.connectors.common.rate import Rate
from silverfold.connectors.common.simulation import announce, change_visibly
from silverfold.connectors.common.stopping import stopped_by_signals
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Encoding, Scheme, Signing
from silverfold.connectors.sqlitecloud_webhooks.server.orders import DATABASE, KEY, TABLE
from silverfold.connectors.sqlitecloud_webhooks.server.source import WebhookSource


def webhooks(
    *,
    to: Annotated[str, typer.Option(metavar="URL", help="Where the feed listens: http://127.0.0.1:8090/.")],
    secret_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the secret; default: sign nothing.")
    ] = None,
    header: Annotated[str, typer.Option(help="As options.header of the feed.")] = "X-Webhook-Signature",
    scheme: Annotated[Scheme, typer.Option(help="As options.scheme.")] = "hmac-sha256",
    encoding: Annotated[Encoding, typer.Option(help="As options.encoding.")] = "hex",
    prefix: Annotated[str, typer.Option(help="As options.prefix.")] = "",
    changes_per_second: Annotated[float, typer.Option(min=0, help="Rows changed per second.")] = 10,
    changes_for: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="End after that; default: never.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same sequence of changes.")] = 0,
) -> None:
    """Post the changes of a made-up table of orders, one request each, as SQLite Cloud's webhooks would.

    The first line printed names the table. A request that is not taken is sent again, in order, within the time. Ends
    with exit code 0 when the time is over and on SIGINT or SIGTERM, with 3 when the feed cannot be reached, with 2 when
    it refuses.
    """
    if not to.startswith(("http://", "https://")) or not _has_host(to):
        raise typer.BadParameter(f"{to!r} is not a URL of http or https", param_hint="--to")
    signing = None if secret_env is None else Signing(header, scheme, encoding, prefix)
    secret = "" if secret_env is None else Secret(env=secret_env).reveal(os.environ)
    with (
        stopped_by_signals() as stop,
        WebhookSource(
            to, signing=signing, secret=secret, seed=seed, stopped_within=stop.wait, seconds=changes_for
        ) as source,
    ):
        announce(f"posting to {without_secrets(to)}: table {TABLE} of {DATABASE}, key {KEY}")
        made = change_visibly([source], Rate(changes_per_second, changes_for), stop)
    typer.echo(f"quiet after {counted(made, 'change')}, {counted(len(source.orders.rows), 'row')}")


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname) and urlsplit(url).port != 0
    except ValueError:  # invalid port
        return False
