"""Gaps: batches that have not landed, though later ones have or there are later ones. Which of them never come?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from silverfold.connectors.frames import Frame, mark
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.client.readers import Offset
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.records import RecordId, batch_number, batches_between, may_miss
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch
from silverfold.connectors.hstreamdb.receiver.look_calls import LookCalls

_MOST_READ: Final = 16
"""Gaps of a shard to look at at once, in turn: a subscription that others share has as many as they have batches."""
_READ_SECONDS: Final = 5.0
"""Seconds to wait for one batch read by offset, as for any other call."""


class _Suspect(NamedTuple):
    """Where batches of a shard may be missing: behind a batch, None if that is unknown, and before another one."""

    shard_id: int
    after: int | None
    before: int


class _Looked(NamedTuple):
    """What the shard has of it."""

    first: int
    """The first batch that it has behind the gap's beginning; the one at its end if there is none sooner."""
    is_trimmed: bool = False
    """Whether an epoch of the log ended inside, and it has none of that any more: nothing tells how many there were."""


@dataclass
class Overdue:
    """What does not come, as a process knows it: an epoch of the connection may be too short to tell.

    Times are seconds of the looks' clock.
    """

    gaps: dict[_Suspect, float] = field(default_factory=dict)
    """When each open gap was seen first."""
    reported_gaps: set[_Suspect] = field(default_factory=set)
    """Those of which a mark tells that their batches do not come."""
    seen: set[tuple[int, int]] = field(default_factory=set)
    """Shards, and the batches behind which they had some of a gap up to another epoch of the log."""
    shards: dict[int, float] = field(default_factory=dict)
    """Since when a shard is ahead, and nothing of it has come."""
    reported_shards: set[int] = field(default_factory=set)
    """Those that a mark tells of."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failures in a row of each call of a look, by its name."""

    def of_another_subscription(self) -> Overdue:
        """Return what holds of another subscription too: since when records are due is not known yet."""
        return Overdue(seen=self.seen, failures=self.failures)


