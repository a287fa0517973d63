"""Looks at a subscription now and then: lands what the server has recorded as acknowledged, and notices what is amiss.

That is a consumer which is not ours, and a shard that is ahead though nothing comes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.base import Frame, FrameSink, Kind, mark
from silverfold.connectors.hstreamdb.client.administration import Administration
from silverfold.connectors.hstreamdb.options import HStreamOptions
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import GetSubscriptionResponse
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch

_IN_LOG: Final = (1 << 32) - 1
"""The part of a batch's number that counts within an epoch of its log."""


class Progress:
    """What is known of a subscription's progress.

    A floor is landed behind all that it is about: the server records only what was acknowledged, so committed.

    Args:
        ours: Prefix of the names of our consumers.
        last: Body of the last control frame that landed.
        ack_timeout: Seconds after which the server sends again.
    """

    def __init__(
        self,
        client: Administration,
        options: HStreamOptions,
        epoch: Epoch,
        *,
        ours: str,
        last: bytes | None,
        ack_timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._options, self._epoch, self._clock = client, options, epoch, clock
        self._ours, self._others = ours, list[str]()
        self._begun: dict[int, int] | None = {} if options.offset == "earliest" else None
        """The batch of each shard after which the subscription begins; None before the first look."""
        self.last = last
        """Body of the last control frame."""
        self._patience = max(10.0, ack_timeout)
        self._received_at = clock()
        self._is_starved = False

    def received(self) -> None:
        """Note that a frame came."""
        self._received_at = self._clock()
        self._is_starved = False

    async def run(self, sink: FrameSink) -> None:
        """Look for ever. A call that fails is left out: the fetches notice what is wrong."""
        while True:
            frames = list[Frame]()
            with suppress(SilverfoldError):
                frames += self.floors(await self._client.get_subscription(self._options.subscription))
                frames += await self._shared()
                frames += await self._starved()
            await sink.land(frames)
            await asyncio.sleep(self._options.committed_seconds)

    def floors(self, found: GetSubscriptionResponse) -> list[Frame]:
        """Return a control frame for floors that moved, or for a subscription that was created anew."""
        created = str(found.subscription.creation_time.ToNanoseconds())
        before = self._landed()
        is_anew = bool(before) and before["created"] != created
        known = {} if is_anew else before.get("offsets", {})
        moved = {str(each.shard_id): str(each.batch_id) for each in found.offsets if each.batch_id}
        offsets = known | {shard: batch for shard, batch in moved.items() if int(batch) > int(known.get(shard, 0))}
        if offsets == known and not is_anew:
            return []
        body = {"subscription": self._options.subscription, "created": created, "offsets": offsets}
        self.last = json.dumps(body, sort_keys=True).encode()
        return [Frame(self.last, Kind.CONTROL)]

    def _landed(self) -> dict[str, Any]:
        return {} if self.last is None else dict(json.loads(self.last))

    async def _shared(self) -> list[Frame]:
        """Return a mark if others fetch from the subscription, each time others than before: we lack what they get."""
        found = await self._client.list_consumers(self._options.subscription)
        before, self._others = self._others, sorted(each.name for each in found if not each.name.startswith(self._ours))
        if not self._others or self._others == before:
            return []
        return [mark("shared subscription", stream=self._options.stream, level="warning", consumers=self._others)]

    async def _starved(self) -> list[Frame]:
        """Return a mark if nothing comes though there is more: once, until a frame comes again.

        What the server has recorded as acknowledged counts as landed while nobody else acknowledges.
        """
        stream = self._options.stream
        if self._begun is None:
            self._begun = await self._tails()
        if self._is_starved or self._clock() - self._received_at < self._patience:
            return []
        known = {} if self._others else self._landed().get("offsets", {})
        ahead = []
        for shard_id, tail in (await self._tails()).items():
            landed = (
                self._epoch.highest.get(shard_id, 0),
                int(known.get(str(shard_id), 0)),
                self._begun.get(shard_id, 0),
            )
            if tail > max(landed):
                ahead.append(str(shard_id))
        if not ahead:
            return []
        self._is_starved = True
        consumers = [each.name for each in await self._client.list_consumers(self._options.subscription)]
        return [mark("starved", stream=stream, level="warning", shards=ahead, consumers=consumers)]

    async def _tails(self) -> dict[int, int]:
        """Return the last batch of each shard that has one: the first of a log is 1, beside its epoch."""
        stream = self._options.stream
        shards = [each.shard_id for each in await self._client.list_shards(stream)]
        tails = {shard_id: (await self._client.tail(stream, shard_id)).batch_id for shard_id in shards}
        return {shard_id: batch_id for shard_id, batch_id in tails.items() if batch_id & _IN_LOG}
