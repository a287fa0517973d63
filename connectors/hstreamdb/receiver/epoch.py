"""What lands of an epoch's fetches: whole frames as received, and marks of what is strange about them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from silverfold.conf.errors import RemoteProtocolError, WireError
from silverfold.connectors.common.bad_input import bad_input
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.connectors.hstreamdb.protocol.records import RecordId, batches_between

MAX_REPEATS: Final = 3
"""A frame that cannot be acknowledged comes again; that often, it ends the epoch."""
_MOST_REMEMBERED: Final = 1_000
"""Bad frames remembered, by their hash."""
_MOST_GAPS: Final = 1_000
"""Gaps of a shard that are remembered: a source in order has none."""


@dataclass
class ShardProgress:
    """What of a shard landed in this epoch."""

    newest: int = 0
    """The highest batch that has landed, in this epoch or before it, or that need not land; 0 for none."""
    has_begun: bool = False
    """Whether it is known behind which batch all are to land."""
    oldest: int = 0
    """The lowest batch that has landed in this epoch; 0 for none."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """What has not landed below the newest batch, as the batches before and after it. Each may still come."""
    published_ms: int = 0
    """Time of its append."""
    batches: int = 0
    records: int = 0
    """Of those batches, each of which was the highest when it came."""
    again: int = 0
    """Records of other batches: at or below one that had landed."""

    def take(self, batch_id: int, records: int, published_ms: int) -> None:
        """Count a frame."""
        had_landed, self.oldest = self.has_begun or self.oldest > 0, min(self.oldest or batch_id, batch_id)
        if batch_id <= self.newest:
            self.again += records
            self._fill(batch_id)
            return
        if had_landed:
            self._note(self.newest, batch_id)
        self.newest, self.published_ms = batch_id, published_ms
        self.batches += 1
        self.records += records

    @property
    def whole_until(self) -> int:
        """The batch up to which nothing is missing."""
        return min((after for after, _ in self.gaps), default=self.newest)

    def begin(self, after: int) -> None:
        """Expect all batches behind one, and none up to it."""
        if after < self.newest and not self.has_begun:
            self._note(after, self.oldest)
        self.gaps = [(max(start, after), end) for start, end in self.gaps if batches_between(after, end) > 1]
        self.newest, self.has_begun = max(self.newest, after), True

    def skip(self, after: int, first: int) -> bool:
        """Expect no batch between two. Return whether that is new: none has landed there meanwhile."""
        if after == self.newest:
            self.begin(first - 1)
            return True
        for at, (start, end) in enumerate(self.gaps):
            if start == after:
                self.gaps[at : at + 1] = [(first - 1, end)] if batches_between(first - 1, end) > 1 else []
                return True
        return False

    def _note(self, after: int, before: int) -> None:
        if batches_between(after, before) > 1 and len(self.gaps) < _MOST_GAPS:
            self.gaps.append((after, before))

    def _fill(self, batch_id: int) -> None:
        for start, end in [each for each in self.gaps if each[0] < batch_id < each[1]]:
            self.gaps.remove((start, end))
            self._note(start, batch_id)
            self._note(batch_id, end)


def newest_batches(positions: Iterable[str]) -> dict[int, int]:
    """Return the highest batch of each shard in source positions: of frames, or of streams with commas in between."""
    newest: dict[int, int] = {}
    for each in ",".join(positions).split(","):
        if each:
            shard_id, batch_id = map(int, each.split("-")[:2])
            newest[shard_id] = max(newest.get(shard_id, 0), batch_id)
    return newest


class Epoch:
    """The frames of one epoch, in the order in which its fetches received them.

    Args:
        stream: The stream that the subscription reads.
        newest: Per shard, the batch up to which everything has landed before, or need not land.
    """

    def __init__(self, stream: str, newest: Mapping[int, int] = MappingProxyType({})) -> None:
        self._stream = stream
        self._consumers: dict[int, str] = {}
        self._bad = Counter[int]()
        self.gaps_found = 0
        """Number of frames that have shown that batches before them have not landed."""
        self.shards = defaultdict[int, ShardProgress](ShardProgress)
        """What has landed, by shard."""
        self.shards.update({shard_id: ShardProgress(batch_id, has_begun=True) for shard_id, batch_id in newest.items()})

    @property
    def newest(self) -> Mapping[int, int]:
        """The highest batch of each shard that has landed, in this epoch or before it, or that need not land."""
        return {shard_id: found.newest for shard_id, found in self.shards.items() if found.newest}

    def frames(
        self,
        body: bytes,
        ids: Sequence[RecordId],
        error: WireError | None = None,
        *,
        consumer: str = "",
        published_ms: int = 0,
    ) -> list[Frame]:
        """Return what lands of a frame.

        Args:
            ids: Of its records.
            error: Why the ids cannot be read.
            consumer: Name of the fetch that received it.
            published_ms: Time of its batch's append.

        Raises:
            RemoteProtocolError: It cannot be read, and came for the third time.
        """
        if error is not None:
            return [self._bad_frame(body, error)]
        first = ids[0]
        shard = self.shards[first.shard_id]
        gaps = len(shard.gaps)
        shard.take(first.batch_id, len(ids), published_ms)
        if len(shard.gaps) > gaps:
            self.gaps_found += 1
        frame = Frame(body, Kind.DATA, Boundary.WHOLE, self._stream, str(first))
        before = self._consumers.setdefault(first.shard_id, consumer)
        if before == consumer:
            return [frame]
        self._consumers[first.shard_id] = consumer
        moved = mark("reassigned", stream=self._stream, shard=str(first.shard_id), before=before, now=consumer)
        return [moved, frame]

    def _bad_frame(self, body: bytes, error: WireError) -> Frame:
        if len(self._bad) < _MOST_REMEMBERED:
            self._bad[hash(body)] += 1
        if self._bad[hash(body)] >= MAX_REPEATS:
            raise RemoteProtocolError(f"a frame that cannot be acknowledged keeps coming: {error}", stream=self._stream)
        return bad_input("bad_frame", body, error, stream=self._stream, level="warning")
