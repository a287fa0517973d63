"""The records of a stream from the oldest on, read by offset: what verify compares silver with.

Shards follow one another in the order of their ids, so that records come in the order in which silver has them.
"""

from __future__ import annotations

import asyncio
import json
import os
from bisect import bisect_left
from collections.abc import AsyncGenerator, Container, Iterator, Mapping, Sequence
from operator import itemgetter
from types import TracebackType
from typing import Self

from silverfold.conf.errors import SourceRefused
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.hstreamdb.client.client import open_feed_client
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.options import HStreamFeed
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.times import creation_of
from silverfold.connectors.hstreamdb.reference.reader import HStreamReferenceReader, committed_floors
from silverfold.connectors.verification import ReferenceChange, SourceRecord


class HStreamSourceReplay:
    """A `connectors.verification.SourceReplay`. Connects on entering its ``with`` block."""

    def __init__(self, feed: HStreamFeed, table: str) -> None:
        self._feed, self._options = feed, feed.options
        self._reader = HStreamReferenceReader(feed.tables[table], feed.options)
        self._is_current = False
        self._floors: list[tuple[int, Mapping[int, int]]] = []
        self._created = ""
        self._oldest: dict[int, SourceRecord] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The configured keys."""
        return self._reader.keys

    @property
    def columns(self) -> tuple[str, ...]:
        """The configured columns."""
        return self._reader.columns

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        try:
            self._client = self._runner.run(open_feed_client(self._feed, os.environ))
            found = self._runner.run(self._client.get_subscription(self._options.subscription)).subscription
            if found.offset != SpecialOffset.EARLIEST:
                text = f"{found.subscription_id} began at the end of the stream, with no record that tells where"
                raise SourceRefused(code="offset", text=text)
            self._created = creation_of(found)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if hasattr(self, "_client"):
            self._runner.run(self._client.close())
        self._runner.close()

    def control(self, frame: ControlFrame) -> None:
        """Note committed floors; of the current subscription the newest ones count."""
        content = json.loads(frame.body)
        self._is_current = content["created"] == self._created
        self._floors.append((frame.frame_seq, committed_floors(content)))

    def landed(self, position: int, body: bytes) -> Sequence[SourceRecord]:
        """Return the ids of a frame, but for those that had landed before, by the floors then.

        None if they cannot be read: then they were not acknowledged either.
        """
        before = bisect_left(self._floors, position, key=itemgetter(0))
        floors = self._floors[before - 1][1] if before else {}
        return [each for each in FetchedFrame.of(body).ids if not 0 < each.batch_id <= floors.get(each.shard_id, 0)]

    def was_acknowledged(self, record: SourceRecord) -> bool:
        """Return whether a record is at or below a committed floor of the current subscription."""
        shard_id, batch_id, _ = record
        return self._is_current and batch_id <= self._floors[-1][1].get(shard_id, 0)

    def is_expired(self, record: SourceRecord) -> bool:
        """Return whether its shard begins behind the record, or is empty or gone."""
        oldest = self._oldest.get(record[0])
        return oldest is None or record < oldest

    def records(self, wanted: Container[SourceRecord]) -> Iterator[tuple[RecordId, Sequence[ReferenceChange]]]:
        """Yield the stream's records, as they are now; see `connectors.verification.SourceReplay.records`."""
        shards = self._runner.run(self._client.list_shards(self._options.stream))
        for shard_id in sorted(shard.shard_id for shard in shards):
            for frame in self._frames(self._client.read_shard(self._options.stream, shard_id)):
                if frame.error is not None:
                    raise frame.error
                self._oldest.setdefault(shard_id, frame.ids[0])
                yield from self._records_of(frame, wanted)

    def _frames(self, frames: AsyncGenerator[FetchedFrame, None]) -> Iterator[FetchedFrame]:
        try:
            while (frame := self._runner.run(_next(frames))) is not None:
                yield frame
        finally:
            self._runner.run(frames.aclose())

    def _records_of(
        self, frame: FetchedFrame, wanted: Container[SourceRecord]
    ) -> Iterator[tuple[RecordId, Sequence[ReferenceChange]]]:
        if not any(each in wanted for each in frame.ids):
            yield from ((each, ()) for each in frame.ids)
            return
        for found in frame.decode(limit=self._options.max_batch_bytes).records:
            yield found.id, list(self._reader.record_changes(found)) if found.id in wanted else ()


async def _next(frames: AsyncGenerator[FetchedFrame, None]) -> FetchedFrame | None:
    return await anext(frames, None)
