"""Looks at a subscription now and then: lands what the server has recorded as acknowledged, lag, and what is amiss.

That is a consumer which is not ours, a shard that is ahead though nothing comes, and records that never come.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.frames import Frame, FrameSink, Kind, mark
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.options import HStreamOptions
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import GetSubscriptionResponse, Subscription
from silverfold.connectors.hstreamdb.protocol.records import batches_between
from silverfold.connectors.hstreamdb.protocol.times import creation_of
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch


class Progress:
    """What is known of a subscription's progress.

    A floor is landed behind all that it is about: the server records only what was acknowledged, so committed.

    Args:
        subscription: As it is now.
        ours: Prefix of the names of our consumers, which begin with the feed's name.
        feed: The feed's name.
        last: Body of the last control frame that landed.
    """

    def __init__(
        self,
        client: Client,
        options: HStreamOptions,
        epoch: Epoch,
        *,
        subscription: Subscription,
        feed: str,
        ours: str,
        last: bytes | None,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._options, self._epoch, self._clock = client, options, epoch, clock
        self._feed, self._ours, self._consumers, self._others = feed, ours, list[str](), list[str]()
        self._begun: Mapping[int, int] | None = {} if subscription.offset == SpecialOffset.EARLIEST else None
        """The batch of each shard after which the subscription begins; None before the first look."""
        self.last = last
        """Body of the last control frame."""
        self._newest_before = dict(epoch.newest)
        """The batch of each shard behind which records may have expired; empty once that was looked up."""
        self._patience = max(10.0, subscription.ack_timeout_seconds)
        self._received_at = clock()
        self._is_starved = False
        self._reported: dict[str, dict[str, float]] = {}

    def received(self) -> None:
        """Note that a frame came."""
        self._received_at = self._clock()
        self._is_starved = False

    async def run(self, sink: FrameSink, pending: Callable[[], int]) -> None:
        """Look for ever. A call that fails is left out: the fetches notice what is wrong.

        Args:
            pending: Returns the number of landed records that are not acknowledged yet.
        """
        while True:
            frames = list[Frame]()
            with suppress(SilverfoldError):
                frames += self.floors(await self._client.get_subscription(self._options.subscription))
                tails = await self._tails()
                self._begun = tails if self._begun is None else self._begun
                frames += await self._shared()
                frames += self._report(tails, pending())
                frames += self._starved(tails)
                frames += await self._expired(tails)
            await sink.land(frames)
            await asyncio.sleep(self._options.committed_seconds)

    async def _tails(self) -> dict[int, int]:
        """Return the last batch of each shard; 0 if there is none."""
        stream = self._options.stream
        shards = [each.shard_id for each in await self._client.list_shards(stream)]
        tails = {shard_id: await self._client.tail(stream, shard_id) for shard_id in shards}
        return {shard_id: 0 if tail is None else tail.batch_id for shard_id, tail in tails.items()}

    async def _expired(self, tails: Mapping[int, int]) -> list[Frame]:
        """Return a mark if shards have lost batches, by retention or a trim, before they landed: once an epoch."""
        expired = {}
        for shard_id, newest in self._newest_before.items():
            if tails.get(shard_id, 0) <= newest:
                continue
            frames = self._client.read_shard(self._options.stream, shard_id, max_batches=1)
            oldest = [each.ids[0].batch_id if each.ids else 0 async for each in frames] or [tails[shard_id] + 1]
            if (count := batches_between(newest, oldest[0]) - 1) > 0:
                expired[str(shard_id)] = f"{count} batches behind {newest}"
        self._newest_before.clear()
        if not expired:
            return []
        why = "the stream has dropped records before they landed here: they never come"
        return [mark("expired", stream=self._options.stream, level="warning", reason=why, shards=expired)]

    def _report(self, tails: Mapping[int, int], pending: int) -> list[Frame]:
        """Return a mark of how far behind the source the feed is, if that has changed."""
        parts = {f"shard {shard_id}": self._lag(shard_id, tail) for shard_id, tail in tails.items()}
        parts["subscription"] = {"records_unacknowledged": pending}
        if parts == self._reported:
            return []
        self._reported = parts
        return [mark("progress", parts=parts)]

    def _lag(self, shard_id: int, tail: int) -> dict[str, float]:
        landed = self._epoch.shards[shard_id]
        batches = batches_between(self._newest(shard_id), tail)
        seconds = max(time.time() - landed.published_ms / 1000, 0) if batches and landed.published_ms else 0
        return {
            "batches_behind": batches,
            "records_behind_about": round(batches * landed.records / max(landed.batches, 1)),
            "seconds_behind": round(seconds, 1),
            "records_redelivered": landed.again,
        }

    def _newest(self, shard_id: int) -> int:
        """Return the last batch that we have of a shard, or need not have.

        What the server has recorded as acknowledged counts, while nobody else acknowledges.
        """
        committed = 0 if self._others else int(self._landed().get("offsets", {}).get(str(shard_id), 0))
        return max(self._epoch.shards[shard_id].newest, committed, (self._begun or {}).get(shard_id, 0))

    def floors(self, found: GetSubscriptionResponse) -> list[Frame]:
        """Return a control frame for floors that moved, or for another subscription than before: the first one too.

        With a mark for records that never come: those before a subscription that took another's place and began at the
        end, and those that were acknowledged and have not landed here.
        """
        created = creation_of(found.subscription)
        before = self._landed()
        is_anew = bool(before) and before["created"] != created
        known = {} if is_anew else before.get("offsets", {})
        moved = {str(each.shard_id): str(each.batch_id) for each in found.offsets if each.batch_id}
        offsets = known | {shard: batch for shard, batch in moved.items() if int(batch) > int(known.get(shard, 0))}
        body = {"subscription": self._options.subscription, "created": created, "offsets": offsets}
        if body == before:
            return []
        self.last = json.dumps(body, sort_keys=True).encode()
        frames = [Frame(self.last, Kind.CONTROL)]
        frames += self._elsewhere({shard: batch for shard, batch in offsets.items() if batch != known.get(shard)})
        if is_anew and found.subscription.offset == SpecialOffset.LATEST:
            why = "another subscription, which began at the end: records appended before it may never come"
            frames.append(mark("begun at the end", stream=self._options.stream, level="warning", reason=why))
        return frames

    def _elsewhere(self, moved: Mapping[str, str]) -> list[Frame]:
        """Return a mark if more is acknowledged than has landed: bronze is not the one that the source fed before.

        A gap behind the last record counts as acknowledged too, so the mark is no proof of a loss.
        """
        landed = {shard: self._epoch.shards[int(shard)].newest for shard in moved}
        ahead = {shard: f"{batch}, not {landed[shard]}" for shard, batch in moved.items() if int(batch) > landed[shard]}
        if not ahead:
            return []
        why = "acknowledged and not in this bronze, which is another one, or restored: records in between never come"
        stream = self._options.stream
        return [mark("acknowledged elsewhere", stream=stream, level="warning", reason=why, batches=ahead)]

    def _landed(self) -> dict[str, Any]:
        return {} if self.last is None else dict(json.loads(self.last))

    async def _shared(self) -> list[Frame]:
        """Return a mark if others fetch from the subscription, each time others than before: we lack what they get.

        A name with our feed's prefix may be that of a receiver that has just ended, so it counts at the second look.
        """
        found = await self._client.list_consumers(self._options.subscription)
        seen, self._consumers = self._consumers, [each.name for each in found]
        theirs = sorted(name for name in self._consumers if not name.startswith(self._ours))
        before, self._others = self._others, [name for name in theirs if name in seen or not self._is_of_feed(name)]
        if not self._others or self._others == before:
            return []
        return [mark("shared subscription", stream=self._options.stream, level="warning", consumers=self._others)]

    def _is_of_feed(self, name: str) -> bool:
        return name.startswith(f"{self._feed}-")

    def _starved(self, tails: Mapping[int, int]) -> list[Frame]:
        """Return a mark if nothing comes though there is more: once, until a frame comes again."""
        if self._is_starved or self._clock() - self._received_at < self._patience:
            return []
        ahead = [str(shard_id) for shard_id, tail in tails.items() if tail > self._newest(shard_id)]
        if not ahead:
            return []
        self._is_starved = True
        stream = self._options.stream
        return [mark("starved", stream=stream, level="warning", shards=ahead, consumers=self._consumers)]
