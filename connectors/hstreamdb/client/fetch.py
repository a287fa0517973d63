"""One StreamingFetch call: whole frames in, acknowledgements out. It always reads, so that no other consumer waits.

::

    async with await client.open_fetch("orders_feed") as fetch:
        for frame in await fetch.next_frames():
            ...                             # store frame.body
            fetch.ack(frame.ids)            # only then

A call ends with an error. Then another one is opened after a new lookup, under a new consumer name. It sends the ids
left in the `AckQueue`: they count if the node still has its state of the subscription, and are ignored otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from google.protobuf.message import DecodeError
from grpc import aio

from silverfold.conf.errors import InvalidValue, LocalProtocolError, SilverfoldError
from silverfold.connectors.hstreamdb.client.channels import status_error
from silverfold.connectors.hstreamdb.client.cluster import Cluster
from silverfold.connectors.hstreamdb.protocol.frames import (
    MAX_PLAIN_BYTES,
    Batch,
    decode_frame,
    encode_fetch_request,
    frame_ids,
)
from silverfold.connectors.hstreamdb.protocol.messages.batches import StreamingFetchResponse
from silverfold.connectors.hstreamdb.protocol.methods import STREAMING_FETCH
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.status import Status
from silverfold.connectors.hstreamdb.protocol.times import published_ms

MAX_BUFFERED_BYTES: Final = 64 << 20
MAX_ACK_IDS: Final = 10_000
"""Ids in one request: about 210 kB."""
CLOSE_SECONDS: Final = 5.0
_CLOSED: Final = Status("CANCELLED", "closed by the client")


@dataclass(frozen=True, slots=True)
class FetchedFrame:
    """A frame as received: the bytes of a `StreamingFetchResponse`.

    Args:
        ids: Ids of its records; empty if they cannot be read.
        error: Why the ids cannot be read. The frame cannot be acknowledged, and comes again.
        published_ms: Time of the batch's append, in milliseconds since 1970; 0 if unknown.
    """

    body: bytes
    ids: Sequence[RecordId]
    error: InvalidValue | None = None
    published_ms: int = 0

    @classmethod
    def of(cls, body: bytes) -> Self:
        """Return the frame of some bytes. Its records are not decoded."""
        try:
            found = StreamingFetchResponse.FromString(body).received_records
            return cls(body, frame_ids(found), published_ms=published_ms(found.record))
        except DecodeError:
            return cls(body, (), InvalidValue("a frame is no StreamingFetchResponse", reason="bad_response"))
        except InvalidValue as error:
            return cls(body, (), error)

    def decode(self, *, limit: int = MAX_PLAIN_BYTES) -> Batch:
        """Return its records. Raises as `decode_frame`."""
        return decode_frame(self.body, limit=limit)


class AckQueue:
    """Ids to acknowledge, each once, in order. It outlives the calls that send them."""

    def __init__(self) -> None:
        self._ids: dict[RecordId, None] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, ids: Iterable[RecordId]) -> None:
        """Queue ids. One that is queued already is not queued twice."""
        self._ids.update(dict.fromkeys(ids))
        self._changed.set()

    def clear(self) -> None:
        """Drop all ids: their records come again."""
        self._ids.clear()

    async def first(self, count: int, *, patience: float) -> list[RecordId]:
        """Return up to ``count`` ids, at least one; wait ``patience`` seconds for more than one. They stay queued."""
        while not self._ids:
            self._changed.clear()
            await self._changed.wait()
        if patience and len(self._ids) < count:
            await asyncio.sleep(patience)
        return [each for each, _ in zip(self._ids, range(count), strict=False)]

    def remove(self, ids: Iterable[RecordId]) -> None:
        """Drop ids that were sent."""
        for each in ids:
            self._ids.pop(each, None)
        self._changed.set()

    async def emptied(self) -> None:
        """Wait until all ids were sent."""
        while self._ids:
            self._changed.clear()
            await self._changed.wait()


class Fetch:
    """An open call. Made by ``Client.open_fetch``; closed at the end of its ``async with`` block."""

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        subscription_id: str,
        consumer: str,
        acks: AckQueue,
        *,
        ack_delay: float,
        max_buffered_bytes: int,
    ) -> None:
        self.node, self.consumer, self.acks = node, consumer, acks
        self.status: Status | None = None
        """How the call ended; None while it is open."""
        self.dropped_frames = 0
        """Number of frames that were not buffered: beyond the bound, or copies of buffered ones."""
        self._cluster, self._subscription_id, self._ack_delay = cluster, subscription_id, ack_delay
        self._frames: deque[FetchedFrame] = deque()
        self._buffered: set[RecordId] = set()
        self._buffered_bytes, self._max_buffered_bytes = 0, max_buffered_bytes
        self._is_closed = False
        self._opened_at: float | None = None
        self._arrived, self._opened = asyncio.Event(), asyncio.Event()
        self._call: Any = cluster.channels.open_stream(node, STREAMING_FETCH.path)
        self._reader = asyncio.create_task(self._read())
        self._writer = asyncio.create_task(self._write())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def seconds_open(self) -> float:
        """Seconds since the first message was sent; 0 before. A node need not have read it."""
        return 0.0 if self._opened_at is None else asyncio.get_running_loop().time() - self._opened_at

    def ack(self, ids: Iterable[RecordId]) -> None:
        """Acknowledge records, without waiting. Only ids that came from this subscription; twice is harmless."""
        self.acks.add(ids)

    async def next_frame(self) -> FetchedFrame:
        """Return the next frame. Those that arrived before the call ended are returned first. Safe to cancel.

        Raises:
            SourceUnavailable: The call ended; open another one. Also if the server ended it without an error.
            SourceRefused: It ended for good, for instance because there is no such subscription.
            LocalProtocolError: It was closed.
        """
        while not self._frames:
            if self.status is not None:
                raise self._ended(self.status)
            self._arrived.clear()
            await self._arrived.wait()
        frame = self._frames.popleft()
        self._buffered_bytes -= len(frame.body)
        self._buffered.difference_update(frame.ids)
        return frame

    async def next_frames(self) -> list[FetchedFrame]:
        """Return all frames that have arrived, waiting for at least one. Otherwise like `next_frame`."""
        frames = [await self.next_frame()]
        frames += self._frames
        self._frames.clear()
        self._buffered.clear()
        self._buffered_bytes = 0
        return frames

    async def close(self) -> None:
        """Send all acknowledgements, half-close, and wait for the end, up to `CLOSE_SECONDS`. Idempotent.

        Frames that still arrive are not returned. They come again, to the next consumer.
        """
        self._is_closed = True
        flushed = asyncio.create_task(self._flush())
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.wait([self._reader, flushed], return_when=asyncio.FIRST_COMPLETED)
                if self.status is None:
                    await self._call.done_writing()
                    await asyncio.wait([self._reader])
        except (TimeoutError, aio.AioRpcError, asyncio.InvalidStateError):
            pass  # it ends all the same
        finally:
            tasks = (flushed, self._reader, self._writer)
            for each in (self._call, *tasks):
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self) -> None:
        """Open the call, then send acknowledgements."""
        with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):  # the reader finds out how it ended
            await self._call.write(self._request(()))
            self._opened_at = asyncio.get_running_loop().time()
            self._opened.set()
            while True:
                ids = await self.acks.first(MAX_ACK_IDS, patience=self._ack_delay)
                await self._call.write(self._request(ids))
                self.acks.remove(ids)

    async def _flush(self) -> None:
        """Wait until the opening and all acknowledgements were sent: gRPC hangs on calls half-closed earlier."""
        await self._opened.wait()
        await self.acks.emptied()

    def _request(self, ids: Iterable[RecordId]) -> bytes:
        return encode_fetch_request(self._subscription_id, self.consumer, ids)

    async def _read(self) -> None:
        """Buffer frames until the call ends."""
        status = _CLOSED
        try:
            while (body := await self._call.read()) is not aio.EOF:
                self._buffer(FetchedFrame.of(body))
            status = Status("OK", "the server ended the call")
        except aio.AioRpcError as error:
            status = self._cluster.channels.status_of(error, STREAMING_FETCH)
        finally:
            self.status = status
            self._arrived.set()

    def _buffer(self, frame: FetchedFrame) -> None:
        is_copy = frame.ids and self._buffered.issuperset(frame.ids)
        is_beyond = self._frames and self._buffered_bytes + len(frame.body) > self._max_buffered_bytes
        if is_copy or is_beyond:
            self.dropped_frames += 1
            return
        self._frames.append(frame)
        self._buffered.update(frame.ids)
        self._buffered_bytes += len(frame.body)
        self._arrived.set()

    def _ended(self, status: Status) -> SilverfoldError:
        what = f"StreamingFetch of {self._subscription_id}"
        if self._is_closed or status is _CLOSED:
            return LocalProtocolError(f"{what} is closed")
        if status.grpc_code == "CANCELLED":  # one is no sign of a refused token, unlike with other calls
            return status_error(status, what)
        return self._cluster.error(status, what, self.node)
