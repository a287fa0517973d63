"""A link over TCP or WebSocket, of either side. One task writes; the caller of `StreamLink.next_event` reads."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Final

from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import ProtocolError, RemoteProtocolError, SilverfoldError, SourceUnavailable
from silverfold.connectors.common.transport import Connection as Socket
from silverfold.connectors.tengi.protocol.connection import ClientConnection, ServerConnection
from silverfold.connectors.tengi.protocol.events import BadFrame, Closed, HandshakeReceived, Peer, Transport
from silverfold.connectors.tengi.protocol.limits import JAVA_CUT, JAVA_MAX_FRAME, MAX_HANDSHAKE
from silverfold.connectors.tengi.protocol.scanner import PacketScanner
from silverfold.connectors.tengi.transports.configuration import Configuration, Faults
from silverfold.connectors.tengi.transports.frames import (
    CLOSE_CODES,
    FrameReader,
    Opcode,
    close_frame,
    encode_frame,
)
from silverfold.connectors.tengi.transports.link import Link, LinkEvent, cancel_and_wait, closed_early

_BATCH: Final = 256 << 10
"""Most bytes of packets in one write: packets are joined, for a system call costs more than the copy."""
_MAX_BEFORE: Final = MAX_HANDSHAKE + 14
"""Most bytes to read before a whole handshake: a frame's head has up to 14."""
_NORMAL: Final = 1000
_CLOSED: Final = Closed("end of the connection")


