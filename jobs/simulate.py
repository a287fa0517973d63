"""``silverfold simulate``: run a connector's simulated source, to try feeds without the foreign system.

A simulator prints its address, changes its tables for the given time, and then serves them unchanged until it is
interrupted or terminated; it ends with exit code 0.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from silverfold.conf.errors import InvalidValue, LocalProtocolError
from silverfold.conf.secrets import Secret
from silverfold.connectors.common.rate import Changeable, Rate, change_steadily
from silverfold.connectors.common.transport import Address
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts
from silverfold.connectors.sqlitecloud.client.settings import PORT
from silverfold.connectors.sqlitecloud.protocol.statements import is_safe_word
from silverfold.connectors.sqlitecloud.server.options import Channels, Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import counted
from silverfold.jobs.common.logs import start_logs
from silverfold.jobs.common.stopping import stopped_by_signals
from silverfold.jobs.simulate_webhooks import webhooks

if TYPE_CHECKING:
    from silverfold.connectors.common.server_thread import Server
    from silverfold.connectors.deephaven.server.server import TableServer
    from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
    from silverfold.connectors.sqlitecloud.server.state import Credentials

app = typer.Typer(no_args_is_help=True)
app.command("sqlitecloud-webhooks")(webhooks)


@app.callback()
def simulate() -> None:
    """Run a connector's own source, and keep its tables changing."""


@app.command()
def deephaven(
    *,
    table: Annotated[
        list[str], typer.Option(metavar="NAME=FILE", help="Export a Parquet or CSV file by a name. May be repeated.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="TCP port; 0 for any free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on. There is no authentication.")] = "127.0.0.1",
    changes_per_second: Annotated[float, typer.Option(min=0, help="Rows changed per second, in each table.")] = 10,
    changes_for: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Be quiet after that; default: never.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same sequence of updates.")] = 0,
    queue_size: Annotated[int, typer.Option(min=1, help="Frames queued per client.")] = 1000,
    buffer_size: Annotated[int, typer.Option(min=64, help="Longest message, in bytes.")] = 65_536,
    send_wait_ms: Annotated[int, typer.Option(min=0, help="A client whose queue is full that long is dropped.")] = 5000,
    schema: Annotated[
        str, typer.Option(metavar="FILE", help="XML of the transport, or builtin: our reconstruction.")
    ] = "builtin",
    prefix_counts: Annotated[
        PrefixCounts, typer.Option(help="What the length before each message counts.")
    ] = PrefixCounts.MESSAGE,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TABLE:FILTER", help="Export the rows of a table that satisfy a filter, too."),
    ] = None,
    last_by: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TABLE:COLUMNS", help="Export the last row for each value of some columns, too."),
    ] = None,
    export_after: Annotated[
        list[str] | None,
        typer.Option(metavar="SECONDS:NAME=FILE", help="Export another, or another by a name, later. May be repeated."),
    ] = None,
    unexport_after: Annotated[
        list[str] | None,
        typer.Option(metavar="SECONDS:NAME", help="Let nobody subscribe any more, later. May be repeated."),
    ] = None,
) -> None:
    """Serve files as live tables over Deephaven's SBE transport.

    The first line printed says where it listens. Each update adds, modifies and removes several rows, modelled on
    those that are there. Ends on SIGINT or SIGTERM with exit code 0.
    """
    from silverfold.connectors.deephaven.protocol.schemas import load_transport_schema  # noqa: PLC0415 - as above
    from silverfold.connectors.deephaven.server.server import TableServer  # noqa: PLC0415 - as above
    from silverfold.connectors.deephaven.server.sources import load_file  # noqa: PLC0415 - as above
    from silverfold.connectors.deephaven.server.workload import Changer  # noqa: PLC0415 - a simulator loads no other's server

    start_logs("info")
    tables = {name: load_file(file) for name, file in _named_files(table).items()}
    views = _views(tables, where or [], last_by or [])
    later = [(after, name, load_file(file)) for after, name, file in _files_later(export_after or [])]
    ends = [_later(argument, "--unexport-after") for argument in unexport_after or []]
    for _, name in ends:
        if name not in {*tables, *views, *(each for _, each, _ in later)}:
            raise typer.BadParameter(f"no table {name!r} is exported", param_hint="--unexport-after")
    server = TableServer.start(
        port,
        host=host,
        msg_queue_size=queue_size,
        msg_buffer_size=buffer_size,
        send_wait_time_millis=send_wait_ms,
        schema=load_transport_schema(schema),
        prefix_counts=prefix_counts,
    )
    with server, stopped_by_signals() as stop:
        _announce(server, host, tables)
        for after, name, each in later:
            _do_after(after, stop, partial(server.export_table, name, each), f"table {name} is exported")
        for after, name in ends:
            _do_after(after, stop, partial(server.unexport_table, name), f"table {name} is not exported any more")
        for name, view in views.items():
            server.export_table(name, view)
            typer.echo(f"table {name}: {counted(len(view), 'row')}, {counted(len(view.columns), 'column')}")
        named = [*tables.items(), *((name, each) for _, name, each in later)]
        changers = [Changer(each, f"{seed}/{name}") for name, each in named]
        loaded = sum(each.updates for _, each in named)
        made = _change(changers, Rate(changes_per_second, changes_for), stop, server)
        updates = sum(each.updates for _, each in named) - loaded
        typer.echo(f"quiet after {counted(made, 'change')} in {counted(updates, 'update')}")
        stop.wait()


