"""``silverfold simulate hstreamdb``: serve a cluster whose streams carry the changes of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from silverfold.conf.text import counted
from silverfold.connectors.common.rate import Rate
from silverfold.connectors.common.simulation import Host, Port, QuietAfter, announce, change_visibly
from silverfold.connectors.common.stopping import stopped_by_signals
from silverfold.connectors.hstreamdb.protocol.messages.batches import CompressionType
from silverfold.connectors.hstreamdb.protocol.streams import name_problem
from silverfold.connectors.hstreamdb.server.options import DEFAULT_PORT, ClusterOptions
from silverfold.connectors.hstreamdb.server.server import HStreamServer
from silverfold.connectors.hstreamdb.server.workload.layouts import RecordLayout
from silverfold.connectors.hstreamdb.server.workload.producer import TableProducer
from silverfold.connectors.hstreamdb.server.workload.tables import ChangingTable, load_rows


class Compression(StrEnum):
    """Compression of the batches: the names that typer offers, of `CompressionType`."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


def hstreamdb(
    *,
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A CSV or Parquet file; its rows and their changes go to the stream NAME. Its first column is the "
            "key. May be repeated; without any, clients fill the cluster.",
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=100, help="Number of nodes.")] = 3,
    port: Port = DEFAULT_PORT,
    host: Host = "127.0.0.1",
    shards: Annotated[int, typer.Option(min=1, max=1_000, help="Shards of each stream.")] = 1,
    layout: Annotated[
        RecordLayout, typer.Option(help="Form of the change records; row has no deletes.")
    ] = RecordLayout.UNWRAPPED,
    compression: Annotated[Compression, typer.Option(help="Compression of the batches.")] = Compression.NONE,
    changes_per_second: Annotated[float, typer.Option(min=0, help="Rows changed per second, in each table.")] = 10,
    changes_for: QuietAfter = None,
    seed: Annotated[int, typer.Option(help="Same seed and same files, same sequence of changes.")] = 0,
) -> None:
    """Serve a cluster of HStreamDB nodes, and append the changes of tables to its streams.

    Nodes listen on the port and those after it. The first line printed is the address for feeds and clients. Each
    stream begins with the rows of its file. Everything is in memory. Ends on SIGINT or SIGTERM with exit code 0.
    """
    tables = {name: load_rows(file) for name, file in _named_files(table or []).items()}
    if port and port + nodes > 65_536:
        raise typer.BadParameter(f"there are no {nodes} ports from {port} on", param_hint="--port")
    compression_type = CompressionType[compression.name]
    with (
        HStreamServer.start(ClusterOptions(nodes=nodes, port=port, host=host)) as cluster,
        stopped_by_signals() as stop,
    ):
        producers = [
            TableProducer(
                ChangingTable(rows, f"{seed}/{name}", can_delete=layout is not RecordLayout.ROW),
                cluster.create_stream(name, shards),
                cluster.append,
                layout=layout,
                compression=compression_type,
            )
            for name, rows in tables.items()
        ]
        announce(f"listening on {cluster.address}")
        for (name, rows), producer in zip(tables.items(), producers, strict=True):
            producer.load()
            announce(f"stream {name}: {counted(len(rows), 'row')}, {counted(shards, 'shard')}")
        made = change_visibly(producers, Rate(changes_per_second, changes_for), stop, cluster)
        typer.echo(f"quiet after {counted(made, 'change')}")
        stop.wait()


def _named_files(given: Sequence[str]) -> Mapping[str, Path]:
    files: dict[str, Path] = {}
    for argument in given:
        name, _, file = argument.partition("=")
        if name_problem(name) or not file or name in files:
            detail = f"{argument!r} is not NAME=FILE with a new name of letters, digits, '-' and '_', a letter first"
            raise typer.BadParameter(detail, param_hint="--table")
        files[name] = Path(file)
    return files
