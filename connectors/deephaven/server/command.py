"""``silverfold simulate deephaven``: serve files as live tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from silverfold.conf.errors import InvalidValue, LocalProtocolError
from silverfold.conf.text import counted
from silverfold.connectors.common.rate import Rate
from silverfold.connectors.common.simulation import Host, Port, QuietAfter, announce, change_visibly
from silverfold.connectors.common.stopping import stopped_by_signals
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts
from silverfold.connectors.deephaven.protocol.schemas import load_transport_schema
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.sources import load_file
from silverfold.connectors.deephaven.server.tables import views
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.deephaven.server.workload import Changer

Tables: TypeAlias = Annotated[
    list[str], typer.Option(metavar="NAME=FILE", help="Export a Parquet or CSV file by a name. May be repeated.")
]
FilteredTables: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=TABLE:FILTER", help="Export the rows of a table that satisfy a filter, too."),
]
LastRows: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=TABLE:COLUMNS", help="Export the last row for each value of some columns, too."),
]
LaterTables: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="SECONDS:NAME=FILE", help="Export another, or another by a name, later. May be repeated."),
]
LaterEnds: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="SECONDS:NAME", help="Let nobody subscribe any more, later. May be repeated."),
]


def deephaven(
    *,
    table: Tables,
    port: Port = 0,
    host: Host = "127.0.0.1",
    changes_per_second: Annotated[float, typer.Option(min=0, help="Rows changed per second, in each table.")] = 10,
    changes_for: QuietAfter = None,
    seed: Annotated[int, typer.Option(help="Same seed, same sequence of updates.")] = 0,
    queue_size: Annotated[int, typer.Option(min=1, help="Frames queued per client.")] = 1000,
    buffer_size: Annotated[int, typer.Option(min=64, help="Longest message, in bytes.")] = 65_536,
    send_wait_ms: Annotated[
        int,
        typer.Option(
            min=0, help="A client whose queue is full that long is dropped; at once, if twice the backlog waits for it."
        ),
    ] = 5000,
    schema: Annotated[
        str, typer.Option(metavar="FILE", help="XML of the transport, or builtin: our reconstruction.")
    ] = "builtin",
    prefix_counts: Annotated[
        PrefixCounts, typer.Option(help="What the length before each message counts.")
    ] = PrefixCounts.MESSAGE,
    where: FilteredTables = None,
    last_by: LastRows = None,
    export_after: LaterTables = None,
    unexport_after: LaterEnds = None,
) -> None:
    """Serve files as live tables over Deephaven's SBE transport.

    The first line printed says where it listens. Each update adds, modifies and removes several rows, modelled on
    those that are there. Ends on SIGINT or SIGTERM with exit code 0.
    """
    tables = {name: load_file(file) for name, file in _named_files(table).items()}
    exported_views = _views(tables, where or [], last_by or [])
    later = [(after, name, load_file(file)) for after, name, file in _files_later(export_after or [])]
    ends = [_later(argument, "--unexport-after") for argument in unexport_after or []]
    for _, name in ends:
        if name not in {*tables, *exported_views, *(each for _, each, _ in later)}:
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
        for name, view in exported_views.items():
            server.export_table(name, view)
            announce(f"table {name}: {counted(len(view), 'row')}, {counted(len(view.columns), 'column')}")
        named = [*tables.items(), *((name, each) for _, name, each in later)]
        changers = [Changer(each, f"{seed}/{name}") for name, each in named]
        loaded = sum(each.updates for _, each in named)
        made = change_visibly(changers, Rate(changes_per_second, changes_for), stop, server)
        updates = sum(each.updates for _, each in named) - loaded
        typer.echo(f"quiet after {counted(made, 'change')} in {counted(updates, 'update')}")
        stop.wait()


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
    """Return the requested views, by name; a view may be based on any other, of either option."""
    found: dict[str, LiveTable] = {}
    kinds: dict[str, tuple[Sequence[str], Callable[[LiveTable, str], LiveTable]]] = {
        "--where": (where, views.where),
        "--last-by": (last_by, lambda table, text: views.last_by(table, *(each.strip() for each in text.split(",")))),
    }
    pending = [(option, argument) for option, (given, _) in kinds.items() for argument in given]
    while pending:
        known = {**tables, **found}
        option, argument = next((each for each in pending if _base_of(each[1]) in known), pending[0])
        pending.remove((option, argument))
        name, _, rest = argument.partition("=")
        text, table = rest.partition(":")[2], known.get(_base_of(argument))
        if not name or table is None or not text or name in known:
            detail = f"{argument!r} is not NAME=TABLE:TEXT with a new name and a table that is exported"
            raise typer.BadParameter(detail, param_hint=option)
        try:
            found[name] = kinds[option][1](table, text)
        except (InvalidValue, LocalProtocolError) as error:
            raise typer.BadParameter(f"{argument!r}: {error}", param_hint=option) from error
    return found


def _base_of(argument: str) -> str:
    """Return TABLE of an argument NAME=TABLE:TEXT."""
    return argument.partition("=")[2].partition(":")[0]


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
            announce(message)

    threading.Thread(target=wait, daemon=True).start()


def _announce(server: TableServer, host: str, tables: Mapping[str, LiveTable]) -> None:
    for name, table in tables.items():
        server.export_table(name, table)
    announce(f"listening on {host}:{server.port}")
    for name, table in tables.items():
        announce(f"table {name}: {counted(len(table), 'row')}, {counted(len(table.columns), 'column')}")