@app.command()
def sbe(
    *,
    framing: Annotated[
        str, typer.Option(metavar="NAME", help="How messages are framed; silverfold sbe decode --help lists the names.")
    ] = "sofh",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="TCP port; 0 for any free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on. There is no authentication.")] = "127.0.0.1",
    changes_per_second: Annotated[float, typer.Option(min=0, help="Book entries and trades per second.")] = 10,
    changes_for: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Be quiet after that; default: never.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same sequence of messages.")] = 0,
) -> None:
    """Send a made-up market's messages in Simple Binary Encoding: book entries with update actions, and trades.

    Feeds read them with the schema builtin and the same framing. The first line printed says where it listens. A client
    gets the securities and the books as they stand, then every message. Ends on SIGINT or SIGTERM with exit code 0.
    """
    from silverfold.connectors.sbe.server import MarketServer  # noqa: PLC0415 - a simulator loads no other's server
    from silverfold.jobs.sbe.input import framing_called  # noqa: PLC0415 - as above

    start_logs("info")
    chosen = framing_called(framing)
    if chosen.length is None and chosen.unframed == "whole":
        raise typer.BadParameter(f"{framing} is for one message, there are many", param_hint="--framing")
    with MarketServer.start(port, framing=chosen, host=host, seed=seed) as server, stopped_by_signals() as stop:
        typer.echo(f"listening on {host}:{server.port}")
        made = _change([server], Rate(changes_per_second, changes_for), stop, server)
        typer.echo(f"quiet after {made} changes")
        stop.wait()


@app.command()
def sqlitecloud(
    *,
    database: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="An SQLite database. Clients know it by its name. May be repeated."),
    ],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="TCP port; 0 for any free one.")] = PORT,
    host: Annotated[
        list[str] | None, typer.Option(help="Address to listen on; default: 127.0.0.1. May be repeated.")
    ] = None,
    apikey_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable with the API key that lets in; default: all are let."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Instead: the user that is let in, with --password-env.")] = None,
    password_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with that user's password.")
    ] = None,
    changes_per_second: Annotated[
        float,
        typer.Option(
            min=0, help="Rows changed per second in each database, in all its tables; 0: only clients change them."
        ),
    ] = 10,
    changes_for: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Be quiet after that; default: never.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed and same database, same sequence of changes.")] = 0,
    dialect: Annotated[Vocabulary, typer.Option(help="Reserved words of notifications.")] = Vocabulary.NEW,
    channels: Annotated[
        Channels | None,
        typer.Option(
            help="What a channel is: apart from tables, or also a table's name, so that LISTEN foo is told what is "
            "written to foo. Default: tables with the old words, else apart."
        ),
    ] = None,
    capture: Annotated[
        CaptureMode, typer.Option(help="How SQLite reports changes: net per key, or step by step.")
    ] = CaptureMode.SESSION,
    pacing: Annotated[
        Pacing | None,
        typer.Option(
            help="How notifications are written. Official clients need safe, which on plain TCP is 50 a second. "
            "Default: safe with a certificate, joined without."
        ),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file of a certificate: connections are encrypted.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file of its key, where that is not in the same file.")
    ] = None,
) -> None:
    """Serve SQLite databases as SQLite Cloud does, with pub/sub, and keep their tables changing.

    The files themselves are changed: by what clients send, and, unless the rate is 0, by made-up inserts, updates,
    deletes and moves of keys in all their tables. The first line printed says where it listens, the next ones an
    address of each database for feeds and clients; it has a key since they ask for one, any will do, unless some
    credentials are asked for, which stand in no address. Ends on SIGINT or SIGTERM with exit code 0.
    """
    from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer, tls_context  # noqa: PLC0415 - loads no other's server
    from silverfold.connectors.sqlitecloud.server.workload.workload import Workload  # noqa: PLC0415 - as above

    start_logs("info")
    files = {path.name: path for path in database}
    if len(files) < len(database):
        raise typer.BadParameter("two files of one name", param_hint="--database")
    if key is not None and certificate is None:
        raise typer.BadParameter("--key goes with --certificate", param_hint="--key")
    tls = None if certificate is None else tls_context(certificate, key)
    credentials = _credentials(apikey_env, user, password_env)
    paced = pacing or (Pacing.JOINED if tls is None else Pacing.SAFE)
    behaviour = ServerOptions(capture=capture, dialect=Dialect(words=dialect), channels=channels, pacing=paced)
    hosts = host or ["127.0.0.1"]
    server = SqliteCloudServer.start(files, port, host=hosts, tls=tls, credentials=credentials, behaviour=behaviour)
    with server, stopped_by_signals() as stop:
        changers = [Workload(server.own_session(name), seed) for name in files] if changes_per_second else []
        typer.echo(f"listening on {' and '.join(str(Address(each, server.port)) for each in hosts)}")
        for name in files:
            address = server.address(name, apikey="any" if credentials is None else None)
            typer.echo(address if is_safe_word(name) else f"{name!r} is not one word: no connection string can name it")
        made = _change(changers, Rate(changes_per_second, changes_for), stop, server)
        typer.echo(f"quiet after {made} changes")
        stop.wait()


