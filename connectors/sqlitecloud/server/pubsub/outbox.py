"""The queue of notifications for one pub/sub connection, and their writing as configured for the server.

The official clients lose a notification if two arrive in one read, and wait forever on parts of long ones.
`Pacing.SAFE` therefore writes one frame at a time, in slices that never end inside the header: over TLS each is its own
record. On plain TCP only a pause keeps frames apart.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions

_SLICE: Final = 2_048
_PAUSE: Final = 0.02
"""Seconds after each frame on plain TCP."""
_AT_ONCE: Final = 1 << 18
_PIECES: Final = (1, 2, 7, 64, 2_048)
_ABSURD: Final = 1 << 50


class _Queued(NamedTuple):
    number: int | None
    """The number of a notification; None for a reply."""
    frame: bytes


class Outbox:
    """The queue of one connection: ordered, bounded in bytes. Filled from any thread, emptied in the event loop.

    ``overflowed`` tells that it closed because its client does not read.
    """

    def __init__(self, options: ServerOptions, *, encrypted: bool) -> None:
        self._options = options
        self._pause = _PAUSE if options.pacing is Pacing.SAFE and not encrypted else 0.0
        self._loop = asyncio.get_running_loop()
        self._room = threading.Condition()
        self._queue: deque[_Queued] = deque()
        self._unsent = 0
        self._notified = 0
        self._closed = self.overflowed = False
        self._arrived, self._ended = asyncio.Event(), asyncio.Event()
        self._chance = random.Random(0)  # noqa: S311 - repeatable, not secret

    def answer(self, frame: bytes) -> None:
        """Queue a reply, which is not a notification."""
        with self._room:
            self._add(_Queued(None, frame))

    def notify(self, frame: bytes) -> None:
        """Queue a notification, or apply the configured fault. May block until there is room."""
        with self._room:
            self._notified += 1
            if self._notified in self._options.drop or not self._has_room(len(frame)):
                return
            self._add(_Queued(self._notified, frame))
            if self._notified in self._options.double:
                self._add(_Queued(self._notified, frame))

    def close(self) -> None:
        """Stop sending and release writers that wait for room. Idempotent; thread-safe."""
        with self._room:
            self._end()

    async def closed(self) -> None:
        """Wait until the outbox is closed."""
        await self._ended.wait()

    async def send_all(self, writer: asyncio.StreamWriter) -> None:
        """Write queued frames until closed, or until the configured end of the connection.

        Raises:
            OSError: The connection broke.
        """
        while (frames := await self._next()) is not None:
            await asyncio.sleep(self._options.delay)
            written, ends = self._join(frames)
            for piece in self._pieces(written):
                writer.write(piece)
                await writer.drain()
            if ends:
                return
            await asyncio.sleep(self._pause)

    async def _next(self) -> list[_Queued] | None:
        """Return the next frames to write; None when closed."""
        while not self._queue and not self._closed:
            self._arrived.clear()
            await self._arrived.wait()
        with self._room:
            frames: list[_Queued] = []
            size = 0
            while self._queue and size < (_AT_ONCE if self._options.pacing is not Pacing.SAFE else 1):
                frames.append(self._queue.popleft())
                size += len(frames[-1].frame)
            self._unsent -= size
            self._room.notify_all()
            return None if self._closed else frames

    def _has_room(self, size: int) -> bool:
        """Return whether there is room, after waiting or closing as configured. An empty outbox always has room."""
        if self._fits(size):
            return True
        match self._options.slow_reader:
            case "stall":
                self._room.wait_for(lambda: self._fits(size))
                return True
            case "close":
                self.overflowed = True
                self._end()
        return False

    def _end(self) -> None:
        self._closed = True
        self._queue.clear()
        self._room.notify_all()
        self._soon(self._ended)
        self._soon(self._arrived)

    def _fits(self, size: int) -> bool:
        return self._closed or not self._unsent or self._unsent + size <= self._options.most_unsent

    def _add(self, queued: _Queued) -> None:
        if not self._closed:
            self._queue.append(queued)
            self._unsent += len(queued.frame)
            self._soon(self._arrived)

    def _soon(self, event: asyncio.Event) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server ended
            self._loop.call_soon_threadsafe(event.set)

    def _join(self, frames: list[_Queued]) -> tuple[bytes, bool]:
        """Return the bytes to write for some frames, and whether the connection ends after them."""
        written: list[bytes] = []
        for queued in frames:
            octets, ends = self._with_fault(queued)
            written.append(octets)
            if ends:
                return b"".join(written), True
        return b"".join(written), False

    def _with_fault(self, queued: _Queued) -> tuple[bytes, bool]:
        number, frame = queued
        if number is None:
            return frame, False
        if number == self._options.cut:
            return frame[: len(frame) // 2], True
        if number == self._options.oversize:
            return b"%c%d %s" % (frame[0], _ABSURD, frame.partition(b" ")[2]), False
        return frame, number == self._options.close_pubsub_after

    def _pieces(self, octets: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(octets):
            end = at + self._piece(len(octets))
            yield octets[at:end]
            at = end

    def _piece(self, size: int) -> int:
        match self._options.pacing:
            case Pacing.SAFE:
                return _SLICE
            case Pacing.JOINED:
                return size
            case Pacing.SPLIT:
                return self._chance.choice(_PIECES)
