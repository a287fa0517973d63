"""A connection to a real peer on loopback: nothing that arrives is lost, nothing grows without bound."""

import asyncio
import contextlib
import socket
import ssl
import struct

import pytest

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.common.transport import MOST_UNREAD, Address, connect, parse_address
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


def test_silence_is_not_the_peers_while_nobody_reads():
    async def serve(reader, writer):
        writer.write(bytes(8 << 20))
        await reader.read()

    async def run():
        async with connected(serve, silent_after=0.1) as connection:
            received = 0
            while received < 8 << 20:
                received += len(await connection.read())
                await asyncio.sleep(0.15 if received < 4 << 20 else 0)

    asyncio.run(run())


def test_an_end_is_a_half_close_and_what_the_peer_still_sends_does_not_cost_it_what_it_has_not_read():
    received = 0

    async def serve(reader, writer):
        nonlocal received
        talking = asyncio.create_task(talk(writer))
        while chunk := await reader.read(10_000):
            received += len(chunk)
            await asyncio.sleep(0.001)
        talking.cancel()

    async def talk(writer):
        while True:
            writer.write(bytes(1000))
            await asyncio.sleep(0)

    async def run():
        async with connected(serve) as connection:
            await connection.send(bytes(4 << 20))
            await connection.finish(30)

    asyncio.run(run())
    assert received == 4 << 20


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_connection_that_has_ended_can_be_finished_ended_and_written_to_again(size):
    async def serve(reader, writer):
        await asyncio.sleep(0.05)
        await reader.read()
        writer.close()

    async def run():
        async with connected(serve) as connection:
            connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            sending = asyncio.create_task(connection.send(bytes(size)))
            await asyncio.sleep(0)
            assert await connection.end_writing(10)
            await sending
            await connection.finish(10)
            await connection.finish(10)
            await connection.send(b"late")
            connection.abort()

    asyncio.run(run())


def test_an_end_waits_no_longer_than_it_may_for_a_peer_that_stays():
    async def run():
        async with connected(silent) as connection:
            await connection.send(b"last")
            await connection.finish(0.05)
            assert connection.is_closed
        async with connected(silent) as connection:
            sending = asyncio.create_task(connection.send(bytes(64 << 20)))
            await asyncio.sleep(0)
            assert not await connection.end_writing(0.05)
            await connection.finish(0.05)
            await sending

    asyncio.run(run())


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


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", "\0"])
def test_a_name_that_cannot_be_looked_up_is_an_unavailable_source(host):
    with pytest.raises(SourceUnavailable, match="no host name"):
        asyncio.run(connect(Address(host, 1), timeout=10))


def test_a_peer_that_ends_in_the_handshake_of_tls_is_an_unavailable_source():
    async def serve(reader, _writer):
        await reader.read(1)

    with pytest.raises(SourceUnavailable, match=r": \w"):
        asyncio.run(ask(serve))


async def ask(serve):
    async with connected(serve, tls=ssl.create_default_context()):
        pass


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


def test_what_the_system_refuses_to_send_is_not_sent_before_the_end_is_noticed():
    async def run():
        with socket.create_server(("127.0.0.1", 0)) as listening:
            connection = await connect(Address(*listening.getsockname()), timeout=10)
            peer, _ = listening.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it resets
            peer.close()
            await connection.send(b"x")
            assert not connection.is_closed
            assert connection.is_closing
            assert not await connection.end_writing(10)
            await connection.close()

    asyncio.run(run())
