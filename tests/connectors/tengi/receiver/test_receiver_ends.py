"""How a receiver ends: at a refusal for good, at all else so that the next epoch may do better."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from silverfold.conf.errors import InvalidValue, RemoteProtocolError, SourceRefused, SourceUnavailable
from silverfold.connectors.common.transport import Address
from silverfold.connectors.frames import Frame, Resume
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.options import TengiOptions
from silverfold.connectors.tengi.protocol.connection import ServerConnection
from silverfold.connectors.tengi.protocol.events import BadFrame, Closed, Transport
from silverfold.connectors.tengi.protocol.feed.packets import Ping
from silverfold.connectors.tengi.protocol.values import Identifier
from silverfold.connectors.tengi.receiver.receiver import _TICK, TengiReceiver, new_epoch
from silverfold.connectors.tengi.server.feed.server import FeedServer
from silverfold.connectors.tengi.server.feed.source import FeedSource
from silverfold.connectors.tengi.transports.configuration import ConfigurationBuilder
from tests.support import peers
from tests.support.memory import MemorySink
from tests.support.tengi.landed import feed_of
from tests.support.tengi.polled_server import PolledServer
from tests.support.tengi.receiving import feed, free_port, orders, serving

TRANSPORTS = ("tcp", "websocket", "http")


class SlowSink(MemorySink):
    """A sink that has no room for anything behind a bad frame, until ``has_room`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.has_room = asyncio.Event()

    async def land(self, frames: Sequence[Frame]) -> None:
        self.take(frames)
        if any(b"bad frame" in frame.body for frame in frames):
            await self.has_room.wait()


def test_a_source_without_the_table_ends_the_feed() -> None:
    async def run() -> None:
        with serving(orders()) as server:
            sink, shop = MemorySink(), feed(server)
            other = replace(shop, tables={"others": shop.tables["orders"]})
            with pytest.raises(SourceRefused, match="1"):
                await CONNECTOR.receiver(other).run(sink, Resume(1))
            assert [mark["mark"] for _, mark in sink.mark_details()][-1] == "source error"

    asyncio.run(run())


def test_a_source_that_sends_and_takes_nothing_is_given_up() -> None:
    class Deaf:
        peer_address = "127.0.0.1:1"

        async def send(self, _message: object) -> None:
            await asyncio.Event().wait()

    shop = replace(feed_of(), options=TengiOptions(transport="tcp", ping_interval=0.01, dead_after=0.05))
    receiver = TengiReceiver(shop, rng=Random(1), environ={})
    with pytest.raises(SourceUnavailable, match="takes nothing for"):
        asyncio.run(receiver._send(Deaf(), Ping(1)))


def test_a_source_that_answers_polls_and_no_post_is_given_up() -> None:
    async def work() -> None:
        async with peers.serving(PolledServer()) as address:
            options = TengiOptions(transport="http", ping_interval=0.05, dead_after=0.3, subscribe_wait=0.1)
            shop = replace(feed_of(), address=f"tengi://{address}", options=options)
            with pytest.raises(SourceUnavailable, match="takes nothing for"):
                await CONNECTOR.receiver(shop).run(MemorySink(), Resume(1))

    asyncio.run(asyncio.wait_for(work(), 20))


def test_nobody_there_is_unavailable() -> None:
    with serving(orders()) as server:
        shop = feed(server)
    with pytest.raises(SourceUnavailable):
        asyncio.run(CONNECTOR.receiver(shop).run(MemorySink(), Resume(1)))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_who_closes_before_the_handshake_is_unavailable_as_a_proxy_is_without_its_source(transport: str) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write_eof()
        await reader.read()

    async def run() -> None:
        async with peers.serving(close) as address:
            shop = feed_of(f"tengi://{address}", transport=transport)
            with pytest.raises(SourceUnavailable, match="closed the connection without"):
                await CONNECTOR.receiver(shop).run(MemorySink(), Resume(1))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("transport", "answer"),
    [
        ("tcp", bytes.fromhex("01ff9b") + bytes(16) + b"\xff"),  # of a source that dies in the middle
        ("tcp", b"HTTP/1.1 503 Service Unavailable\r\n\r\n"),
        ("tcp", b"SSH-2.0-OpenSSH_9.2\r\n"),
        ("tcp", bytes.fromhex("01ff9b") + bytes(16) + bytes.fromhex("ff99ff37") + b"\x7f" * 10),
        ("http", b"HTTP/1.1 200 OK\r\ncontent-type: application/tengi\r\ncontent-length: 1\r\n\r\n\1"),
    ],
    ids=["half", "http", "ssh", "endless", "a byte"],
)
def test_an_answer_that_is_no_handshake_is_the_peers_fault_and_tried_again(transport: str, answer: bytes) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.write_eof()
        await reader.read()

    async def run() -> None:
        async with peers.serving(greet) as address:
            shop = feed_of(f"tengi://{address}", transport=transport)
            with pytest.raises(RemoteProtocolError, match=f"{address} answers with something else") as raised:
                await CONNECTOR.receiver(shop).run(MemorySink(), Resume(1))
            assert raised.value.retryable

    asyncio.run(run())


def test_nothing_is_sent_behind_a_bad_packet_while_it_lands() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = ServerConnection(Transport.TCP)
        while protocol.next_event() is None:
            protocol.receive(await reader.read(100))
        writer.write(protocol.accept(Identifier.random()) + b"garbage!")
        await reader.read(-1)

    async def run() -> None:
        async with peers.serving(serve) as address:
            options = TengiOptions(transport="tcp", ping_interval=0.01)
            sink, shop = SlowSink(), replace(feed_of(f"tengi://{address}"), options=options)
            with pytest.raises(SourceUnavailable, match="the connection has ended"):
                await CONNECTOR.receiver(shop).run(sink, Resume(1))
            assert [mark["mark"] for _, mark in sink.mark_details()][-1] == "bad frame"

    asyncio.run(asyncio.wait_for(run(), 20))


def test_in_listen_mode_a_source_without_the_tables_ends_its_epoch_alone() -> None:
    async def run() -> None:
        port = free_port()
        options = TengiOptions(transport="tcp", mode="listen")
        shop = replace(feed_of(f"tengi://127.0.0.1:{port}"), options=options)
        settings = ConfigurationBuilder().add_transport("tcp").build()
        with (
            FeedServer.start(FeedSource([]), settings, dial=[Address("127.0.0.1", port)]),
            pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:\d+: orders: 1: the source refuses: "),
        ):
            await CONNECTOR.receiver(shop).run(MemorySink(), Resume(1))

    asyncio.run(asyncio.wait_for(run(), 20))


class SilentLink:
    """A link that brings bad frames, which are events at once, and whose peer counts as silent whenever asked."""

    transport, peer_address, connection_id = Transport.TCP, "127.0.0.1:1", Identifier(bytes(16))

    def __init__(self, bad_frames: int) -> None:
        self.bad_frames, self.discounted = bad_frames, 0.0

    async def next_event(self) -> BadFrame:
        if not self.bad_frames:
            await asyncio.Event().wait()
        self.bad_frames -= 1
        return BadFrame(InvalidValue("bad"), b"bad")

    async def send(self, _message: object) -> None: ...

    def check_alive(self, _silence: float) -> None:
        raise SourceUnavailable("nothing came")

    def discount(self, seconds: float) -> None:
        self.discounted += seconds


def test_a_source_is_not_silent_while_bronze_has_no_room() -> None:
    async def run() -> None:
        link, sink = SilentLink(1), SlowSink()
        epoch = asyncio.create_task(TengiReceiver(feed_of(), rng=Random(1), environ={})._serve(link, sink, Resume(1)))
        await asyncio.sleep(0.2)
        assert not epoch.done()
        sink.has_room.set()
        with pytest.raises(SourceUnavailable):
            await epoch
        assert link.discounted > 0

    asyncio.run(run())


def test_short_waits_for_room_add_up() -> None:
    class Link(SilentLink):
        async def next_event(self) -> BadFrame | Closed:
            return await super().next_event() if self.bad_frames else Closed("")

    class Sink(MemorySink):
        async def land(self, frames: Sequence[Frame]) -> None:
            await asyncio.sleep(_TICK / 4)

    async def run() -> float:
        link = Link(20)
        epoch = new_epoch(feed_of(), {})
        await TengiReceiver(feed_of(), rng=Random(1), environ={})._read(link, epoch, Sink())
        return link.discounted

    assert asyncio.run(run()) >= 4 * _TICK


def test_an_epoch_that_was_stopped_without_room_leaves_the_next_one_its_look_at_the_source() -> None:
    async def run() -> None:
        receiver = TengiReceiver(feed_of(), rng=Random(1), environ={})
        stopped = asyncio.create_task(receiver._serve(SilentLink(1), SlowSink(), Resume(1)))
        await asyncio.sleep(0.05)
        stopped.cancel()
        await asyncio.wait([stopped])
        with pytest.raises(SourceUnavailable):
            await receiver._serve(SilentLink(0), MemorySink(), Resume(2))

    asyncio.run(asyncio.wait_for(run(), 20))
