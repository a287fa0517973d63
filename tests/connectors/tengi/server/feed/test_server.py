"""The source over real sockets: each transport, both directions, faults, silence, mistakes, and a long run."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from silverfold.conf.errors import ConfigError, SourceUnavailable, TruncatedMessage
from silverfold.connectors.common.transport import Address
from silverfold.connectors.tengi.protocol.events import Closed, Peer, Transport
from silverfold.connectors.tengi.protocol.feed.packets import Position
from silverfold.connectors.tengi.protocol.values import Handshake, Int, Packet
from silverfold.connectors.tengi.server.feed.faults import FeedFaults
from silverfold.connectors.tengi.server.feed.server import FeedServer, new_epoch
from silverfold.connectors.tengi.server.feed.source import FeedOptions, FeedSource
from silverfold.connectors.tengi.server.feed.tables import PartLimits, RowChanges, SourceTable
from silverfold.connectors.tengi.server.workload.changer import Changer
from silverfold.connectors.tengi.transports.configuration import Configuration, ConfigurationBuilder, Faults
from silverfold.connectors.tengi.transports.dialing import open_link
from silverfold.connectors.tengi.transports.link import Link
from silverfold.connectors.tengi.transports.listening import Listening
from tests.support.polling import until, wait_until
from tests.support.tengi.feed_client import ask, follow, next_packet, packets
from tests.support.tengi.model_receiver import ModelReceiver, rows_of

SUBSCRIBE = Packet("subscribe", {"table": "t", "from": -1})


def people(count: int = 100, *, history: int = 1_000) -> SourceTable:
    rows = [{"id": number, "name": f"n{number}"} for number in range(count)]
    return SourceTable("t", {"id": "int", "name": "string"}, ["id"], rows, epoch=new_epoch(), history=history)


def settings(*transports: Transport) -> ConfigurationBuilder:
    return ConfigurationBuilder().add_transport(*(transports or Transport), port=0)


@contextmanager
def serving(
    table: SourceTable,
    *,
    builder: ConfigurationBuilder | None = None,
    options: FeedOptions | None = None,
    faults: FeedFaults | None = None,
) -> Iterator[FeedServer]:
    source = FeedSource([table], options or FeedOptions(part_limits=PartLimits(rows=30)))
    with FeedServer.start(source, (builder or settings()).build(), faults=faults) as server:
        yield server


async def dial(server: FeedServer, transport: Transport, configuration: Configuration | None = None) -> Link:
    address = Address("127.0.0.1", server.ports[transport])
    return await open_link(address, transport, configuration or settings(transport).build())


async def snapshot_over(link: Link) -> ModelReceiver:
    """Return a receiver that has a snapshot."""
    receiver = ModelReceiver("t")
    receiver.restart(0.0)
    await follow(link, receiver, lambda: receiver.snapshots == 1)
    return receiver


@pytest.mark.parametrize("transport", Transport)
def test_a_table_that_changes_arrives_over_each_transport(transport: Transport) -> None:
    table = people()

    async def receive(server: FeedServer) -> ModelReceiver:
        link, changer = await dial(server, transport), Changer(table, server.change, 1)
        receiver = await snapshot_over(link)
        for _ in range(200):
            await asyncio.to_thread(changer.change)
        await follow(link, receiver, lambda: receiver.position == (table.epoch, table.seq))
        await link.close()
        return receiver

    with serving(table) as server:
        receiver = asyncio.run(receive(server))
        assert receiver.rows == rows_of(table)
        assert receiver.snapshots == 1
        if transport is not Transport.HTTP:  # there its silence tells
            wait_until(lambda: server.client_count == 0, "the receiver's leaving")


@pytest.mark.parametrize("transport", Transport)
def test_a_receiver_that_comes_back_continues_where_it_was(transport: Transport) -> None:
    table = people(3)

    async def receive(server: FeedServer) -> None:
        receiver = ModelReceiver("t")
        for number in range(3):
            link = await dial(server, transport)
            receiver.restart(0.0)
            await asyncio.to_thread(server.change, table, RowChanges(modified=[((number,), {"name": "new"})]))
            await follow(link, receiver, lambda: receiver.position == Position(table.epoch, table.seq))
            await link.abort()
        assert receiver.snapshots == 1
        assert receiver.rows == rows_of(table)

    with serving(table) as server:
        asyncio.run(receive(server))


@pytest.mark.parametrize("transport", Transport)
def test_a_source_dials_a_receiver_that_listens_and_comes_again(transport: Transport) -> None:
    table = people(3)

    async def receive() -> None:
        links: asyncio.Queue[Link] = asyncio.Queue()
        ended = asyncio.Event()

        async def on_link(link: Link) -> None:
            links.put_nowait(link)
            await ended.wait()

        listening = Listening(settings(transport).build(), on_link, structlog.get_logger("test"))
        await listening.start()
        address = Address("127.0.0.1", listening.ports[transport])
        source = FeedSource([table])
        with await asyncio.to_thread(FeedServer.start, source, settings(transport).build(), dial=[address]) as server:
            assert not server.ports
            for _ in range(2):
                link = await links.get()
                receiver = await snapshot_over(link)
                assert receiver.rows == rows_of(table)
                await link.abort()
            ended.set()
            await asyncio.to_thread(server.close)
        await listening.stop()

    asyncio.run(receive())


@pytest.mark.parametrize("transport", Transport)
def test_faults_on_the_way_are_made_good(transport: Transport) -> None:
    table = people(60)
    faults = FeedFaults(lose=0.1, repeat=0.2, reorder=0.2, drop_parts=0.2, close=0.02)

    async def receive(server: FeedServer) -> None:
        receiver, changer = ModelReceiver("t"), Changer(table, server.change, 1)
        for _ in range(100):
            await asyncio.to_thread(changer.change)
        attempts = 0
        while receiver.position != (table.epoch, table.seq):
            attempts += 1
            assert attempts < 2_000
            link = await dial(server, transport)
            receiver.restart(0.0)
            await ask(link, *receiver.requests, Packet("ping", {"seq": attempts}))
            receiver.requests.clear()
            while (packet := await _next_or_none(link)) is not None and packet.name != "pong":
                receiver.receive(packet, 0.0)
            await asyncio.sleep(0.01)
            await link.abort()
        assert receiver.rows == rows_of(table)

    with serving(table, faults=faults) as server:
        asyncio.run(receive(server))


async def _next_or_none(link: Link) -> Packet | None:
    """Return a packet; None if the connection ends, or nothing comes for a moment: the source sends no more."""
    try:
        return await asyncio.wait_for(next_packet(link), 0.3)
    except (TimeoutError, SourceUnavailable):
        return None


@pytest.mark.parametrize("transport", Transport)
def test_packets_that_are_cut_as_java_does_come_whole_over_http_only(transport: Transport) -> None:
    table = people(3)

    async def receive(server: FeedServer) -> None:
        link = await dial(server, transport, settings(transport).set(peer=Peer.JAVA).build())
        if transport is Transport.HTTP:
            assert (await snapshot_over(link)).rows == rows_of(table)
        else:
            await ask(link, SUBSCRIBE)
            with pytest.raises(TruncatedMessage):
                await packets(link, 2)
        await link.abort()

    with serving(table, builder=settings(transport).set(faults=Faults(cut=256))) as server:
        asyncio.run(receive(server))


@pytest.mark.parametrize("transport", Transport)
def test_mistakes_are_answered_and_the_connection_stays(transport: Transport) -> None:
    async def receive(server: FeedServer) -> None:
        link = await dial(server, transport)
        await ask(link, Packet("hello"), Packet("subscribe", {"table": "x", "from": -1}), Packet("ping", {"seq": 9}))
        refused, unknown, pong = await packets(link, 3)
        assert (refused.name, refused.get_value("code")) == ("error", Int(2))
        assert (unknown.get_value("code"), unknown.get_value("table")) == (Int(1), "x")
        assert pong == Packet("pong", {"seq": 9})
        await link.close()

    with serving(people()) as server:
        asyncio.run(receive(server))


def test_a_silent_receiver_is_left() -> None:
    async def receive(server: FeedServer) -> None:
        link = await dial(server, Transport.TCP)
        await ask(link, SUBSCRIBE)
        while (await _event_name(link)) != "closed":
            pass
        await until(lambda: server.client_count == 0, "the end of the subscription")
        await link.abort()

    with serving(people(3), options=FeedOptions(subscription_ttl=0.3)) as server:
        asyncio.run(receive(server))


async def _event_name(link: Link) -> str:
    try:
        return "closed" if isinstance(await link.next_event(), Closed) else "message"
    except SourceUnavailable:
        return "closed"


def test_connections_can_be_broken_and_come_again() -> None:
    async def receive(server: FeedServer) -> None:
        link = await dial(server, Transport.TCP)
        await ask(link, SUBSCRIBE)
        await packets(link, 1)
        await asyncio.to_thread(server.disconnect_all)
        while (await _event_name(link)) != "closed":
            pass
        await link.abort()
        again = await dial(server, Transport.TCP)
        await ask(again, SUBSCRIBE)
        assert [each.name for each in await packets(again, 2)] == ["schema", "snapshot"]
        await again.abort()

    with serving(people(3)) as server:
        asyncio.run(receive(server))


def test_a_receiver_that_reads_nothing_stops_nobody_else() -> None:
    table = people(2_000)

    async def receive(server: FeedServer) -> None:
        slow = await dial(server, Transport.TCP)
        await ask(slow, SUBSCRIBE)
        link, changer = await dial(server, Transport.TCP), Changer(table, server.change, 1)
        receiver = await snapshot_over(link)
        for _ in range(300):
            await asyncio.to_thread(changer.change)
        await follow(link, receiver, lambda: receiver.position == (table.epoch, table.seq))
        assert receiver.rows == rows_of(table)
        await slow.abort()
        await link.abort()

    builder = settings(Transport.TCP).set(queue_bytes=1 << 16)
    with serving(table, builder=builder) as server:
        asyncio.run(receive(server))


def test_a_long_run_does_not_grow() -> None:
    table = people(50, history=100)
    changer = Changer(table, lambda _, changes: table.apply(changes), 1)

    async def receive(server: FeedServer) -> None:
        link = await dial(server, Transport.TCP)
        receiver = await snapshot_over(link)

        async def run(rounds: int) -> int:
            for _ in range(rounds):
                await asyncio.to_thread(server.run, lambda _: [changer.change() for _ in range(50)])
                await follow(link, receiver, lambda: receiver.position == (table.epoch, table.seq))
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        await run(4)
        tracemalloc.start()
        try:
            before = await run(4)
            assert await run(12) - before < 200_000
        finally:
            tracemalloc.stop()
        await link.close()

    with serving(table) as server:
        asyncio.run(receive(server))


def test_a_handshake_without_the_token_is_refused() -> None:
    def admit(_: object, request: Handshake) -> Handshake | None:
        return Handshake() if request.get_value("token") == "secret" else None

    async def receive(server: FeedServer) -> None:
        with pytest.raises(SourceUnavailable):
            await dial(server, Transport.TCP)
        link = await dial(server, Transport.TCP, settings(Transport.TCP).set(handshake={"token": "secret"}).build())
        await ask(link, Packet("ping", {"seq": 1}))
        assert await next_packet(link) == Packet("pong", {"seq": 1})
        await link.close()

    with serving(people(), builder=settings(Transport.TCP).set(handshake_handler=admit)) as server:
        asyncio.run(receive(server))


def test_a_source_that_dials_with_a_file_that_cannot_be_used_is_not_started() -> None:
    builder = settings(Transport.TCP).ssl(ca="nowhere.pem")
    with pytest.raises(ConfigError, match="nowhere"):
        FeedServer.start(FeedSource([people()]), builder.build(), dial=[Address("127.0.0.1", 9)]).close()


def test_a_port_in_use_is_an_error_and_leaves_nothing_running() -> None:
    with serving(people(), builder=settings(Transport.TCP)) as server:
        builder = ConfigurationBuilder().add_transport(Transport.TCP, port=server.ports[Transport.TCP])
        with pytest.raises(SourceUnavailable):
            FeedServer.start(FeedSource([people()]), builder.build())
