"""Peers that are hostile, or broken: each costs itself its connection, and nobody else anything."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest
from structlog.testing import capture_logs

from silverfold.connectors.tengi.protocol import Identifier
from silverfold.connectors.tengi.protocol.heads import MAGIC
from silverfold.connectors.tengi.server import Server
from silverfold.connectors.tengi.transports.frames import Opcode, encode_frame
from tests.connectors.tengi.client.test_connection import echo
from tests.support.tengi.pairs import TRANSPORTS, connected, port_of, run, serving
from tests.support.tengi.raw_peer import HANDSHAKE, UPGRADE, exchange, packet_of, raw, read_all

MASK = b"mask"


def frame(payload: bytes, opcode: Opcode = Opcode.BINARY) -> bytes:
    return encode_frame(opcode, payload, mask=MASK)


async def still_serves(server: Server) -> None:
    for transport in TRANSPORTS:
        async with connected(server, transport) as connection:
            assert (await connection.request("there")).body == "there"


FIRST_BYTES = {
    "nothing": b"",
    "half a magic": b"TeN",
    "a wrong magic": b"TeNgX",
    "lower case": b"hello there, are you a server?",
    "zeros": bytes(100),
    "a TLS record": bytes.fromhex("160301020001000001fc0303") + bytes(50),
    "gzip": b"\x1f\x8b" + bytes(20),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "half a handshake": MAGIC + HANDSHAKE[:-3],
    "a message before the handshake": MAGIC + packet_of(bytes(16), 1),
    "a handshake without end": MAGIC + HANDSHAKE[:-4] + b"\x00\x10\x00\x00" + b"\0" * 200_000,
    "a string of 2 GB": MAGIC + HANDSHAKE[:5] + b"\x7f\xff\xff\xff" * 2 + b"x" * 100,
    "a negative length": MAGIC + HANDSHAKE[:5] + b"\xff" * 8 + b"x" * 100,
    "an unknown type": MAGIC + b"\0\x12\x34" + bytes(30),
    "a head without end": b"POST /channel HTTP/1.1\r\n" + b"x: y\r\n" * 10_000,
    "half a head": b"POST /channel HTTP/1.1\r\nx: ",
    "half a body": b"POST /channel HTTP/1.1\r\ncontent-type: application/tengi\r\ncontent-length: 99\r\n\r\n\0",
    "an empty body": b"POST /channel HTTP/1.1\r\ncontent-type: application/tengi\r\ncontent-length: 0\r\n\r\n",
    "an upgrade without key": b"GET /wss HTTP/1.1\r\nupgrade: websocket\r\n\r\n",
    "an upgrade elsewhere": UPGRADE.replace(b"/wss", b"/ws"),
    "a frame without mask": UPGRADE + encode_frame(Opcode.BINARY, HANDSHAKE),
    "a frame of 2 GB": UPGRADE + bytes.fromhex("82ff0000000080000000") + MASK,
    "text": UPGRADE + frame(b"hello", Opcode.TEXT),
    "a message as first frame": UPGRADE + frame(packet_of(bytes(16), 1)),
    "two packets in a frame": UPGRADE + frame(HANDSHAKE + HANDSHAKE),
    "a close as first frame": UPGRADE + frame(b"\x03\xe8", Opcode.CLOSE),
}


CLOSE = frame(b"\x03\xe8", Opcode.CLOSE)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (frame(b"hello", Opcode.TEXT), "880203eb"),
        (encode_frame(Opcode.BINARY, HANDSHAKE), "880203ea"),
        (bytes.fromhex("82ff0000000080000000") + MASK, "880203f1"),
        (frame(b"?", Opcode.PING) + CLOSE, "8a013f" + "880203e8"),
    ],
    ids=["text", "no mask", "2 GB", "a ping and a close"],
)
def test_frames_before_the_handshake_are_answered_like_later_ones(sent: bytes, answer: str) -> None:
    async def work() -> bytes:
        async with serving() as server:
            return await exchange(port_of(server), UPGRADE + sent)

    assert run(work()).partition(b"\r\n\r\n")[2].hex() == answer


@pytest.mark.parametrize("first", FIRST_BYTES.values(), ids=FIRST_BYTES.keys())
def test_first_bytes_that_are_no_handshake_end_the_connection_and_no_other(first: bytes) -> None:
    async def work() -> None:
        async with serving(echo, handshake_timeout=0.3, request_timeout=0.3) as server:
            answer = await exchange(port_of(server), first)
            assert HANDSHAKE[1:] not in answer
            assert server.connections == []
            await still_serves(server)

    run(work())


async def _tcp_open(port: int, stack: AsyncExitStack) -> tuple[object, Identifier]:
    socket = await stack.enter_async_context(raw(port))
    await socket.send(MAGIC + HANDSHAKE)
    answer = b""
    while len(answer) < 46:
        answer += await socket.read()
    return socket, Identifier(answer[3:19])


@pytest.mark.parametrize(
    ("first", "named"), [(b"\x1f\x8b\x08", "gzip"), (b"\xff\x73\x4e\x61", "snappy"), (b"\x16\x03\x01", "TLS")]
)
def test_what_is_not_offered_is_refused_by_name(first: bytes, named: str) -> None:
    async def work() -> None:
        async with serving(echo, "tcp") as server:
            with capture_logs() as logs:
                await exchange(port_of(server), first)
        found = [each["reason"] for each in logs if each["event"] == "client_dropped"]
        assert found == [f"not_offered: {named} is not offered here"]

    run(work())


@pytest.mark.parametrize("kind", ["foreign", "handshake", "poll", "unknown type", "too large", "noise"])
def test_packets_that_are_not_allowed_end_an_open_connection(kind: str) -> None:
    async def work() -> None:
        async with serving(echo, max_packet=100_000, close_timeout=0.1) as server, AsyncExitStack() as stack:
            socket, own = await _tcp_open(port_of(server), stack)
            _, other = await _tcp_open(port_of(server), stack)
            packet = {
                "foreign": packet_of(other, 1),
                "handshake": b"\1\xff\x9b" + own + HANDSHAKE[1:],
                "poll": b"\1\xff\x9b" + own + b"\xff\x98\xff\x36",
                "unknown type": packet_of(own, 1)[:-10] + b"\x12\x34" + bytes(8),
                "too large": packet_of(own, b"")[:-4] + b"\x7f\xff\xff\xff",
                "noise": random.Random(1).randbytes(500),
            }[kind]
            await socket.send(packet)  # type: ignore[attr-defined]  # a connection, of another module
            assert await read_all(socket) == b""  # type: ignore[arg-type]  # the same
            while len(server.connections) > 1:
                await asyncio.sleep(0.01)
            await still_serves(server)

    run(work())


def test_random_bytes_behind_each_handshake_harm_nobody() -> None:
    draw = random.Random(9)

    async def work() -> None:
        async with serving(echo, handshake_timeout=1.0) as server:
            for number in range(60):
                noise = draw.randbytes(draw.randrange(1, 300))
                first = [MAGIC + HANDSHAKE, UPGRADE + frame(HANDSHAKE), UPGRADE, MAGIC][number % 4]
                async with raw(port_of(server)) as socket:
                    await socket.send(first + (frame(noise) if number % 8 == 1 else noise))
            await still_serves(server)

    run(work())


def test_a_thousand_connections_that_send_nothing_keep_nobody_out() -> None:
    async def work() -> None:
        async with serving(echo, handshake_timeout=60.0) as server:
            writers = [(await asyncio.open_connection("127.0.0.1", port_of(server)))[1] for _ in range(400)]
            await still_serves(server)
            for _ in range(600):
                _, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
                writer.transport.abort()
            await still_serves(server)
            for writer in writers:
                writer.transport.abort()

    run(work())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_connections_above_the_limit_are_refused_and_others_stay(transport: str) -> None:
    async def work() -> None:
        async with serving(echo, max_connections=2) as server, AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(connected(server, transport)) for _ in range(2)]
            while len(server.connections) < 2:
                await asyncio.sleep(0.01)
            with pytest.raises(Exception, match="without"):
                await stack.enter_async_context(connected(server, transport))
            for each in opened:
                assert (await each.request(1)).body == 1

    run(work())


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_a_peer_that_is_silent_for_too_long_is_dropped(transport: str) -> None:
    async def work() -> None:
        async with serving(echo, dead_after=0.2) as server, connected(server, transport) as connection:
            await connection.wait_closed()
            while server.connections:
                await asyncio.sleep(0.01)

    run(work())
