"""Holds the notifications that wait for one pub/sub connection, and writes them as the server's behaviour says.

The official clients lose notifications of which two arrive in one read, and wait for ever on parts of long ones. So
`Pacing.SAFE` writes a frame at a time, in slices none of which ends inside the header: over TLS each is a record of its
own. On plain TCP only a pause keeps frames apart.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from connectors.sqlitecloud.server_options import Pacing, ServerOptions

_SLICE: Final = 2_048
_PAUSE: Final = 0.02
"""Seconds after each frame on plain TCP."""
_AT_ONCE: Final = 1 << 18
_PIECES: Final = (1, 2, 7, 64, 2_048)
_ABSURD: Final = 1 << 50


class _Waiting(NamedTuple):
    number: int | None
    """Of a notification; None of an answer."""
    frame: bytes


class Outbox:
    """What waits for one connection: bounded in bytes, in order. Filled from any thread, emptied in the loop."""

    def __init__(self, behaviour: ServerOptions, *, encrypted: bool) -> None:
        self._behaviour = behaviour
        self._pause = _PAUSE if behaviour.pacing is Pacing.SAFE and not encrypted else 0.0
        self._loop = asyncio.get_running_loop()
        self._room = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._unsent = 0
        self._notified = 0
        self._closed = False
        self._arrived, self._ended = asyncio.Event(), asyncio.Event()
        self._chance = random.Random(0)  # noqa: S311 - repeatable, not secret

    def answer(self, frame: bytes) -> None:
        """Add an answer, which is not a notification."""
        with self._room:
            self._add(_Waiting(None, frame))

    def notify(self, frame: bytes) -> None:
        """Add a notification, or do with it what the behaviour says. Waits for room where it says so."""
        with self._room:
            self._notified += 1
            if self._notified in self._behaviour.drop or not self._has_room(len(frame)):
                return
            self._add(_Waiting(self._notified, frame))
            if self._notified in self._behaviour.double:
                self._add(_Waiting(self._notified, frame))

    def close(self) -> None:
        """Let nothing more be sent; whoever waits for room goes on. May be repeated, from any thread."""
        with self._room:
            self._end()

    async def closed(self) -> None:
        """Return once it is closed, however long that takes."""
        await self._ended.wait()

    async def send_all(self, writer: asyncio.StreamWriter) -> None:
        """Write what there is, and what comes, until closed or until the behaviour says that the connection ends.

        Raises:
            OSError: The connection broke.
        """
        while (frames := await self._next()) is not None:
            await asyncio.sleep(self._behaviour.delay)
            written, ends = self._written(frames)
            for piece in self._pieces(written):
                writer.write(piece)
                await writer.drain()
            if ends:
                return
            await asyncio.sleep(self._pause)

    async def _next(self) -> list[_Waiting] | None:
        """Return what is to be written next; None when closed."""
        while not self._waiting and not self._closed:
            self._arrived.clear()
            await self._arrived.wait()
        with self._room:
            frames: list[_Waiting] = []
            size = 0
            while self._waiting and size < (_AT_ONCE if self._behaviour.pacing is not Pacing.SAFE else 1):
                frames.append(self._waiting.popleft())
                size += len(frames[-1].frame)
            self._unsent -= size
            self._room.notify_all()
            return None if self._closed else frames

    def _has_room(self, size: int) -> bool:
        """Whether there is room; an empty outbox has room for anything."""
        if self._fits(size):
            return True
        match self._behaviour.slow_reader:
            case "stall":
                self._room.wait_for(lambda: self._fits(size))
                return True
            case "close":
                self._end()
        return False

    def _end(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._room.notify_all()
        self._soon(self._ended)
        self._soon(self._arrived)

    def _fits(self, size: int) -> bool:
        return self._closed or not self._unsent or self._unsent + size <= self._behaviour.most_unsent

    def _add(self, waiting: _Waiting) -> None:
        if not self._closed:
            self._waiting.append(waiting)
            self._unsent += len(waiting.frame)
            self._soon(self._arrived)

    def _soon(self, event: asyncio.Event) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server ended
            self._loop.call_soon_threadsafe(event.set)

    def _written(self, frames: list[_Waiting]) -> tuple[bytes, bool]:
        """Return what is written for some frames, and whether the connection ends behind it."""
        written: list[bytes] = []
        for waiting in frames:
            octets, ends = self._spoilt(waiting)
            written.append(octets)
            if ends:
                return b"".join(written), True
        return b"".join(written), False

    def _spoilt(self, waiting: _Waiting) -> tuple[bytes, bool]:
        number, frame = waiting
        if number is None:
            return frame, False
        if number == self._behaviour.cut:
            return frame[: len(frame) // 2], True
        if number == self._behaviour.oversize:
            return b"%c%d %s" % (frame[0], _ABSURD, frame.partition(b" ")[2]), False
        return frame, number == self._behaviour.close_pubsub_after

    def _pieces(self, octets: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(octets):
            end = at + self._piece(len(octets))
            yield octets[at:end]
            at = end

    def _piece(self, whole: int) -> int:
        match self._behaviour.pacing:
            case Pacing.SAFE:
                return _SLICE
            case Pacing.JOINED:
                return whole
            case Pacing.SPLIT:
                return self._chance.choice(_PIECES)
