"""Records of a subscription, fetched for ever: calls that end are opened again, with growing waits.

::

    async for received in client.fetch("orders_feed"):
        print(received.id, received.key, received.record)
        await received.ack()

Delivery is at least once. What is not acknowledged within the subscription's time-out comes again, after newer records.
So do records whose acknowledgement was in flight when a call ended. Those not sent yet go out on the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from silverfold.conf.errors import (
    InvalidValue,
    OversizedMessage,
    RemoteProtocolError,
    SilverfoldError,
    SourceRefused,
    SourceUnavailable,
)
from silverfold.connectors.hstreamdb.client.channels import waits
from silverfold.connectors.hstreamdb.client.cluster import Cluster
from silverfold.connectors.hstreamdb.client.fetch import AckQueue, Fetch, FetchedFrame
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import CheckSubscriptionExistRequest
from silverfold.connectors.hstreamdb.protocol.methods import CHECK_SUBSCRIPTION_EXIST
from silverfold.connectors.hstreamdb.protocol.records import Record, RecordId
from silverfold.connectors.hstreamdb.protocol.status import Action, Status

ACK_DELAY: Final = 0.05
"""Seconds to gather acknowledgements for one request: servers do better with few large ones."""
PATIENCE: Final = 60.0
SERVED_SECONDS: Final = 10.0
"""A call that was open so long was in service, even if nothing was there to send."""
MAX_FAILURES: Final = 5
"""Calls in a row that end for unknown reasons, or are cancelled, after which the error is raised."""


@dataclass(frozen=True, slots=True)
class Received:
    """A received record.

    Args:
        key: Its partition key; empty for none.
        record: None if it is invalid; ``error`` then has the reason. It can be acknowledged all the same.
        published_ms: Time of its append, in milliseconds since 1970; 0 if unknown.
    """

    id: RecordId
    key: str
    record: Record | None
    published_ms: int
    error: SilverfoldError | None
    _acks: AckQueue = field(repr=False, compare=False)

    async def ack(self) -> None:
        """Acknowledge the record. It is sent soon, with others. To repeat it is harmless.

        Once the records are no longer iterated over, nothing is sent any more, and the record comes again.
        """
        self._acks.add((self.id,))


async def fetch_records(
    open_call: Callable[[AckQueue], Awaitable[Fetch]], reopening: Reopening, limit: int
) -> AsyncGenerator[Received, None]:
    """Yield the records of call after call. See ``Client.fetch``.

    Args:
        limit: Most bytes of a batch, decompressed.
    """
    acks = AckQueue()
    while True:
        fetch: Fetch | None = None
        try:
            async with await open_call(acks) as fetch:
                while True:
                    frame = await fetch.next_frame()
                    reopening.reset()
                    for received in _decoded(frame, acks, limit):
                        yield received
                    await asyncio.sleep(0)  # else a loop that never waits would leave no time to read and acknowledge
        except (SourceUnavailable, RemoteProtocolError) as error:
            if fetch is not None and fetch.seconds_open >= SERVED_SECONDS:
                reopening.reset()
            status = fetch.status if fetch is not None else None
            if status is not None and status.action is Action.RETRY_BOUNDED:
                acks.clear()  # an id of a shard that the subscription does not have ends every call
            await reopening.wait(error, status)


def _decoded(frame: FetchedFrame, acks: AckQueue, limit: int) -> Iterator[Received]:
    if frame.error is not None:
        raise frame.error
    try:
        batch = frame.decode(limit=limit)
    except (InvalidValue, OversizedMessage) as error:
        for each in frame.ids:
            yield Received(each, "", None, 0, error, acks)
        return
    for found in batch.records:
        yield Received(found.id, found.key, found.record, batch.published_ms, found.error, acks)


class Reopening:
    """Decides whether to open a call again after one ended, and waits before it."""

    def __init__(self, cluster: Cluster, subscription_id: str, patience: float | None, rng: Random) -> None:
        self._cluster, self._subscription_id, self._patience = cluster, subscription_id, patience
        self._backoff = waits(rng)
        self.reset()

    def reset(self) -> None:
        """Note that a call delivers, or stands."""
        self._failing_since: float | None = None
        self._failures = 0
        self._backoff.reset()

    async def wait(self, error: SilverfoldError, status: Status | None) -> None:
        """Wait before the next opening. Raises the error, or a clearer one, if no call is to be opened any more."""
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        if status is not None and status.action is Action.CHECK_AND_REOPEN:
            with suppress(SourceUnavailable):  # the next opening finds out
                await self._check_existence()
        if status is not None and (status.action is Action.RETRY_BOUNDED or status.grpc_code == "CANCELLED"):
            self._failures += 1
            if self._failures == MAX_FAILURES:
                raise self._cluster.error(status, f"StreamingFetch of {self._subscription_id}")
        if self._patience is not None and now - self._failing_since > self._patience:
            raise error
        self._cluster.forget()
        await asyncio.sleep(self._backoff.next_wait())

    async def _check_existence(self) -> None:
        request = CheckSubscriptionExistRequest(subscription_id=self._subscription_id)
        if not (await self._cluster.call(CHECK_SUBSCRIPTION_EXIST, request)).exists:
            text = f"{self._subscription_id} was deleted"
            raise SourceRefused(code="SubscriptionNotFound", text=text, stream="StreamingFetch")
