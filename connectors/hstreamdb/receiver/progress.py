"""Looks at a subscription now and then: lands control frames, losses, lag and warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

from silverfold.conf.errors import SourceRefused, SourceUnavailable
from silverfold.connectors.frames import Frame, FrameSink, mark
from silverfold.connectors.hstreamdb.client.administration import OF_OTHER_STREAM
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.options import HStreamOptions
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import GetSubscriptionResponse, Subscription
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.times import creation_of
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch, are_whole
from silverfold.connectors.hstreamdb.receiver.gaps import GapSearch, Overdue
from silverfold.connectors.hstreamdb.receiver.lag import Lag
from silverfold.connectors.hstreamdb.receiver.look_calls import LookCalls

_GAP_SECONDS: Final = 1.0
"""Seconds between looks, at least, when a frame shows a gap."""
_FIRST_SECONDS: Final = 5.0
"""Seconds from the first look to the second, at most: the first sees frames as missing that are about to come."""
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
        overdue: See `GapSearch` and `Lag`.
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
        overdue: Overdue,
        feed: str,
        ours: str,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._options, self._epoch, self._control = client, options, epoch, control
        self._created = creation_of(subscription)
        self._calls = LookCalls(options.stream, overdue.failures)
        patience = max(_LEAST_PATIENCE, subscription.ack_timeout_seconds)
        self._gaps = GapSearch(
            client,
            options.stream,
            epoch,
            control,
            self._calls,
            overdue=overdue,
            patience=2 * patience,
            clock=clock,
        )
        self._lag = Lag(
            options.stream, epoch, control, feed=feed, ours=ours, overdue=overdue, patience=patience, clock=clock
        )
        self._gap_found = asyncio.Event()
        self._partial_shards = set[int]()
        """Those of which a mark since the last look tells that a batch came in part."""

    def frames(self, found: FetchedFrame, consumer: str) -> list[Frame]:
        """Return what lands of a fetched frame; see `Epoch.frames`.

        If the frame shows a gap, or where its shard begins, or that others acknowledge, a control frame is before it.
        Behind a gap the next look is soon.
        """
        epoch = self._epoch
        taken = partial(
            epoch.frames, found.body, found.ids, found.error, consumer=consumer, published_ms=found.published_ms
        )
        if not found.ids:
            return taken()
        first, gaps = found.ids[0], epoch.gaps_found
        shard = epoch.shards[first.shard_id]
        was_guess = shard.is_guess
        is_partial = not are_whole(found.ids) and shard.is_missing(first.batch_id)
        self._lag.note_frame(first.shard_id)
        frames = taken()
        marks = self._note_partial(first) if is_partial else []
        if epoch.gaps_found > gaps:
            self._gap_found.set()
        elif was_guess and not shard.is_guess:
            self._control.skipped[first.shard_id] = shard.oldest - 1
        elif not is_partial:
            return frames
        return [*self._control.missing_frames(epoch), *marks, *frames]

    def _note_partial(self, first: RecordId) -> list[Frame]:
        """Return a mark if some records of a batch do not come with the first that do: at most one a shard and look."""
        self._epoch.shards[first.shard_id].lose_part(first.batch_id)
        if first.shard_id in self._partial_shards:
            return []
        self._partial_shards.add(first.shard_id)
        why = "some records of a batch do not come: another consumer may have acknowledged them"
        shards = {str(first.shard_id): f"of batch {first.batch_id}"}
        return [mark("not delivered", stream=self._options.stream, level="warning", reason=why, shards=shards)]

    async def run(self, sink: FrameSink, pending: Callable[[], int]) -> None:
        """Look for ever. A call that fails costs only what it is for.

        Args:
            pending: Returns the number of landed records that are not acknowledged yet.

        Raises:
            SourceRefused: The subscription is of another stream now.
            SourceUnavailable: It is another one than when the epoch began, or does not know our consumers any more.
        """
        subscription_id = self._options.subscription
        seconds = min(_FIRST_SECONDS, self._options.committed_seconds)
        while True:
            self._gap_found.clear()
            self._partial_shards.clear()
            found = await self._subscription()
            if found is not None:
                check_stream(found, self._options)
                if creation_of(found.subscription) != self._created:
                    raise SourceUnavailable(f"the subscription {self._options.subscription} was made anew")
            listed = await self._calls.one("ListShards", self._list_shards)
            tails = await self._tails(listed or ())
            searched = {shard_id: tail for shard_id, tail in tails.items() if self._epoch.shards[shard_id].has_begun}
            checkpoints = {} if found is None else {each.shard_id: each.batch_id for each in found.offsets}
            # Each is taken as soon as it is made: an epoch that ends meanwhile has it, as the next one believes.
            sink.take(await self._gaps.look(tails, checkpoints))
            if listed is not None:
                sink.take(self._gaps.give_up(listed))
            if found is None:
                sink.take(self._control.missing_frames(self._epoch))
            else:
                sink.take(self._control.next_frames(found, self._epoch, searched))
            consumers = await self._calls.one("ListConsumers", partial(self._client.list_consumers, subscription_id))
            if consumers is not None:
                sink.take(self._lag.shared([each.name for each in consumers]))
                if self._lag.are_forgotten():
                    text = "the cluster does not list our consumers any more: their node may be gone without a word"
                    raise SourceUnavailable(f"{subscription_id}: {text}")
            if tails:
                sink.take([*self._lag.progress(tails, pending()), *self._lag.starved(tails)])
            sink.take(self._calls.failing())
            await sink.wait_for_room()
            await asyncio.sleep(_GAP_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds - _GAP_SECONDS):
                    await self._gap_found.wait()
            seconds = self._options.committed_seconds

    async def _subscription(self) -> GetSubscriptionResponse | None:
        """Return the subscription; None if the call fails. A checkpoint that closes a gap is one of two answers."""
        call = partial(self._client.get_subscription, self._options.subscription)
        found = await self._calls.one("GetSubscription", call)
        if found is None or not self._control.are_ahead(found.offsets, self._epoch):
            return found
        again = await self._calls.one("GetSubscription", call)
        if again is not None:
            least = {each.shard_id: each.batch_id for each in found.offsets}
            for each in again.offsets:
                each.batch_id = min(each.batch_id, least.get(each.shard_id, 0))
        return again

    async def _list_shards(self) -> frozenset[int]:
        """Return the stream's shards: of two lists, if one lacks a shard of which anything landed."""
        stream = self._options.stream
        listed = {each.shard_id for each in await self._client.list_shards(stream)}
        if any(shard_id not in listed for shard_id, each in self._epoch.shards.items() if each.landed.newest):
            listed |= {each.shard_id for each in await self._client.list_shards(stream)}
        return frozenset(listed)

    async def _tails(self, listed: Collection[int]) -> dict[int, int]:
        """Return the last batch of each shard, or the number 0 of its log's epoch; of those whose node answers.

        A shard that frames come from is asked though no list names it.
        """
        shard_ids = sorted({*listed, *(shard_id for shard_id, each in self._epoch.shards.items() if each.oldest)})
        ends = await self._calls.each(
            (
                f"GetTailRecordId of shard {shard_id}",
                partial(self._client.log_end, self._options.stream, shard_id),
            )
            for shard_id in shard_ids
        )
        return {shard_id: end.batch_id for shard_id, end in zip(shard_ids, ends, strict=True) if end is not None}