class StreamLink(Link):
    """A connection over TCP or WebSocket.

    Args:
        first: Bytes that were already read.
        faults: Faults of a server, for tests.
    """

    def __init__(
        self,
        socket: Socket,
        protocol: ClientConnection | ServerConnection,
        settings: Configuration,
        *,
        peer_address: str,
        log: FilteringBoundLogger,
        first: bytes = b"",
        faults: Faults = Faults(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(protocol, settings, peer_address=peer_address, log=log)
        self._socket, self._faults = socket, faults
        self._is_server = isinstance(protocol, ServerConnection)
        self._random = random.Random(faults.seed)  # noqa: S311 - faults are no secret
        self._frames: FrameReader | None = None
        if protocol.transport is Transport.WEBSOCKET:
            self._frames = FrameReader(is_server=self._is_server, limit=MAX_HANDSHAKE)
        self._has_ended = False
        self._writer: asyncio.Task[None] | None = None
        if first:
            self._take(first)

    async def shake_hands(self) -> HandshakeReceived:
        """Wait for the peer's handshake.

        Raises:
            SourceUnavailable: The peer closed the connection before its handshake, or the connection broke.
            RemoteProtocolError, WireError: It sent another packet, or one that is too large.
        """
        taken = 0
        while True:
            event = self._protocol.next_event()
            if isinstance(event, HandshakeReceived):
                self.handshake = event.values
                return event
            if isinstance(event, BadFrame):
                raise event.error
            if isinstance(event, Closed) or self._has_ended:
                raise closed_early(self.peer_address)
            try:
                if self._frames is not None and self._next_frame(self._frames):
                    continue  # uncounted: what has come behind a handshake is none
                if taken > _MAX_BEFORE:
                    raise RemoteProtocolError("a handshake without end", reason="too_large")
                taken += await self._receive()
            finally:  # no task writes yet
                self._socket.write(b"".join(self._outbox.take(_BATCH)))

    async def write(self, octets: bytes) -> None:
        """Send a packet of the handshake, bypassing the queue."""
        await self._socket.send(self._framed(octets))

    def start(self) -> None:
        """Start writing queued packets, after both handshakes."""
        limit = self._settings.max_packet
        if self._frames is not None:
            self._frames.limit = min(limit, JAVA_MAX_FRAME) if self._settings.peer is Peer.JAVA else limit
        self._writer = asyncio.create_task(self._write())

    async def next_event(self) -> LinkEvent:
        """See `Link.next_event`."""
        while True:
            event = self._protocol.next_event()
            if event is None:
                if self._has_ended:
                    return _CLOSED
                await self._receive()
            elif isinstance(event, Closed):
                self._end()
            else:
                assert not isinstance(event, HandshakeReceived)
                return event  # type: ignore[return-value]  # polls are of HTTP only

    async def close(self) -> None:
        """See `Link.close`."""
        if self._frames is not None and not self._has_ended:
            self._outbox.offer(close_frame(_NORMAL, mask=self._mask()))
        self._outbox.close()
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=self._settings.close_timeout)
        self._has_ended = True
        if self._writer is not None and self._writer.done():
            await self._socket.finish(self._settings.close_timeout)
        await self._socket.close()
        await cancel_and_wait(self._writer)

    async def abort(self) -> None:
        """See `Link.abort`."""
        self._end()
        await self._socket.close()
        await cancel_and_wait(self._writer)

    def _outgoing(self, message: bytes) -> bytes:
        packet = self._protocol.send_encoded(message)
        if self._settings.peer is Peer.JAVA and len(packet) > JAVA_CUT:
            self._log.warning("packet_may_be_cut", size=len(packet))
        return self._framed(packet[: self._faults.cut])

    def _framed(self, packet: bytes) -> bytes:
        return packet if self._frames is None else encode_frame(Opcode.BINARY, packet, mask=self._mask())

    def _mask(self) -> bytes | None:
        return None if self._is_server else os.urandom(4)

    def _end(self) -> None:
        self._has_ended = True
        self._outbox.close(drop=True)

    async def _write(self) -> None:
        is_slow = self._settings.peer is Peer.JAVA and self.transport is Transport.TCP
        while True:
            await self._outbox.filled()
            packets = self._outbox.take(0 if is_slow else _BATCH)
            if not packets:
                return
            if self._faults.shuffle:
                self._random.shuffle(packets)
            await self._socket.send(packets[0] if len(packets) == 1 else b"".join(packets))
            if self._socket.is_closed:
                self._outbox.close(drop=True)
            elif is_slow:
                await asyncio.sleep(self._settings.write_gap)

    async def _receive(self) -> int:
        """Wait for bytes, and hand them to the protocol; return their number."""
        if self._frames is not None and self._next_frame(self._frames):
            return 0
        try:
            chunk = await self._socket.read()
        except SourceUnavailable:
            self._end()
            raise
        if chunk:
            self._received()
            self._take(chunk)
        elif self._frames is None:
            self._protocol.receive_eof()
        else:
            self._end()
        return len(chunk)

    def _take(self, chunk: bytes) -> None:
        if self._frames is not None:
            self._frames.receive(chunk)
        elif self._faults.one_packet_per_read and self._protocol.connection_id is not None:
            self._take_one_packet(chunk)
        else:
            self._protocol.receive(chunk)

    def _take_one_packet(self, chunk: bytes) -> None:
        scanner = PacketScanner(self._settings.types)
        scanner.receive(chunk)
        packet = scanner.next_packet()
        if packet is None:
            raise RemoteProtocolError("a packet in two reads", reason="fault")
        self._protocol.receive(packet)

    def _next_frame(self, frames: FrameReader) -> bool:
        """Handle one frame; return whether there was one."""
        try:
            frame = frames.next_frame()
            if frame is None:
                return False
            self._handle(frame.opcode, frame.payload)
        except ProtocolError as error:
            self._outbox.offer(close_frame(CLOSE_CODES.get(_reason(error), 1002), mask=self._mask()))
            self._has_ended = True
            raise
        return True

    def _handle(self, opcode: Opcode, payload: bytes) -> None:
        if opcode is Opcode.BINARY:
            self._protocol.receive(payload)
        elif opcode is Opcode.TEXT:
            raise RemoteProtocolError("a frame of text", reason="not_binary")
        elif opcode is Opcode.CLOSE:
            self._outbox.offer(close_frame(_NORMAL, mask=self._mask()))
            self._has_ended = True
        elif opcode is Opcode.PING:
            if self._faults.close_on_ping:
                raise RemoteProtocolError("a ping", reason="fault")
            self._outbox.offer(encode_frame(Opcode.PONG, payload, mask=self._mask()))


def _reason(error: SilverfoldError) -> str:
    return str(getattr(error, "reason", ""))
