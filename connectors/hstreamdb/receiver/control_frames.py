"""The receiver's control frames: committed floors, and what never comes.

::

    {"subscription", "created", "offsets": {shard: batch}, "skipped": {shard: batch}}

Numbers are text. ``offsets`` has, per shard, the batch up to which the server has recorded all as acknowledged. So all
that was committed, before the control frame. ``created`` tells one subscription from another of its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from silverfold.connectors.frames import Frame, Kind, mark
from silverfold.connectors.hstreamdb.options import HStreamOptions
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import GetSubscriptionResponse, Subscription
from silverfold.connectors.hstreamdb.protocol.records import batch_number
from silverfold.connectors.hstreamdb.protocol.times import creation_of
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch


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
        skipped = {} if self.is_anew else self._content.get("skipped", {})
        self.skipped = {int(shard_id): int(batch_id) for shard_id, batch_id in skipped.items()}
        """Per shard, the batch up to which everything has landed or is known to be gone."""

    def expected_after(self, newest: Mapping[int, int]) -> dict[int, int]:
        """Return, per shard, the batch after which the epoch's first one is expected.

        Args:
            newest: The highest batch of each shard that has landed.
        """
        offsets = {} if self.is_anew else self._content.get("offsets", {})
        expected = dict(newest)
        for name, batch_id in [*offsets.items(), *self.skipped.items()]:
            expected[int(name)] = max(expected.get(int(name), 0), int(batch_id))
        return expected

    def committed(self, shard_id: int) -> int:
        """Return the batch of a shard up to which all is committed; 0 for none."""
        return int(self._content.get("offsets", {}).get(str(shard_id), 0))

    def next_frames(self, found: GetSubscriptionResponse, epoch: Epoch) -> list[Frame]:
        """Return a control frame if a floor moved, or the subscription is another one: the first one too.

        Adds a warning if records are lost: appended before a recreated subscription that starts at the end, or
        acknowledged but not in this bronze. From then on the epoch expects nothing up to a floor that moved.
        """
        created, before = creation_of(found.subscription), self._content
        is_anew = bool(before) and before["created"] != created
        known = {} if is_anew else before.get("offsets", {})
        moved = {str(each.shard_id): str(each.batch_id) for each in found.offsets if each.batch_id}
        offsets = known | {shard: batch for shard, batch in moved.items() if int(batch) > int(known.get(shard, 0))}
        body = {
            "subscription": self._options.subscription,
            "created": created,
            "offsets": offsets,
            "skipped": {str(shard_id): str(batch_id) for shard_id, batch_id in self.skipped.items()},
        }
        if body == before:
            return []
        self._content, self.last = body, json.dumps(body, sort_keys=True).encode()
        frames = [Frame(self.last, Kind.CONTROL)]
        frames += self._elsewhere(
            {shard: batch for shard, batch in offsets.items() if batch != known.get(shard)}, epoch
        )
        if is_anew and found.subscription.offset == SpecialOffset.LATEST:
            why = "another subscription, which began at the end: records appended before it may never come"
            frames.append(mark("begun at the end", stream=self._options.stream, level="warning", reason=why))
        return frames

    def _elsewhere(self, moved: Mapping[str, str], epoch: Epoch) -> list[Frame]:
        """Return a mark if more is acknowledged than has landed: bronze is not the one that the source fed before.

        A gap behind the last record counts as acknowledged too, so the mark is no proof of a loss. Batch number 0 is
        never used: such a checkpoint only shows that the log began a new epoch.
        """
        ahead = {}
        for name, batch in moved.items():
            shard = epoch.shards[int(name)]
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