def _credentials(apikey_env: str | None, user: str | None, password_env: str | None) -> Credentials | None:
    """Return the credentials clients need, with secrets read; None accepts anybody. Raises ConfigError."""
    from silverfold.connectors.sqlitecloud.server.state import Credentials  # noqa: PLC0415 - other simulators load no such server

    if (user is None) != (password_env is None) or (user is not None and apikey_env is not None):
        raise typer.BadParameter("--user with --password-env, or --apikey-env alone")
    secret = password_env or apikey_env
    return None if secret is None else Credentials(Secret(env=secret).reveal(os.environ), user)


def _named_files(given: list[str]) -> Mapping[str, Path]:
    files: dict[str, Path] = {}
    for argument in given:
        name, _, file = argument.partition("=")
        if not name or not file or name in files:
            raise typer.BadParameter(f"{argument!r} is not NAME=FILE with a new name", param_hint="--table")
        files[name] = Path(file)
    return files


def _later(argument: str, option: str) -> tuple[float, str]:
    """Return the seconds, and the rest of the argument."""
    seconds, _, rest = argument.partition(":")
    try:
        after = float(seconds)
    except ValueError:
        after = -1.0
    if not (rest and 0 <= after < threading.TIMEOUT_MAX):
        raise typer.BadParameter(f"{argument!r} does not begin with SECONDS:", param_hint=option)
    return after, rest


def _views(tables: Mapping[str, LiveTable], where: Sequence[str], last_by: Sequence[str]) -> Mapping[str, LiveTable]:
    """Return the requested views, by name; a view may be based on an earlier one."""
    from silverfold.connectors.deephaven.server.tables import views  # noqa: PLC0415 - only a table server has views

    found: dict[str, LiveTable] = {}
    kinds: dict[str, tuple[Sequence[str], Callable[[LiveTable, str], LiveTable]]] = {
        "--where": (where, views.where),
        "--last-by": (last_by, lambda table, text: views.last_by(table, *(each.strip() for each in text.split(",")))),
    }
    for option, (given, make) in kinds.items():
        for argument in given:
            name, _, rest = argument.partition("=")
            of, _, text = rest.partition(":")
            known = {**tables, **found}
            table = known.get(of)
            if not name or table is None or not text or name in known:
                detail = f"{argument!r} is not NAME=TABLE:TEXT with a new name and a table that is exported"
                raise typer.BadParameter(detail, param_hint=option)
            try:
                found[name] = make(table, text)
            except (InvalidValue, LocalProtocolError) as error:
                raise typer.BadParameter(f"{argument!r}: {error}", param_hint=option) from error
    return found


def _files_later(given: list[str]) -> list[tuple[float, str, Path]]:
    found: list[tuple[float, str, Path]] = []
    for argument in given:
        after, rest = _later(argument, "--export-after")
        name, _, file = rest.partition("=")
        if not name or not file:
            raise typer.BadParameter(f"{argument!r} is not SECONDS:NAME=FILE", param_hint="--export-after")
        found.append((after, name, Path(file)))
    return found


def _do_after(seconds: float, stop: threading.Event, work: Callable[[], None], message: str) -> None:
    """Call ``work`` after some seconds and print a message, unless stopped before."""

    def wait() -> None:
        if not stop.wait(seconds):
            work()
            typer.echo(message)

    threading.Thread(target=wait, daemon=True).start()


def _announce(server: TableServer, host: str, tables: Mapping[str, LiveTable]) -> None:
    for name, table in tables.items():
        server.export_table(name, table)
    typer.echo(f"listening on {host}:{server.port}")
    for name, table in tables.items():
        typer.echo(f"table {name}: {counted(len(table), 'row')}, {counted(len(table.columns), 'column')}")


def _change(changers: Sequence[Changeable], pace: Rate, stop: threading.Event, server: Server) -> int:
    console, made = Console(), 0
    with console.status("changing") as status:

        def progress(changes: int) -> None:
            nonlocal made
            made += changes
            status.update(f"{made} changes, {server.client_count} clients")

        change_steadily(changers, pace, clock=time.monotonic, stopped_within=stop.wait, progress=progress)
    return made


if __name__ == "__main__":
    main_of("simulate")
