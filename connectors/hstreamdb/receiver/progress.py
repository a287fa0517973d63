"""Looks at a subscription now and then: lands control frames, losses, lag and warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from silverfold.conf.errors import SourceRefused
from silverfold.connectors.frames import Frame, FrameSink
from silverfold.connectors.hstreamdb.client.administration import OF_OTHER_STREAM
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.options import HStreamOptions
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import GetSubscriptionResponse, Subscription
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch
from silverfold.connectors.hstreamdb.receiver.gaps import GapSearch, OpenGaps
from silverfold.connectors.hstreamdb.receiver.lag import Lag
from silverfold.connectors.hstreamdb.receiver.look_calls import LookCalls

_GAP_SECONDS: Final = 1.0
"""Seconds between looks, at least, when a frame shows a gap."""
_LEAST_PATIENCE: Final = 10.0
"""Seconds without a frame, at least, before a shard that is ahead is a warning; else the subscription's time-out."""


def check_stream(found: GetSubscriptionResponse, options: HStreamOptions) -> None:
    """Raise SourceRefused for a subscription of another stream than the feed's, such as a deleted one."""
    if (stream := found.subscription.stream_name) != options.stream:
        text = f"{options.subscription} is of {stream}, not of {options.stream}: {OF_OTHER_STREAM}"
        raise SourceRefused(code="OtherStream", text=text)


class Progress:
    """The loop of looks at a subscription, for one epoch.

    Args:
        subscription: As it is when the epoch begins.
        open_gaps: See `GapSearch`.
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
        open_gaps: OpenGaps,
        feed: str,
        ours: str,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._options, self._epoch, self._control = client, options, epoch, control
        self._calls = LookCalls(options.stream)
        patience = max(_LEAST_PATIENCE, subscription.ack_timeout_seconds)
        self._gaps = GapSearch(
            client,
            options.stream,
            epoch,
            control,
            self._calls,
            begins_at_end=subscription.offset == SpecialOffset.LATEST,
            open_gaps=open_gaps,
            patience=2 * patience,
            clock=clock,
        )
        self._lag = Lag(options.stream, epoch, control, feed=feed, ours=ours, patience=patience, clock=clock)
        self._gap_found = asyncio.Event()

    def frames(self, found: FetchedFrame, consumer: str) -> list[Frame]:
        """Return what lands of a fetched frame; see `Epoch.frames`.

        If the frame shows a gap, or where its shard begins, a control frame is before it. Behind a gap the next look is
        soon.
        """
        shard = self._epoch.shards[found.ids[0].shard_id] if found.ids else None
        was_guess = shard is not None and shard.is_guess
        if found.ids:
            self._lag.note_frame(found.ids[0].shard_id)
        gaps = self._epoch.gaps_found
        frames = self._epoch.frames(
            found.body, found.ids, found.error, consumer=consumer, published_ms=found.published_ms
        )
        if shard is not None and was_guess and not shard.is_guess:
            skipped, shard_id = self._control.skipped, found.ids[0].shard_id
            skipped[shard_id] = min(shard.oldest - 1, skipped[shard_id])
        elif self._epoch.gaps_found == gaps:
            return frames
        if self._epoch.gaps_found > gaps:
            self._gap_found.set()
        return [*self._control.missing_frames(self._epoch), *frames]

    async def run(self, sink: FrameSink, pending: Callable[[], int]) -> None:
        """Look for ever. A call that fails costs only what it is for.

        Args:
            pending: Returns the number of landed records that are not acknowledged yet.

        Raises:
            SourceRefused: The subscription is of another stream now.
        """
        subscription_id = self._options.subscription
        while True:
            self._gap_found.clear()
            found = await self._calls.one("GetSubscription", partial(self._client.get_subscription, subscription_id))
            if found is not None:
                check_stream(found, self._options)
            tails = await self._tails()
            # Each is taken as soon as it is made: an epoch that ends meanwhile has it, as the next one believes.
            sink.take(await self._gaps.look(tails))
            if found is None:
                sink.take(self._control.missing_frames(self._epoch))
            else:
                sink.take(self._control.next_frames(found, self._epoch, tails))
            consumers = await self._calls.one("ListConsumers", partial(self._client.list_consumers, subscription_id))
            if consumers is not None:
                sink.take(self._lag.shared([each.name for each in consumers]))
            if tails:
                sink.take([*self._lag.progress(tails, pending()), *self._lag.starved(tails)])
            sink.take(self._calls.failing())
            await sink.wait_for_room()
            await asyncio.sleep(_GAP_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.committed_seconds - _GAP_SECONDS):
                    await self._gap_found.wait()

    async def _tails(self) -> dict[int, int]:
        """Return the last batch of each shard, or the number 0 of its log's epoch; of those whose node answers.

        A shard that frames come from, or are missing of, is asked though no list names it.
        """
        stream = self._options.stream
        shards = await self._calls.one("ListShards", partial(self._client.list_shards, stream)) or ()
        known = {shard_id for shard_id, each in self._epoch.shards.items() if each.oldest or each.gaps}
        shard_ids = sorted(known.union(each.shard_id for each in shards))
        ends = await self._calls.each(
            (f"GetTailRecordId of shard {shard_id}", partial(self._client.log_end, stream, shard_id))
            for shard_id in shard_ids
        )
        return {shard_id: end.batch_id for shard_id, end in zip(shard_ids, ends, strict=True) if end is not None}