class GapSearch:
    """Looks gaps up in their shards, and finds out where shards begin for the feed.

    Args:
        control: Is told what need not come.
        calls: Makes the calls.
        overdue: Is kept up to date.
        patience: Seconds after which batches should have come that are in the shard, and were sent to others.
        clock: Returns seconds; any that ascend.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        epoch: Epoch,
        control: ControlFrames,
        calls: LookCalls,
        *,
        overdue: Overdue,
        patience: float,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._stream, self._epoch, self._control = client, stream, epoch, control
        self._calls, self._is_anew = calls, control.is_anew
        self._overdue, self._patience, self._clock = overdue, patience, clock
        self._turn = 0
        self._quiet: dict[int, int] = {}
        """The newest batch of each shard at the last look."""

    async def look(self, tails: Mapping[int, int], checkpoints: Mapping[int, int]) -> list[Frame]:
        """Return a mark if shards have dropped batches before they landed, each once; another if batches do not come.

        Args:
            tails: The last batch of each shard, or the number 0 of its log's epoch.
            checkpoints: The batch of each shard up to which all is acknowledged, if known.
        """
        if self._control.begins_at_end:
            self._begin_at_end(tails, checkpoints)
        suspects = list(self._suspects(tails))
        self._turn += _MOST_READ
        looked = await self._calls.each((f"read shard {each.shard_id}", partial(self._look, each)) for each in suspects)
        self._quiet = {shard_id: self._epoch.shards[shard_id].newest for shard_id in tails}
        found = [(suspect, each) for suspect, each in zip(suspects, looked, strict=True) if each is not None]
        return [*self._skip(found), *self._not_delivered(found)]

    def _not_delivered(self, looked: Iterable[tuple[_Suspect, _Looked]]) -> list[Frame]:
        """Return a mark if gaps stay open though the shard has their batches: once for each gap."""
        now, known = self._clock(), self._overdue
        gaps = [_Suspect(shard_id, *gap) for shard_id, shard in self._epoch.shards.items() for gap in shard.gaps]
        known.gaps = {gap: known.gaps.get(gap, now) for gap in gaps}
        known.reported_gaps &= set(gaps)
        late = {
            suspect
            for suspect, found in looked
            if found.first < suspect.before and suspect not in known.reported_gaps
            if now - known.gaps.get(suspect, now) >= self._patience
        }
        known.reported_gaps |= late
        overdue = {str(gap.shard_id): f"behind {gap.after}" for gap in sorted(late, reverse=True)}  # the first of each
        if not overdue:
            return []
        why = "batches are in the stream and do not come: another consumer may have acknowledged them"
        return [mark("not delivered", stream=self._stream, level="warning", reason=why, shards=overdue)]

    def _begin_at_end(self, tails: Mapping[int, int], checkpoints: Mapping[int, int]) -> None:
        for shard_id, tail in tails.items():
            shard = self._epoch.shards[shard_id]
            if self._is_anew or not shard.has_begun or shard.is_guess:
                begun = shard.begin_at_end(tail, checkpoints.get(shard_id, 0))
                if not shard.is_guess:
                    self._control.skipped[shard_id] = begun
        self._is_anew = self._is_anew and not tails

    def _suspects(self, tails: Mapping[int, int]) -> Iterator[_Suspect]:
        """Yield where batches may be missing.

        Behind the newest batch they are in a shard of which nothing lands: of any other, the next frame shows it.
        """
        for shard_id, tail in tails.items():
            shard = self._epoch.shards[shard_id]
            if not shard.has_begun:
                yield _Suspect(shard_id, None, tail + 1)
                continue
            turn = self._turn % len(shard.gaps) if len(shard.gaps) > _MOST_READ else 0
            yield from (_Suspect(shard_id, *gap) for gap in [*shard.gaps[turn:], *shard.gaps[:turn]][:_MOST_READ])
            if tail > shard.newest == self._quiet.get(shard_id, shard.newest):
                yield _Suspect(shard_id, shard.newest, tail + 1)

    async def _look(self, suspect: _Suspect) -> _Looked:
        shard_id, after, before = suspect
        if after is not None and not may_miss(after, before):
            return _Looked(before)
        start = SpecialOffset.EARLIEST if after is None else RecordId(shard_id, after + 1, 0)
        first = min([await self._first(shard_id, start, before) for _ in range(2)])  # a wrong one is believed for ever
        if after is None or not 0 < after >> 32 < before >> 32:
            return _Looked(first)
        if first >> 32 == after >> 32:
            self._overdue.seen.add((shard_id, after))
            return _Looked(first)
        if (shard_id, after) in self._overdue.seen:
            return _Looked(first, is_trimmed=True)
        if not batch_number(after):
            return _Looked(first)
        oldest = await self._first(shard_id, SpecialOffset.EARLIEST, before)
        return _Looked(first, is_trimmed=oldest > after)

    async def _first(self, shard_id: int, start: Offset, before: int) -> int:
        """Return the first batch that a shard has from an offset on, or `before` or where the shard ends if sooner."""
        async with asyncio.timeout(_READ_SECONDS):
            frames = self._client.read_shard(self._stream, shard_id, start, max_batches=1)
            found = [each.ids[0].batch_id if each.ids else None async for each in frames]
        if not found:
            return min(before, (await self._client.log_end(self._stream, shard_id)).batch_id + 1)
        if found[0] is None:
            return start.batch_id if isinstance(start, RecordId) else 1  # it is there, and cannot be read
        return min(before, found[0])

    def give_up(self, listed: Collection[int]) -> list[Frame]:
        """Return a mark of shards that the stream does not have any more: once. Their gaps are closed.

        Nothing tells how many batches they had behind what landed.

        Args:
            listed: The stream's shards.
        """
        gone = {
            shard_id: shard
            for shard_id, shard in self._epoch.shards.items()
            if (shard.gaps or shard_id not in self._control.gone)
            if shard.landed.newest and shard_id not in listed and not shard.oldest
        }
        self._control.gone |= gone.keys()
        for shard in gone.values():
            shard.gaps.clear()
        if not gone:
            return []
        why = "the stream does not have these shards any more: what of them had not landed never comes"
        shards = [str(shard_id) for shard_id in sorted(gone)]
        return [mark("expired", stream=self._stream, level="warning", reason=why, shards=shards)]

    def _skip(self, looked: Iterable[tuple[_Suspect, _Looked]]) -> list[Frame]:
        expired: dict[str, str] = {}
        skipped = self._control.skipped
        for (shard_id, after, _), (first, is_trimmed) in looked:
            shard, name = self._epoch.shards[shard_id], str(shard_id)
            if after is None:
                begun = min(first, shard.first or first) - 1
                shard.begin(begun)
                skipped[shard_id] = begun
            elif may_miss(after, first) and shard.skip(after, first):
                count = batches_between(after, first) - 1
                counts = ["an unknown number of batches"] * is_trimmed + [f"{count} batches"] * (count > 0)
                lost = " and ".join(counts)
                where = f"behind {after}" if after else f"before {first}, if the subscription began before them"
                if lost:
                    expired[name] = ", ".join(filter(None, [expired.get(name), f"{lost} {where}"]))
                skipped[shard_id] = max(first - 1, skipped.get(shard_id, 0))
        if not expired:
            return []
        why = "the stream has dropped records before they landed here: they never come"
        return [mark("expired", stream=self._stream, level="warning", reason=why, shards=expired)]
