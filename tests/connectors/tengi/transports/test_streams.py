"""Links over TCP and WebSocket: where reads end does not matter, nor what follows a handshake."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
import structlog

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.tengi.protocol.connection import ClientConnection, ServerConnection
from silverfold.connectors.tengi.protocol.events import HandshakeReceived, Transport
from silverfold.connectors.tengi.protocol.limits import MAX_HANDSHAKE
from silverfold.connectors.tengi.protocol.values import Identifier
from silverfold.connectors.tengi.transports.configuration import Configuration
from silverfold.connectors.tengi.transports.frames import Opcode, encode_frame
from silverfold.connectors.tengi.transports.streams import StreamLink

MASK = b"mask"


class Chunks:
    """A socket that reads as a test says."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.chunks = list(chunks)

    async def read(self) -> bytes:
        return self.chunks.pop(0)

    def write(self, octets: bytes) -> None:
        assert not octets


def shaken(protocol: ClientConnection | ServerConnection, *chunks: bytes) -> HandshakeReceived:
    """Return the handshake that a link over WebSocket finds in these reads."""

    async def run() -> HandshakeReceived:
        socket: Any = Chunks(chunks)
        link = StreamLink(socket, protocol, Configuration(), peer_address="peer", log=structlog.get_logger())
        return await link.shake_hands()

    return asyncio.run(run())


def test_packets_in_the_read_behind_an_answer_are_no_part_of_the_handshake() -> None:
    protocol = ServerConnection(Transport.WEBSOCKET)
    client = ClientConnection(Transport.WEBSOCKET)
    protocol.receive(client.send_handshake({}))
    assert isinstance(protocol.next_event(), HandshakeReceived)
    answer = encode_frame(Opcode.BINARY, protocol.accept(Identifier.random(), {"a": "b"}))
    packets = encode_frame(Opcode.BINARY, bytes(20_000)) * 20
    assert shaken(client, answer + packets).values == {"a": "b"}


def longest() -> bytes:
    """Return a client's frame of the longest handshake."""
    packet = b""
    for letters in (65_000, 65_000 + MAX_HANDSHAKE):
        token = "x" * (letters - len(packet))
        packet = ClientConnection(Transport.WEBSOCKET).send_handshake({"token": token})
    assert len(packet) == MAX_HANDSHAKE
    return encode_frame(Opcode.BINARY, packet, mask=MASK)


def test_a_handshake_may_be_as_long_as_the_settings_allow_wherever_its_reads_end() -> None:
    frame = longest()
    for left in (0, 1, 4):
        found = shaken(ServerConnection(Transport.WEBSOCKET), frame[: len(frame) - left], frame[len(frame) - left :])
        assert len(found.values["token"]) > MAX_HANDSHAKE - 100


def test_frames_without_a_handshake_have_an_end() -> None:
    class Deaf(Chunks):
        def write(self, octets: bytes) -> None: ...

    async def run() -> None:
        socket: Any = Deaf([encode_frame(Opcode.PONG, bytes(125), mask=MASK)] * 1_000)
        protocol = ServerConnection(Transport.WEBSOCKET)
        link = StreamLink(socket, protocol, Configuration(), peer_address="peer", log=structlog.get_logger())
        with pytest.raises(RemoteProtocolError, match="without end"):
            await link.shake_hands()

    asyncio.run(run())
