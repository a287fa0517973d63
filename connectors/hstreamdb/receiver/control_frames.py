"""The receiver's control frames: committed floors, what never comes, and what is missing and may still come.

::

    {"subscription", "created", "offsets": {shard: batch}, "skipped": {shard: batch},
     "missing": {shard: [[batch before, batch after], …]}, "elsewhere": {shard: [[…], …]}, "guessed": {shard: batch},
     "gone": [shard, …]}

Numbers are text. ``offsets`` has, per shard, the batch up to which the server has recorded all as acknowledged. So all
that was committed, before the control frame. ``created`` tells one subscription from another of its name; the floors of
another one stay for what had landed, since it sends that again. Absent if empty: ``missing``, and ``elsewhere``, what
others acknowledged, or what was before a subscription that began at the end. Another one from the earliest sends that
too: it is missing then. ``guessed`` is the tail at a look, of shards of which nothing tells yet where a subscription
that began at the end stands. ``gone`` are shards that the stream does not have any more. A control frame with a new gap
lands together with the frame that shows it: the next epoch knows of it, whenever this process dies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from silverfold.connectors.frames import Frame, Kind, mark
from silverfold.connectors.hstreamdb.options import HStreamOptions
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import (
    GetSubscriptionResponse,
    Subscription,
    SubscriptionOffset,
)
from silverfold.connectors.hstreamdb.protocol.records import batch_number, may_miss
from silverfold.connectors.hstreamdb.protocol.times import creation_of
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch, LandedBatches, ShardProgress, joined

_MOST_RANGES: Final = 100
"""Ranges of a shard in a control frame, the lowest ones: a subscription that others share has any number of them."""
_NOTHING: Final = LandedBatches(0)


class ControlFrames:
    """The last control frame of a subscription, and those that follow it.

    Args:
        subscription: As it is when the epoch begins.
        last: Body of the last control frame that landed; None if there is none.
    """

    def __init__(self, options: HStreamOptions, subscription: Subscription, last: bytes | None) -> None:
        self._options = options
        self.last = last
        """Body of the last control frame."""
        self._content: dict[str, Any] = {} if last is None else json.loads(last)
        self.is_anew = bool(self._content) and self._content.get("created") != creation_of(subscription)
        """Whether the subscription had taken another one's place when the epoch began."""
        self.skipped = _numbers({} if self.is_anew else self._content.get("skipped", {}))
        """Per shard, the batch up to which everything has landed or is known to be gone."""
        self.gone = {int(shard_id) for shard_id in self._content.get("gone", ())}
        """Shards that the stream does not have any more, as a mark tells."""
        self.begins_at_end = subscription.offset == SpecialOffset.LATEST
        """Whether the subscription began at the end of the stream."""

    def expected(self, landed: Mapping[int, LandedBatches]) -> dict[int, ShardProgress]:
        """Return, per shard, what an epoch need not expect any more; with what is missing below it.

        Args:
            landed: What has landed; its missing ranges may be too large, since bronze drops old frames.
        """
        of_this = {} if self.is_anew else self._content
        floors, guessed = _numbers(of_this.get("offsets", {})), _numbers(of_this.get("guessed", {}))
        missing = _ranges(self._content.get("missing", {}))
        elsewhere = _ranges(self._content.get("elsewhere", {}))
        sends_all = self.is_anew and not self.begins_at_end
        shards = {}
        for shard_id in landed.keys() | floors.keys() | self.skipped.keys() | elsewhere.keys() | guessed.keys():
            newest, open_ranges = landed.get(shard_id, _NOTHING)
            begun = max(newest, floors.get(shard_id, 0), self.skipped.get(shard_id, 0))
            guess = guessed.get(shard_id, 0)
            gaps = [*_in_both(missing.get(shard_id, ()), open_ranges)]  # whichever subscription may send it
            others = elsewhere.get(shard_id, [])
            shards[shard_id] = ShardProgress(
                max(begun, guess),
                has_begun=(bool(begun or guess) or sends_all) and not any(after == 0 for after, _ in gaps),
                is_guess=guess > begun,
                landed_before=begun,
                gaps=joined(gaps + others) if sends_all else gaps,
                elsewhere=[] if sends_all else others,
            )
        return shards

    def committed(self, shard_id: int) -> int:
        """Return the batch of a shard up to which all is committed; 0 for none."""
        return int(self._content.get("offsets", {}).get(str(shard_id), 0))

    def missing_frames(self, epoch: Epoch) -> list[Frame]:
        """Return a control frame if the last one has other batches missing or skipped; none before the first."""
        known = {name: self._content[name] for name in ("subscription", "created", "offsets") if name in self._content}
        return self._next(known | self._gaps(epoch)) if known else []

    def are_ahead(self, offsets: Iterable[SubscriptionOffset], epoch: Epoch) -> bool:
        """Return whether a checkpoint is above what has landed whole, so that it says that some never comes."""
        return any(each.batch_id > epoch.shards[each.shard_id].whole_until for each in offsets)

    def next_frames(
        self, found: GetSubscriptionResponse, epoch: Epoch, tails: Mapping[int, int] = MappingProxyType({})
    ) -> list[Frame]:
        """Return a control frame if a floor moved, a gap opened or closed, or the subscription is another one.

        Adds a warning if records are lost: appended before a recreated subscription that starts at the end, or
        acknowledged but not in this bronze. From then on the epoch expects nothing up to a floor that moved.

        Args:
            tails: The last batch of shards whose gaps were looked up: what the stream dropped counts as acknowledged.
                A floor above missing batches waits for such a look. One above the tail is not believed.
        """
        created, before = creation_of(found.subscription), self._content
        is_anew = bool(before) and before["created"] != created
        known = self._landed_before(epoch) if is_anew else before.get("offsets", {})
        moved = {
            str(each.shard_id): str(each.batch_id)
            for each in found.offsets
            if 0 < each.batch_id <= max(epoch.shards[each.shard_id].whole_until, tails.get(each.shard_id, 0))
        }
        offsets = known | {shard: batch for shard, batch in moved.items() if int(batch) > int(known.get(shard, 0))}
        marks = self._acknowledged_elsewhere(
            {shard: batch for shard, batch in offsets.items() if batch != known.get(shard)}, epoch
        )
        body = {
            "subscription": self._options.subscription,
            "created": created,
            "offsets": offsets,
            **self._gaps(epoch),
        }
        frames = [*self._next(body), *marks]
        if is_anew and found.subscription.offset == SpecialOffset.LATEST:
            why = "another subscription, which began at the end: records appended before it may never come"
            frames.append(mark("begun at the end", stream=self._options.stream, level="warning", reason=why))
        return frames

    def _gaps(self, epoch: Epoch) -> dict[str, Any]:
        """Return the members ``skipped``, ``missing``, ``elsewhere``, ``guessed`` and ``gone``."""
        skipped = {str(shard_id): str(batch_id) for shard_id, batch_id in self.skipped.items()}
        members = {
            "missing": _as_text({shard_id: shard.gaps for shard_id, shard in epoch.shards.items()}),
            "elsewhere": _as_text({shard_id: shard.elsewhere for shard_id, shard in epoch.shards.items()}),
            "guessed": {str(shard_id): str(shard.newest) for shard_id, shard in epoch.shards.items() if shard.is_guess},
            "gone": [str(shard_id) for shard_id in sorted(self.gone)],
        }
        return {"skipped": skipped, **{name: value for name, value in members.items() if value}}

    def _landed_before(self, epoch: Epoch) -> dict[str, str]:
        """Return the floors of another subscription that still hold: what it sends again of them changes nothing.

        Without them deleted rows would come back, since the tombstones below them are gone.
        """
        floors = {
            name: min(int(batch_id), epoch.shards[int(name)].whole_until)
            for name, batch_id in self._content["offsets"].items()
        }
        return {name: str(batch_id) for name, batch_id in floors.items() if batch_id}

    def _next(self, content: dict[str, Any]) -> list[Frame]:
        if content == self._content:
            return []
        self._content, self.last = content, json.dumps(content, sort_keys=True).encode()
        return [Frame(self.last, Kind.CONTROL)]

    def _acknowledged_elsewhere(self, moved: Mapping[str, str], epoch: Epoch) -> list[Frame]:
        """Return a mark if more is acknowledged than has landed: bronze is not the one that the source fed before.

        A gap behind the last record counts as acknowledged too, so the mark is no proof of a loss. Batch number 0 is
        never used: such a checkpoint only shows that the log began a new epoch, and closes no gap.
        """
        ahead = {}
        for name, batch in moved.items():
            shard = epoch.shards[int(name)]
            if int(batch) > (landed := shard.whole_until) and batch_number(int(batch)):
                ahead[name] = f"{batch}, not {landed}"
            if batch_number(int(batch)) or not shard.has_begun:
                shard.lose(int(batch))
        if not ahead:
            return []
        why = (
            "acknowledged and not in this bronze, which may be another one, or restored: records in between never come"
        )
        stream = self._options.stream
        return [mark("acknowledged elsewhere", stream=stream, level="warning", reason=why, batches=ahead)]


def _numbers(batches: Mapping[str, str]) -> dict[int, int]:
    return {int(shard_id): int(batch_id) for shard_id, batch_id in batches.items()}


def _ranges(found: Mapping[str, Iterable[tuple[str, str]]]) -> dict[int, list[tuple[int, int]]]:
    return {int(shard_id): [(int(after), int(before)) for after, before in each] for shard_id, each in found.items()}


def _as_text(ranges: Mapping[int, Iterable[tuple[int, int]]]) -> dict[str, list[list[str]]]:
    """Return the ranges of shards that have any, the lowest of each."""
    return {
        str(shard_id): [[str(after), str(before)] for after, before in sorted(each)[:_MOST_RANGES]]
        for shard_id, each in ranges.items()
        if each
    }


def _in_both(some: Iterable[tuple[int, int]], others: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of batches that are in ranges of both."""
    for after, before in some:
        for other_after, other_before in others:
            start, end = max(after, other_after), min(before, other_before)
            if start < end and may_miss(start, end):
                yield start, end
