"""A standalone client of an HStreamDB cluster: streams, subscriptions, producers, fetches and shard readers.

::

    async with await connect("hstream://node1,node2:6570") as client:
        await client.create_stream("orders", shard_count=2)
        await client.create_subscription("orders_feed", "orders")
        await client.append("orders", {"id": 7, "total": 12.5}, key="7")
        async for received in client.fetch("orders_feed"):
            print(received.key, received.record)
            await received.ack()

Calls ask the known nodes one after the other, and learn of other nodes from their answers. Each call may raise
SourceUnavailable, SourceRefused or RemoteProtocolError. After `Client.close` all raise LocalProtocolError.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from random import Random
from types import TracebackType
from typing import Self, Unpack
from weakref import WeakSet

from silverfold.conf.errors import ConfigError
from silverfold.connectors.hstreamdb.client.address import TLS_FILES, connection_settings
from silverfold.connectors.hstreamdb.client.administration import Administration
from silverfold.connectors.hstreamdb.client.channels import Channels
from silverfold.connectors.hstreamdb.client.cluster import Cluster
from silverfold.connectors.hstreamdb.client.fetch import MAX_BUFFERED_BYTES, AckQueue, Fetch, FetchedFrame
from silverfold.connectors.hstreamdb.client.producer import Producer, ProducerOptions
from silverfold.connectors.hstreamdb.client.readers import Offset, read_shard
from silverfold.connectors.hstreamdb.client.records import ACK_DELAY, PATIENCE, Received, Reopening, fetch_records
from silverfold.connectors.hstreamdb.client.settings import ConnectionSettings
from silverfold.connectors.hstreamdb.options import HStreamFeed
from silverfold.connectors.hstreamdb.protocol.frames import MAX_PLAIN_BYTES
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.records import Json, Record, RecordId


async def open_client(settings: ConnectionSettings) -> Client:
    """Return a client that has found the cluster.

    Raises:
        ConfigError: A file of the TLS settings cannot be read.
        SourceUnavailable: No node of the URL answers.
        UntrustedSource: Its certificate is not trusted.
        SourceRefused: It refuses, such as for a wrong token.
    """
    client = Client(settings)
    try:
        await client.describe_cluster()
    except BaseException:
        await client.close()
        raise
    return client


async def open_feed_client(feed: HStreamFeed, environ: Mapping[str, str]) -> Client:
    """Return a client with the settings of a feed. Raises as `open_client`; errors name the feed's own settings."""
    try:
        return await open_client(connection_settings(feed, environ))
    except ConfigError as error:
        if error.key not in TLS_FILES:
            raise
        file, key = f"feeds/{feed.name}.toml", f"options.{TLS_FILES[error.key]}"
        raise ConfigError(file=file, key=key, found=error.found, allowed=error.allowed) from error


class Client(Administration):
    """A client of a cluster, closed at the end of its ``async with`` block. Made by `open_client` or ``connect``."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._channels = Channels(settings)
        super().__init__(Cluster(settings, self._channels))
        self._producers: dict[str, Producer] = {}
        self._open = WeakSet[Producer | Fetch]()
        """Producers and fetches that `close` closes. Those in use are kept alive by their own tasks."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await asyncio.gather(*(each.abort() for each in self._open if isinstance(each, Producer)))
        await self.close()

    async def close(self) -> None:
        """Close producers, which send what they have, and fetches, which acknowledge; then all connections. Idempotent.

        Raises:
            SilverfoldError: The first error of a record that was submitted to a producer.
        """
        try:
            ends = await asyncio.gather(*(each.close() for each in self._open), return_exceptions=True)
        finally:
            await self._channels.close()
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def producer(self, stream: str, **options: Unpack[ProducerOptions]) -> Producer:
        """Return a producer for a stream; see `Producer` for its options."""
        producer = Producer(stream, self.cluster, **options)
        self._open.add(producer)
        return producer

    async def append(
        self, stream: str, record: Record | Mapping[str, Json] | bytes, key: str | None = None
    ) -> RecordId:
        """Append a record, and return its id once the server answered; see `Producer.append`.

        The stream has one producer, which sends at once. Tasks that append meanwhile share the next batch.
        """
        if stream not in self._producers:
            self._producers[stream] = self.producer(stream, max_age=0)
        return await self._producers[stream].append(record, key)

    async def open_fetch(
        self,
        subscription_id: str,
        *,
        consumer_prefix: str = "silverfold",
        acks: AckQueue | None = None,
        ack_delay: float = 0.0,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
    ) -> Fetch:
        """Look up the node of a subscription, and open a call there under a new consumer name.

        The server does not answer the opening: a frame, or that the call does not end, shows that it was accepted.

        Args:
            consumer_prefix: Beginning of the consumer's name.
            acks: Ids that an earlier call did not send.
            ack_delay: Seconds to wait for more ids before a small request.
            max_buffered_bytes: Frames that arrive beyond it are dropped, and come again after the time-out.

        Raises:
            SourceUnavailable, SourceRefused, RemoteProtocolError: The lookup failed.
        """
        name = f"{consumer_prefix}-{uuid.uuid4().hex}"
        node = await self.cluster.subscription_owner(subscription_id)
        acks = AckQueue() if acks is None else acks
        fetch = Fetch(
            self.cluster, node, subscription_id, name, acks, ack_delay=ack_delay, max_buffered_bytes=max_buffered_bytes
        )
        self._open.add(fetch)
        return fetch

    def fetch(
        self,
        subscription_id: str,
        *,
        patience: float | None = PATIENCE,
        limit: int = MAX_PLAIN_BYTES,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
        rng: Random | None = None,
    ) -> AsyncGenerator[Received, None]:
        """Yield the records of a subscription for ever. Closing the generator sends all acknowledgements and leaves.

        A node that is gone without closing the connection is noticed after 320 s, unless acknowledgements are under
        way. A subscription whose stream was deleted sends nothing more, and does not end.

        Args:
            patience: Seconds without service before it gives up; None for never.
            limit: Most bytes of a batch, decompressed.
            max_buffered_bytes: Frames that arrive beyond it are dropped, and come again after the time-out.
            rng: Spreads the waits before calls are opened again.

        Raises:
            SourceUnavailable: No node served for ``patience`` seconds, or calls failed several times in a row.
            SourceRefused: There is no such subscription (any more), or the server refuses to serve it.
            InvalidValue: A frame's ids cannot be read. `open_fetch` has its bytes.
        """

        async def open_call(acks: AckQueue) -> Fetch:
            return await self.open_fetch(
                subscription_id, acks=acks, ack_delay=ACK_DELAY, max_buffered_bytes=max_buffered_bytes
            )

        return fetch_records(open_call, Reopening(self.cluster, subscription_id, patience, rng or Random()), limit)  # noqa: S311 - spreads retries, no secret

    def read_shard(
        self,
        stream: str,
        shard_id: int,
        start: Offset = SpecialOffset.EARLIEST,
        until: Offset | None = SpecialOffset.LATEST,
        *,
        max_batches: int = 0,
    ) -> AsyncGenerator[FetchedFrame, None]:
        """Yield the batches of a shard, by default all there are now; see `read_shard` in ``readers``."""
        return read_shard(self.cluster, stream, shard_id, start, until, max_batches=max_batches)
