"""``silverfold simulate sqlitecloud``: serve SQLite databases as SQLite Cloud does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from silverfold.conf.secrets import Secret
from silverfold.conf.text import counted
from silverfold.connectors.common.rate import Rate
from silverfold.connectors.common.simulation import (
    Certificate,
    CertificateKey,
    Port,
    QuietAfter,
    announce,
    change_visibly,
)
from silverfold.connectors.common.stopping import stopped_by_signals
from silverfold.connectors.common.transport import Address
from silverfold.connectors.sqlitecloud.client.settings import PORT
from silverfold.connectors.sqlitecloud.protocol.statements import is_safe_word
from silverfold.connectors.sqlitecloud.server.options import Channels, Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer, tls_context
from silverfold.connectors.sqlitecloud.server.state import Credentials
from silverfold.connectors.sqlitecloud.server.workload.workload import Workload

DatabaseFiles: TypeAlias = Annotated[
    list[Path],
    typer.Option(metavar="FILE", help="An SQLite database. Clients know it by its name. May be repeated."),
]
Hosts: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="Address to listen on; default: 127.0.0.1. May be repeated.")
]
KeyVariable: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Environment variable with the API key that lets in; default: all are let."),
]
PasswordVariable: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Environment variable with that user's password.")
]
RowsChanged: TypeAlias = Annotated[
    float,
    typer.Option(
        min=0, help="Rows changed per second in each database, in all its tables; 0: only clients change them."
    ),
]
ChannelKind: TypeAlias = Annotated[
    Channels | None,
    typer.Option(
        help="What a channel is: apart from tables, or also a table's name, so that LISTEN foo is told what is "
        "written to foo. Default: tables with the old words, else apart."
    ),
]
NotificationPacing: TypeAlias = Annotated[
    Pacing | None,
    typer.Option(
        help="How notifications are written. Official clients need safe, which on plain TCP is 50 a second. "
        "Default: safe with a certificate, joined without."
    ),
]


def sqlitecloud(
    *,
    database: DatabaseFiles,
    port: Port = PORT,
    host: Hosts = None,
    apikey_env: KeyVariable = None,
    user: Annotated[str | None, typer.Option(help="Instead: the user that is let in, with --password-env.")] = None,
    password_env: PasswordVariable = None,
    changes_per_second: RowsChanged = 10,
    changes_for: QuietAfter = None,
    seed: Annotated[int, typer.Option(help="Same seed and same database, same sequence of changes.")] = 0,
    dialect: Annotated[Vocabulary, typer.Option(help="Reserved words of notifications.")] = Vocabulary.NEW,
    channels: ChannelKind = None,
    capture: Annotated[
        CaptureMode, typer.Option(help="How SQLite reports changes: net per key, or step by step.")
    ] = CaptureMode.SESSION,
    pacing: NotificationPacing = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
) -> None:
    """Serve SQLite databases as SQLite Cloud does, with pub/sub, and keep their tables changing.

    The files themselves are changed: by what clients send, and, unless the rate is 0, by made-up inserts, updates,
    deletes and moves of keys in all their tables. The first line printed says where it listens, the next ones an
    address of each database for feeds and clients; it has a key since they ask for one, any will do, unless some
    credentials are asked for, which stand in no address. Ends on SIGINT or SIGTERM with exit code 0.
    """
    files = {path.name: path for path in database}
    if len(files) < len(database):
        raise typer.BadParameter("two files of one name", param_hint="--database")
    hosts = host or ["127.0.0.1"]
    if len(set(hosts)) < len(hosts):
        raise typer.BadParameter("one host twice", param_hint="--host")
    if key is not None and certificate is None:
        raise typer.BadParameter("--key goes with --certificate", param_hint="--key")
    tls = None if certificate is None else tls_context(certificate, key)
    credentials = _credentials(apikey_env, user, password_env)
    paced = pacing or (Pacing.JOINED if tls is None else Pacing.SAFE)
    options = ServerOptions(capture=capture, dialect=Dialect(words=dialect), channels=channels, pacing=paced)
    server = SqliteCloudServer.start(files, port, host=hosts, tls=tls, credentials=credentials, options=options)
    with server, stopped_by_signals() as stop:
        changers = [Workload(server.own_session(name), seed) for name in files] if changes_per_second else []
        announce(f"listening on {' and '.join(str(Address(each, server.port)) for each in hosts)}")
        for name in files:
            address = server.address(name, apikey="any" if credentials is None else None)
            typer.echo(address if is_safe_word(name) else f"{name!r} is not one word: no connection string can name it")
        made = change_visibly(changers, Rate(changes_per_second, changes_for), stop, server)
        typer.echo(f"quiet after {counted(made, 'change')}")
        stop.wait()


def _credentials(apikey_env: str | None, user: str | None, password_env: str | None) -> Credentials | None:
    """Return the credentials clients need, with secrets read; None accepts anybody. Raises ConfigError."""
    if (user is None) != (password_env is None) or (user is not None and apikey_env is not None):
        raise typer.BadParameter("--user with --password-env, or --apikey-env alone")
    name = apikey_env if password_env is None else password_env
    if name is None:
        return None
    secret = Secret(env=name).reveal(os.environ) if name else ""
    if not secret:
        raise typer.BadParameter(f"{name!r} is no variable with a secret in it: without one, all would be let in")
    return Credentials(secret, user)
