"""Looks at a subscription now and then: lands control frames, losses, lag and warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.frames import Frame, FrameSink
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.options import HStreamOptions
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import Subscription
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch
from silverfold.connectors.hstreamdb.receiver.gaps import GapSearch
from silverfold.connectors.hstreamdb.receiver.lag import Lag

_GAP_SECONDS: Final = 1.0
"""Seconds between looks, at least, when a frame shows a gap: the next epoch does not know of it."""
_LEAST_PATIENCE: Final = 10.0
"""Seconds without a frame, at least, before a shard that is ahead is a warning; else the subscription's time-out."""


class Progress:
    """The loop of looks at a subscription, for one epoch.

    Args:
        subscription: As it is when the epoch begins.
        feed, ours, clock: See `Lag`.
    """

    def __init__(
        self,
        client: Client,
        options: HStreamOptions,
        epoch: Epoch,
        control: ControlFrames,
        *,
        subscription: Subscription,
        feed: str,
        ours: str,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._options, self._epoch, self._control = client, options, epoch, control
        begins_at_end = subscription.offset == SpecialOffset.LATEST
        self._gaps = GapSearch(client, options.stream, epoch, control, begins_at_end=begins_at_end)
        patience = max(_LEAST_PATIENCE, subscription.ack_timeout_seconds)
        self._lag = Lag(options.stream, epoch, control, feed=feed, ours=ours, patience=patience, clock=clock)
        self._gap_found = asyncio.Event()

    def frames(self, found: FetchedFrame, consumer: str) -> list[Frame]:
        """Return what lands of a fetched frame; see `Epoch.frames`. Looks soon if it shows a gap."""
        self._lag.note_frame()
        gaps = self._epoch.gaps_found
        frames = self._epoch.frames(
            found.body, found.ids, found.error, consumer=consumer, published_ms=found.published_ms
        )
        if self._epoch.gaps_found > gaps:
            self._gap_found.set()
        return frames

    async def run(self, sink: FrameSink, pending: Callable[[], int]) -> None:
        """Look for ever. A call that fails is left out: the fetches notice what is wrong.

        Args:
            pending: Returns the number of landed records that are not acknowledged yet.
        """
        subscription_id = self._options.subscription
        while True:
            self._gap_found.clear()
            found, tails = None, dict[int, int]()
            with suppress(SilverfoldError):
                found = await self._client.get_subscription(subscription_id)
            with suppress(SilverfoldError):
                tails = await self._tails()
            # Each is taken as soon as it is made: an epoch that ends meanwhile has it, as the next one believes.
            sink.take(await self._gaps.expired(tails))
            if found is not None:
                sink.take(self._control.next_frames(found, self._epoch))
            with suppress(SilverfoldError):
                consumers = await self._client.list_consumers(subscription_id)
                sink.take(self._lag.shared([each.name for each in consumers]))
            if tails:
                sink.take([*self._lag.progress(tails, pending()), *self._lag.starved(tails)])
            await sink.wait_for_room()
            await asyncio.sleep(_GAP_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.committed_seconds - _GAP_SECONDS):
                    await self._gap_found.wait()

    async def _tails(self) -> dict[int, int]:
        """Return the last batch of each shard; 0 if there is none."""
        stream = self._options.stream
        shards = [each.shard_id for each in await self._client.list_shards(stream)]
        tails = {shard_id: await self._client.tail(stream, shard_id) for shard_id in shards}
        return {shard_id: 0 if tail is None else tail.batch_id for shard_id, tail in tails.items()}
