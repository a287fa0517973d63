"""How far a feed is behind its source, and warnings of what holds it back: other consumers, a shard that is silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from silverfold.connectors.frames import Frame, mark
from silverfold.connectors.hstreamdb.protocol.records import batches_between
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch
from silverfold.connectors.hstreamdb.receiver.gaps import Overdue


class Lag:
    """The lag of one epoch. Marks are returned when they change.

    Args:
        feed: The feed's name.
        ours: Prefix of the names of our consumers, which begin with the feed's name.
        overdue: Is kept up to date.
        patience: Seconds for which a shard is ahead, and sends no frame, before that is a warning.
        clock: Returns seconds; any that ascend.
    """

    def __init__(
        self,
        stream: str,
        epoch: Epoch,
        control: ControlFrames,
        *,
        feed: str,
        ours: str,
        overdue: Overdue,
        patience: float,
        clock: Callable[[], float],
    ) -> None:
        self._stream, self._epoch, self._control = stream, epoch, control
        self._feed, self._ours = feed, ours
        self._overdue, self._patience, self._clock = overdue, patience, clock
        self._consumers, self._others = list[str](), list[str]()
        self._were_listed, self._missed = False, 0
        self._reported: dict[str, dict[str, float]] = {}

    def note_frame(self, shard_id: int) -> None:
        """Note that a frame of a shard came."""
        self._overdue.shards.pop(shard_id, None)
        self._overdue.reported_shards.discard(shard_id)

    def progress(self, tails: Mapping[int, int], pending: int) -> list[Frame]:
        """Return a mark of how far behind the source the feed is, if that has changed.

        Args:
            tails: The last batch of each shard, or the number 0 of its log's epoch.
            pending: Number of records that landed and are not acknowledged.
        """
        parts = {f"shard {shard_id}": self._of_shard(shard_id, tail) for shard_id, tail in tails.items()}
        parts["subscription"] = {"records_unacknowledged": pending}
        if parts == self._reported:
            return []
        self._reported = parts
        return [mark("progress", parts=parts)]

    def _of_shard(self, shard_id: int, tail: int) -> dict[str, float]:
        landed = self._epoch.shards[shard_id]
        batches = batches_between(self._newest(shard_id), tail)
        lag: dict[str, float] = {"batches_behind": batches, "records_redelivered": landed.again}
        if not batches:
            return lag | {"records_behind_about": 0, "seconds_behind": 0}
        if landed.batches:
            lag["records_behind_about"] = round(batches * landed.records / landed.batches)
        if landed.published_ms:
            lag["seconds_behind"] = round(max(time.time() - landed.published_ms / 1000, 0), 1)
        return lag

    def _newest(self, shard_id: int) -> int:
        """Return the last batch that we have of a shard, or need not have.

        What the server has recorded as acknowledged counts, while nobody else acknowledges.
        """
        committed = 0 if self._others else self._control.committed(shard_id)
        return max(self._epoch.shards[shard_id].newest, committed)

    def shared(self, consumers: Sequence[str]) -> list[Frame]:
        """Return a mark if others fetch from the subscription, each time others than before: we lack what they get.

        A name with our feed's prefix may be that of a receiver that has just ended, so it counts at the second look.

        Args:
            consumers: Names of all consumers.
        """
        seen, self._consumers = self._consumers, list(consumers)
        theirs = sorted(name for name in self._consumers if not name.startswith(self._ours))
        before, self._others = self._others, [name for name in theirs if name in seen or not self._is_of_feed(name)]
        if not self._others or self._others == before:
            return []
        return [mark("shared subscription", stream=self._stream, level="warning", consumers=self._others)]

    def are_forgotten(self) -> bool:
        """Return whether two looks in a row lack our consumers, which were listed before: nothing comes any more.

        The node may have ended without closing the connection, which gRPC notices after five minutes.
        """
        is_listed = any(name.startswith(self._ours) for name in self._consumers)
        self._were_listed |= is_listed
        self._missed = 0 if is_listed or not self._were_listed else self._missed + 1
        return self._missed > 1

    def _is_of_feed(self, name: str) -> bool:
        return name.startswith(f"{self._feed}-")

    def starved(self, tails: Mapping[int, int]) -> list[Frame]:
        """Return a mark if shards are ahead and nothing of them comes: once, until a frame of them comes again.

        None while the cluster does not list our consumers: then nothing can come.

        A shard without a tail, since its call failed, is as it was.
        """
        if self._missed:
            return []
        now, known = self._clock(), self._overdue
        ahead = [shard_id for shard_id, tail in tails.items() if batches_between(self._newest(shard_id), tail)]
        unanswered = {shard_id: since for shard_id, since in known.shards.items() if shard_id not in tails}
        known.shards = unanswered | {shard_id: known.shards.get(shard_id, now) for shard_id in ahead}
        before = known.reported_shards
        known.reported_shards = {each for each in ahead if now - known.shards[each] >= self._patience}
        known.reported_shards |= before & unanswered.keys()
        if known.reported_shards <= before:
            return []
        shards = [str(shard_id) for shard_id in sorted(known.reported_shards)]
        why = (
            "these shards have batches that did not land, and the subscription sends none of them; "
            "if no other consumer has them, one made anew sends all"
        )
        consumers = self._consumers
        return [mark("starved", stream=self._stream, level="warning", reason=why, shards=shards, consumers=consumers)]
