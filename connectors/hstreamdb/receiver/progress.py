"""Looks at a subscription now and then: lands what the server has recorded as acknowledged, lag, and what is amiss.

That is a consumer which is not ours, a shard that is ahead though nothing comes, and records that never come.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.frames import Frame, FrameSink, Kind, mark
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.options import HStreamOptions
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import GetSubscriptionResponse, Subscription
from silverfold.connectors.hstreamdb.protocol.records import RecordId, batch_number, batches_between
from silverfold.connectors.hstreamdb.protocol.times import creation_of
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch

_MOST_READ: Final = 16
"""Gaps of a shard to look at at once: a subscription that others share has as many as they have batches."""
_READ_SECONDS: Final = 5.0
"""Seconds to wait for one batch read by offset, as for any other call."""
_GAP_SECONDS: Final = 1.0
"""Seconds between looks, at least, when a frame shows a gap: the next epoch does not know of it."""


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
        self.last = last
        """Body of the last control frame."""
        self._landed: dict[str, Any] = {} if last is None else json.loads(last)
        """What it says."""
        before = self._landed
        is_same = before.get("created") == creation_of(subscription)
        self._skipped: dict[str, str] = dict(before.get("skipped", {})) if is_same else {}
        """The batch of each shard up to which none comes that has not landed, if that was found out."""
        for shard_id, batch_id in [*before.get("offsets", {}).items(), *self._skipped.items()] if is_same else ():
            epoch.shards[int(shard_id)].begin(int(batch_id))
        self._begins_at_end = subscription.offset == SpecialOffset.LATEST
        self._is_anew = bool(before) and not is_same
        self._gap_found = asyncio.Event()
        epoch.on_gap = self._gap_found.set
        self._quiet: dict[int, int] = {}
        """The newest batch of each shard at the last look."""
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
            self._gap_found.clear()
            found, tails = None, dict[int, int]()
            with suppress(SilverfoldError):
                found = await self._client.get_subscription(self._options.subscription)
            with suppress(SilverfoldError):
                tails = await self._tails()
            # Each is taken as soon as it is made: an epoch that ends meanwhile has it, as the next one believes.
            sink.take(await self._losses(tails))
            if found is not None:
                sink.take(self.floors(found))
            with suppress(SilverfoldError):
                sink.take(await self._shared())
            if tails:
                sink.take([*self._report(tails, pending()), *self._starved(tails)])
            await sink.land([])
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

    async def _losses(self, tails: Mapping[int, int]) -> list[Frame]:
        """Find out where shards begin, and return a mark if they have dropped batches before they landed, each once."""
        if self._begins_at_end:
            self._begin_at_end(tails)
        found = []
        with suppress(SilverfoldError, TimeoutError):  # what was found out before counts
            for shard_id, after, before in list(self._suspects(tails)):
                found.append((shard_id, after, await self._first(shard_id, after or 0, before)))
        self._quiet = {shard_id: self._epoch.shards[shard_id].newest for shard_id in tails}
        return self._skip(found)

    def _begin_at_end(self, tails: Mapping[int, int]) -> None:
        for shard_id, tail in tails.items():
            shard = self._epoch.shards[shard_id]
            if self._is_anew or not shard.has_begun:
                after = shard.oldest - 1 if shard.oldest else tail
                shard.begin(after)
                self._skipped[str(shard_id)] = str(after)
        self._is_anew = self._is_anew and not tails

    def _suspects(self, tails: Mapping[int, int]) -> Iterator[tuple[int, int | None, int]]:
        """Yield places where batches may be missing, as the batches before (None if unknown) and after them.

        Behind the newest batch they are in a shard of which nothing lands: of any other, the next frame shows it.
        """
        for shard_id, tail in tails.items():
            shard = self._epoch.shards[shard_id]
            yield from ((shard_id, *gap) for gap in shard.gaps[:_MOST_READ])
            if not shard.has_begun:
                yield shard_id, None, tail + 1
            elif tail > shard.newest == self._quiet.get(shard_id, shard.newest):
                yield shard_id, shard.newest, tail + 1

    async def _first(self, shard_id: int, after: int, before: int) -> int:
        """Return the first batch that a shard has behind one; ``before`` if none comes sooner."""
        if batches_between(after, before) <= 1:
            return before
        start = RecordId(shard_id, after + 1, 0)
        async with asyncio.timeout(_READ_SECONDS):
            frames = self._client.read_shard(self._options.stream, shard_id, start, max_batches=1)
            found = [each.ids[0].batch_id if each.ids else after + 1 async for each in frames]
        return min([*found, before])

    def _skip(self, found: Iterable[tuple[int, int | None, int]]) -> list[Frame]:
        expired: dict[str, str] = {}
        for shard_id, after, first in found:
            shard, name = self._epoch.shards[shard_id], str(shard_id)
            if after is None:
                begun = min(first, shard.oldest or first) - 1
                shard.begin(begun)
                self._skipped[name] = str(begun)
            elif (count := batches_between(after, first) - 1) > 0 and shard.skip(after, first):
                expired[name] = ", ".join(filter(None, [expired.get(name), f"{count} batches behind {after}"]))
                self._skipped[name] = str(max(first - 1, int(self._skipped.get(name, 0))))
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
        committed = 0 if self._others else int(self._landed.get("offsets", {}).get(str(shard_id), 0))
        return max(self._epoch.shards[shard_id].newest, committed)

    def floors(self, found: GetSubscriptionResponse) -> list[Frame]:
        """Return a control frame for floors that moved, or for another subscription than before: the first one too.

        With a mark for records that never come: those before a subscription that took another's place and began at the
        end, and those that were acknowledged and have not landed here.
        """
        created = creation_of(found.subscription)
        before = self._landed
        is_anew = bool(before) and before["created"] != created
        known = {} if is_anew else before.get("offsets", {})
        moved = {str(each.shard_id): str(each.batch_id) for each in found.offsets if each.batch_id}
        offsets = known | {shard: batch for shard, batch in moved.items() if int(batch) > int(known.get(shard, 0))}
        body = {
            "subscription": self._options.subscription,
            "created": created,
            "offsets": offsets,
            "skipped": dict(self._skipped),
        }
        if body == before:
            return []
        self._landed, self.last = body, json.dumps(body, sort_keys=True).encode()
        frames = [Frame(self.last, Kind.CONTROL)]
        frames += self._elsewhere({shard: batch for shard, batch in offsets.items() if batch != known.get(shard)})
        if is_anew and found.subscription.offset == SpecialOffset.LATEST:
            why = "another subscription, which began at the end: records appended before it may never come"
            frames.append(mark("begun at the end", stream=self._options.stream, level="warning", reason=why))
        return frames

    def _elsewhere(self, moved: Mapping[str, str]) -> list[Frame]:
        """Return a mark if more is acknowledged than has landed: bronze is not the one that the source fed before.

        A gap behind the last record counts as acknowledged too, so the mark is no proof of a loss. A checkpoint with
        the number 0, of which no batch is, is only that: the log has begun a new epoch.
        """
        ahead = {}
        for name, batch in moved.items():
            shard = self._epoch.shards[int(name)]
            if int(batch) > (landed := shard.whole_until) and batch_number(int(batch)):
                ahead[name] = f"{batch}, not {landed}"
            shard.begin(int(batch))
        if not ahead:
            return []
        why = (
            "acknowledged and not in this bronze, which may be another one, or restored: records in between never come"
        )
        stream = self._options.stream
        return [mark("acknowledged elsewhere", stream=stream, level="warning", reason=why, batches=ahead)]

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
