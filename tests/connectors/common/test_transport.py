"""A connection to a real peer on loopback: nothing that arrives is lost, nothing grows without bound."""

import asyncio
import contextlib
import socket

import pytest

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.common.transport import MOST_UNREAD, connect, parse_address
from tests.support.peers import connected, nobody, read_all, silent


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7777", ("127.0.0.1", 7777)),
        ("market.example:1", ("market.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert parse_address(text) == address
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("text", ["", "host", ":7777", "host:", "host:0", "host:65536", "host:x", "host:-1", "::1:7"])
def test_what_is_no_address_is_refused_with_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"port|brackets"):
        parse_address(text)


def test_everything_a_peer_sends_is_read_in_order_to_its_end():
    sent = bytes(range(256)) * 20_000

    async def serve(_reader, writer):
        writer.write(sent)
        writer.close()

    async def run():
        async with connected(serve) as connection:
            return await read_all(connection)

    assert asyncio.run(run()) == sent


def test_a_peer_is_slowed_down_by_a_reader_that_does_not_read():
    sent = bytes(64 << 20)

    async def serve(_reader, writer):
        writer.write(sent)
        writer.close()

    async def run():
        async with connected(serve) as connection:
            await asyncio.sleep(0.3)
            buffered = len(connection.arrived())
            return buffered, buffered + len(await read_all(connection))

    buffered, total = asyncio.run(run())
    assert MOST_UNREAD < buffered <= MOST_UNREAD + (1 << 18)
    assert total == 64 << 20


def test_what_arrives_as_its_reader_is_cancelled_is_kept():
    async def run():
        async with connected(silent) as connection:
            reading = asyncio.create_task(connection.read())
            await asyncio.sleep(0)
            connection.data_received(b"kept")
            reading.cancel()
            await asyncio.wait([reading])
            return reading.cancelled(), connection.arrived()

    assert asyncio.run(run()) == (True, b"kept")


def test_silence_ends_a_read_that_has_a_time_and_the_connection_goes_on():
    async def serve(reader, writer):
        await reader.read(1)
        writer.write(b"at last")

    async def run():
        async with connected(serve) as connection:
            with pytest.raises(TimeoutError):
                await connection.read(timeout=0.01)
            connection.write(b"?")
            return await connection.read()

    assert asyncio.run(run()) == b"at last"


def test_a_peer_that_is_silent_for_too_long_counts_as_lost():
    async def serve(reader, writer):
        for _ in range(4):
            await asyncio.sleep(0.1)
            writer.write(b"tick ")
        await reader.read()

    async def run():
        async with connected(serve, silent_after=0.3) as connection:
            received = b""
            while len(received) < 20:
                with contextlib.suppress(TimeoutError):
                    received += await connection.read(timeout=0.05)
            with pytest.raises(SourceUnavailable, match="the peer sent nothing for"):
                await connection.read(timeout=10)
            return received

    assert asyncio.run(run()) == b"tick " * 4


def test_a_broken_connection_is_an_unavailable_source_after_all_that_arrived():
    async def serve(_reader, writer):
        writer.write(b"before")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def run():
        async with connected(serve) as connection:
            first = await connection.read()
            with pytest.raises(SourceUnavailable, match="broke"):
                await connection.read()
            return first

    assert asyncio.run(run()) == b"before"


def test_a_peer_that_never_reads_is_given_up_before_memory_grows():
    async def run():
        async with connected(silent) as connection:
            for _ in range(64):
                connection.write(bytes(1 << 18))

    with pytest.raises(SourceUnavailable, match="does not read"):
        asyncio.run(run())


def test_nobody_listening_is_an_unavailable_source():
    with nobody() as address, pytest.raises(SourceUnavailable, match=str(address.port)):
        asyncio.run(connect(address, timeout=10))


def test_keep_alive_is_on_and_small_writes_are_not_delayed():
    async def run():
        async with connected(silent) as connection:
            ours = connection._transport.get_extra_info("socket")
            return (
                ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
            )

    keep_alive, no_delay = asyncio.run(run())
    assert keep_alive
    assert no_delay
