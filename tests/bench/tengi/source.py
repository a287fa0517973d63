"""A source in its own process, with all changes of a table in history beforehand."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import structlog

from silverfold.connectors.base import Feed
from silverfold.connectors.tengi.options import TengiFeed, TengiOptions, TengiTable
from silverfold.connectors.tengi.protocol.events import Transport
from silverfold.connectors.tengi.server.feed.server import FeedServer
from silverfold.connectors.tengi.server.feed.source import FeedSource
from silverfold.connectors.tengi.server.feed.tables import RowChanges, SourceTable
from silverfold.connectors.tengi.transports.configuration import ConfigurationBuilder

TABLE = "orders"
COLUMNS = {"id": "bigint", "name": "string", "price": "double"}
EPOCH = f"{0:020d}"
HEAD = 39
"""Bytes of a packet before its body: flag, connection id, and the head of a message with its id."""


@dataclass(frozen=True)
class Stored:
    """The updates of a source; each is a packet.

    Args:
        rows: Rows that an update adds: one is a ``change``, several an ``update``.
    """

    packets: int
    rows: int


@dataclass(frozen=True)
class Serving:
    """A running source.

    Args:
        size: Bytes of the bodies of all updates.
    """

    ports: Mapping[Transport, int]
    size: int


def row(number: int) -> dict[str, Any]:
    """Return a row; its packet is 388 bytes long."""
    return {"id": number, "name": "Steven", "price": number / 4}


def table_of(stored: Stored) -> SourceTable:
    """Return the table with all updates in its history."""
    table = SourceTable(TABLE, COLUMNS, ["id"], epoch=EPOCH, history=stored.packets * stored.rows)
    for first in range(0, stored.packets * stored.rows, stored.rows):
        table.apply(RowChanges(added=[row(number) for number in range(first, first + stored.rows)]))
    return table


def feed_at(port: int, transport: Transport) -> TengiFeed:
    """Return a feed of the table. Acknowledged changes would leave history, which the next run needs."""
    options = TengiOptions(transport=transport.value, ack_interval=86_400)
    return Feed("bench", "tengi", f"tengi://127.0.0.1:{port}", options, {TABLE: TengiTable()})


@contextmanager
def source(stored: Stored) -> Iterator[Serving]:
    """Run a source until the end of the block."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(stored, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def serve(stored: Stored, pipe: Connection) -> None:
    """Serve over all transports until the parent sends something. Runs in its own process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    table = table_of(stored)
    size = sum(len(table.update(number).body) for number in range(1, stored.packets + 1))
    settings = ConfigurationBuilder().add_transport(*Transport, port=0).build()
    with FeedServer.start(FeedSource([table]), settings) as server:
        pipe.send(Serving(server.ports, size))
        pipe.recv()
