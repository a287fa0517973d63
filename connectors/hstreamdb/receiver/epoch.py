"""What lands of an epoch's fetches: whole frames as received, and marks of what is strange about them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from silverfold.conf.errors import RemoteProtocolError, WireError
from silverfold.connectors.common.bad_input import bad_input
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.connectors.hstreamdb.protocol.records import RecordId

MAX_REPEATS: Final = 3
"""A frame that cannot be acknowledged comes again; that often, it ends the epoch."""
_MOST_REMEMBERED: Final = 1_000
"""Bad frames remembered, by their hash."""


@dataclass
class ShardProgress:
    """What of a shard landed in this epoch."""

    newest: int = 0
    """The highest batch that has landed, in this epoch or before it; 0 for none."""
    published_ms: int = 0
    """Time of its append."""
    batches: int = 0
    records: int = 0
    """Of those batches, each of which was the highest when it came."""
    again: int = 0
    """Records of other batches: at or below one that had landed."""

    def take(self, batch_id: int, records: int, published_ms: int) -> None:
        """Count a frame."""
        if batch_id <= self.newest:
            self.again += records
            return
        self.newest, self.published_ms = batch_id, published_ms
        self.batches += 1
        self.records += records


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
        newest: The highest batch of each shard that has landed before.
    """

    def __init__(self, stream: str, newest: Mapping[int, int] = MappingProxyType({})) -> None:
        self._stream = stream
        self._consumers: dict[int, str] = {}
        self._bad = Counter[int]()
        self.shards = defaultdict[int, ShardProgress](ShardProgress)
        """What has landed, by shard."""
        self.shards.update({shard_id: ShardProgress(batch_id) for shard_id, batch_id in newest.items()})

    @property
    def newest(self) -> Mapping[int, int]:
        """The highest batch of each shard that has landed, in this epoch or before it."""
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
        self.shards[first.shard_id].take(first.batch_id, len(ids), published_ms)
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
