"""The HStreamDB connector: the changes in a stream's records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from ipaddress import ip_address

from silverfold.connectors.base import Connector, Decoder, Problem
from silverfold.connectors.common.transport import Address
from silverfold.connectors.frames import ControlFrame, Receiver
from silverfold.connectors.hstreamdb.client.address import connection_problems
from silverfold.connectors.hstreamdb.client.settings import parse_url
from silverfold.connectors.hstreamdb.options import HStreamFeed, HStreamOptions, HStreamTable
from silverfold.connectors.verification import ReferenceReader, SourceReplay


class HStreamConnector(Connector[HStreamOptions, HStreamTable]):
    """Lands a stream's records through a subscription, which remembers what was acknowledged between connections.

    Records may come again, and late. Their ids give the order of their changes. No record describes a complete table.
    """

    name = "hstreamdb"
    Options = HStreamOptions
    TableOptions = HStreamTable
    simulator_summary = "Serve a cluster of HStreamDB nodes, and append the changes of tables to its streams."
    continuity = "resume"
    source_ordered = True
    packages = ("grpc", "google.protobuf", "msgspec")

    def stream(self, feed: HStreamFeed, table: str) -> str:
        """Return the feed's stream."""
        return feed.options.stream

    def exclusive(self, feed: HStreamFeed) -> tuple[str, Sequence[str]]:
        """Return the subscription at each address: what one feed acknowledges never comes to another."""
        nodes = [Address(_one_host(each.host), each.port) for each in parse_url(feed.address).addresses]
        return "options.subscription", [f"{feed.options.subscription} at {each}" for each in nodes]

    def resume_position(self, landed: Sequence[str]) -> str:
        """Return the newest batch of each shard, and which are missing below it: the last frame may have come again."""
        from silverfold.connectors.hstreamdb.receiver.epoch import landed_batches, resume_text

        return resume_text(landed_batches(landed))

    def source_places(
        self, control: Sequence[ControlFrame], landed: Iterable[tuple[int, str]]
    ) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """Yield of each frame its position, its shard, and batch and index of its first record.

        Left out are frames up to a committed floor, and those whose first record came before.
        """
        from silverfold.connectors.hstreamdb.decoder.floors import read_floors

        floors, seen = read_floors(control), set[str]()
        for position, name in landed:
            shard, batch, index = name.split("-")
            if name not in seen and int(batch) > floors.before(int(shard), position):
                seen.add(name)
                yield position, shard, (int(batch), int(index))

    def problems(self, feed: HStreamFeed) -> Iterator[Problem]:
        """Yield problems beyond model validation: the address, and tables of another stream."""
        yield from connection_problems(feed)
        for name, table in feed.tables.items():
            if table.source not in ("", feed.options.stream):
                yield Problem(f"tables.{name}.source", table.source, f"{feed.options.stream}, the stream of the feed")

    def receiver(self, feed: HStreamFeed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from silverfold.connectors.hstreamdb.receiver.receiver import HStreamReceiver

        return HStreamReceiver(feed, os.environ)

    def decoder(self, feed: HStreamFeed) -> Decoder[HStreamTable]:
        """Return the feed's decoder."""
        from silverfold.connectors.hstreamdb.decoder.decoder import HStreamDecoder

        return HStreamDecoder(feed)

    def reference(self, feed: HStreamFeed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""
        from silverfold.connectors.hstreamdb.reference.reader import HStreamReferenceReader

        return HStreamReferenceReader(feed.tables[table], feed.options)

    def replay(self, feed: HStreamFeed, table: str) -> AbstractContextManager[SourceReplay]:
        """Return a replay of the feed's stream, shard by shard."""
        from silverfold.connectors.hstreamdb.reference.source_replay import HStreamSourceReplay

        return HStreamSourceReplay(feed, table)

    def simulator(self) -> Callable[..., None]:
        """Return the command that runs the simulated source."""
        from silverfold.connectors.hstreamdb.server.command import hstreamdb

        return hstreamdb


def _one_host(host: str) -> str:
    """Return the one form of a host that several mean."""
    host = host.rstrip(".")
    with suppress(ValueError):
        host = str(ip_address(host))
    return {"localhost": "127.0.0.1", "::1": "127.0.0.1"}.get(host, host)


CONNECTOR: Connector = HStreamConnector()
"""The connector instance for the registry."""
