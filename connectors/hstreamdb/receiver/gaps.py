"""Gaps: batches that have not landed, though later ones have or there are later ones. Which of them never come?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.frames import Frame, mark
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.protocol.records import RecordId, batches_between
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch

_MOST_READ: Final = 16
"""Gaps of a shard to look at at once: a subscription that others share has as many as they have batches."""
_READ_SECONDS: Final = 5.0
"""Seconds to wait for one batch read by offset, as for any other call."""


class GapSearch:
    """Looks gaps up in their shards, and finds out where shards begin for the feed.

    Args:
        control: Is told what need not come.
        begins_at_end: Whether the subscription begins at the end of the stream.
    """

    def __init__(
        self, client: Client, stream: str, epoch: Epoch, control: ControlFrames, *, begins_at_end: bool
    ) -> None:
        self._client, self._stream, self._epoch, self._control = client, stream, epoch, control
        self._begins_at_end, self._is_anew = begins_at_end, control.is_anew
        self._quiet: dict[int, int] = {}
        """The newest batch of each shard at the last look."""

    async def expired(self, tails: Mapping[int, int]) -> list[Frame]:
        """Return a mark if shards have dropped batches before they landed, each once.

        Args:
            tails: The last batch of each shard; 0 if there is none.
        """
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
                self._control.skipped[shard_id] = after
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
            frames = self._client.read_shard(self._stream, shard_id, start, max_batches=1)
            found = [each.ids[0].batch_id if each.ids else after + 1 async for each in frames]
        return min([*found, before])

    def _skip(self, found: Iterable[tuple[int, int | None, int]]) -> list[Frame]:
        expired: dict[str, str] = {}
        skipped = self._control.skipped
        for shard_id, after, first in found:
            shard, name = self._epoch.shards[shard_id], str(shard_id)
            if after is None:
                begun = min(first, shard.oldest or first) - 1
                shard.begin(begun)
                skipped[shard_id] = begun
            elif (count := batches_between(after, first) - 1) > 0 and shard.skip(after, first):
                expired[name] = ", ".join(filter(None, [expired.get(name), f"{count} batches behind {after}"]))
                skipped[shard_id] = max(first - 1, skipped.get(shard_id, 0))
        if not expired:
            return []
        why = "the stream has dropped records before they landed here: they never come"
        return [mark("expired", stream=self._stream, level="warning", reason=why, shards=expired)]
