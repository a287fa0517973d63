"""``silverfold simulate tengi``: publish files as tables that keep changing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
from silverfold.connectors.common.transport import Address, is_loopback, parse_address
from silverfold.connectors.tengi.protocol.events import Transport
from silverfold.connectors.tengi.protocol.limits import JAVA_CUT
from silverfold.connectors.tengi.server.feed.faults import FeedFaults
from silverfold.connectors.tengi.server.feed.server import FeedServer, first_version, new_epoch
from silverfold.connectors.tengi.server.feed.source import FeedOptions, FeedSource
from silverfold.connectors.tengi.server.feed.tables import PartLimits, SourceTable
from silverfold.connectors.tengi.server.workload.changer import Changer
from silverfold.connectors.tengi.server.workload.files import load_table
from silverfold.connectors.tengi.transports.configuration import PORT, ConfigurationBuilder, Faults, demand

Tables: TypeAlias = Annotated[
    list[str], typer.Option(metavar="NAME=FILE", help="Publish a Parquet or CSV file by a name. May be repeated.")
]
Keys: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=COLUMNS",
        help="Key of a table: columns, with commas between. Default: the first column; with none, rows are only added. "
        "May be repeated.",
    ),
]
Transports: TypeAlias = Annotated[
    list[Transport] | None,
    typer.Option(help="Transport to serve, or to dial with; default: all, at one port. May be repeated."),
]
Receivers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="Connect to a receiver that listens, and do not listen. May be repeated."),
]
TokenVariable: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Environment variable with the token of the handshake; default: none."),
]
Authority: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --dial: encrypt, and trust the authority in a PEM file.")
]
Share: TypeAlias = Annotated[
    float, typer.Option(min=0, max=1, help="Fault, for tests: share of packets it happens to.")
]
LostParts: TypeAlias = Annotated[
    float, typer.Option(min=0, max=1, help="Fault, for tests: share of the parts of snapshots that are lost.")
]
Ends: TypeAlias = Annotated[
    float, typer.Option(min=0, max=1, help="Fault, for tests: share of packets before which a connection ends.")
]
Cut: TypeAlias = Annotated[
    bool,
    typer.Option("--cut", help="Fault, for tests: cut packets at 256 bytes on TCP and WebSocket, as Java does."),
]


def tengi(
    *,
    table: Tables,
    keys: Keys = None,
    transport: Transports = None,
    port: Port = PORT,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    dial: Receivers = None,
    changes_per_second: Annotated[float, typer.Option(min=0, help="Rows changed per second, in each table.")] = 10,
    changes_for: QuietAfter = None,
    seed: Annotated[int, typer.Option(help="Same seed and same files, same sequence of changes.")] = 0,
    history: Annotated[
        int, typer.Option(min=1, help="Changes of each table that a receiver may be behind without a snapshot.")
    ] = 10_000,
    part_rows: Annotated[int, typer.Option(min=1, help="Most rows in one part of a snapshot.")] = 1_000,
    token_env: TokenVariable = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    ca: Authority = None,
    lose: Share = 0.0,
    repeat: Share = 0.0,
    reorder: Share = 0.0,
    drop_parts: LostParts = 0.0,
    close: Ends = 0.0,
    cut: Cut = False,
) -> None:
    """Publish files as tables over tengi, as a change feed, and keep them changing.

    The first line printed says where it listens, or dials. Updates are of one row or several: inserts, updates of some
    columns, deletes and moves of keys. Numbering begins anew at each start, in a new source epoch. Ends on SIGINT or
    SIGTERM with exit code 0.
    """
    receivers = [_receiver(each) for each in dial or []]
    tables = _tables(table, keys or [], history)
    settings = _settings(transport or list(Transport), port, host, _token(token_env), cut=cut)
    if token_env and ca is None and not all(is_loopback(each.host) for each in receivers):
        raise typer.BadParameter("a token is sent to other machines over TLS only: --ca too", param_hint="--token-env")
    settings = _encrypted(settings, certificate, key, ca, is_dialling=bool(receivers))
    source = FeedSource(tables, FeedOptions(part_limits=PartLimits(rows=part_rows)))
    faults = FeedFaults(lose=lose, repeat=repeat, reorder=reorder, drop_parts=drop_parts, close=close)
    server = FeedServer.start(source, settings.build(), dial=receivers, faults=faults, seed=seed)
    with server, stopped_by_signals() as stop:
        _announce(server, host, receivers, tables)
        changers = [Changer(each, server.change, f"{seed}/{each.name}") for each in tables]
        made = change_visibly(changers, Rate(changes_per_second, changes_for), stop, server)
        typer.echo(f"quiet after {counted(made, 'change')}")
        stop.wait()


def _announce(server: FeedServer, host: str, receivers: Sequence[Address], tables: Sequence[SourceTable]) -> None:
    if receivers:
        announce(f"dialling {' and '.join(f'tengi://{each}' for each in receivers)}")
    else:
        by_port: dict[int, list[str]] = {}
        for transport, port in server.ports.items():
            by_port.setdefault(port, []).append(transport.value)
        shown = [f"tengi://{Address(host, port)} ({', '.join(names)})" for port, names in by_port.items()]
        announce(f"listening on {' and '.join(shown)}")
    for each in tables:
        announce(f"table {each.name}: {counted(len(each.rows), 'row')}, {counted(len(each.columns), 'column')}")


def _tables(given: Sequence[str], keys: Sequence[str], history: int) -> list[SourceTable]:
    files, epoch = _named(given, "--table", "NAME=FILE"), new_epoch()
    columns = _named(keys, "--keys", "NAME=COLUMNS")
    if unknown := sorted(columns.keys() - files.keys()):
        raise typer.BadParameter(f"no table {unknown[0]!r} is published", param_hint="--keys")
    chosen = {name: [each.strip() for each in text.split(",") if each.strip()] for name, text in columns.items()}
    version = first_version(epoch)
    return [
        load_table(Path(file), name, chosen.get(name), epoch=epoch, history=history, version=version)
        for name, file in files.items()
    ]


def _named(given: Sequence[str], option: str, form: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for argument in given:
        name, equals, text = argument.partition("=")
        if not name or not equals or name in found or (option == "--table" and not text):
            raise typer.BadParameter(f"{argument!r} is not {form} with a new name", param_hint=option)
        found[name] = text
    return found


def _receiver(text: str) -> Address:
    try:
        return parse_address(text.removeprefix("tengi://"))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not {error}", param_hint="--dial") from error


def _token(name: str | None) -> str | None:
    """Return the token that an environment variable holds. Raises ConfigError."""
    if name is None:
        return None
    secret = Secret(env=name).reveal(os.environ) if name else ""
    if not secret:
        raise typer.BadParameter(f"{name!r} is no variable with a token in it", param_hint="--token-env")
    return secret


def _settings(
    transports: Sequence[Transport], port: int, host: str, token: str | None, *, cut: bool
) -> ConfigurationBuilder:
    builder = ConfigurationBuilder().add_transport(*transports, port=port).set(host=host)
    if cut:
        builder.set(faults=Faults(cut=JAVA_CUT))
    if token is None:
        return builder
    handshake = {"token": token}
    return builder.set(handshake=handshake, handshake_handler=demand(handshake))


def _encrypted(
    builder: ConfigurationBuilder, certificate: Path | None, key: Path | None, ca: Path | None, *, is_dialling: bool
) -> ConfigurationBuilder:
    if key is not None and certificate is None:
        raise typer.BadParameter("--key goes with --certificate", param_hint="--key")
    if (certificate if is_dialling else ca) is not None:
        raise typer.BadParameter("--certificate is for who listens, --ca for who dials", param_hint="--dial")
    return builder if certificate is ca is None else builder.ssl(certificate=certificate, key=key, ca=ca)
