"""Cancelling at any time, closing in any state: nothing is left running, and the server serves on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from silverfold.conf.errors import SilverfoldError, SourceUnavailable
from silverfold.connectors.common.transport import Address
from silverfold.connectors.tengi.client import Client, ConfigurationBuilder, Connection, ConnectionListener
from silverfold.connectors.tengi.protocol import Message
from silverfold.connectors.tengi.protocol.events import Closed, Transport
from silverfold.connectors.tengi.server import Server
from silverfold.connectors.tengi.transports.connection import _CALLS, _ENDS
from silverfold.connectors.tengi.transports.dialing import open_link
from silverfold.connectors.tengi.transports.link import Link
from silverfold.connectors.tengi.transports.queues import Outbox
from tests.connectors.tengi.client.test_connection import echo
from tests.support.peers import serving as scripted
from tests.support.peers import silent
from tests.support.polling import until
from tests.support.tengi.pairs import TRANSPORTS, Inbox, connected, port_of, run, serving
from tests.support.tengi.raw_peer import HANDSHAKE

each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


async def linked(server: Server, transport: str) -> Link:
    settings = ConfigurationBuilder().add_transport(transport).build()
    return await open_link(Address("127.0.0.1", port_of(server)), Transport(transport), settings)


@each_transport
def test_a_client_that_is_cancelled_at_any_step_leaves_nothing_behind(transport: str) -> None:
    async def talk(server: Server) -> None:
        async with connected(server, transport) as connection:
            await connection.request("one")
            await connection.write_object("two")

    async def work() -> None:
        async with serving(echo) as server:
            for steps in range(60):
                task = asyncio.create_task(talk(server))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            async with connected(server, transport) as connection:
                assert (await connection.request("there")).body == "there"

    run(work())


@each_transport
def test_a_server_that_is_stopped_at_any_step_leaves_nothing_behind(transport: str) -> None:
    async def work() -> None:
        for steps in range(0, 60, 3):
            async with serving(echo, close_timeout=0.05) as server:
                task = asyncio.create_task(talk(port_of(server)))
                for _ in range(steps):
                    await asyncio.sleep(0)
            with contextlib.suppress(SilverfoldError):
                await task

    async def talk(port: int) -> None:
        configuration = ConfigurationBuilder().add_transport(transport, port=port).set(close_timeout=0.05).build()
        async with Client.create(configuration) as client:
            connection = await client.connect("127.0.0.1")
            await connection.request("one")

    run(work())


@each_transport
def test_reading_a_link_can_be_cancelled_without_losing_an_event(transport: str) -> None:
    async def on_connect(connection: Connection) -> None:
        for number in range(50):
            await connection.write_object(number)
            await asyncio.sleep(0)

    async def work() -> None:
        async with serving(on_connect, poll_wait=0.05) as server:
            link = await linked(server, transport)
            found: list[Any] = []
            for attempt in range(2000):
                task = asyncio.create_task(link.next_event())
                for _ in range(attempt % 4):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    found.append((await task).body)
                if len(found) == 50:
                    break
                await asyncio.sleep(0.001)
            assert found == list(range(50))
            await link.close()

    run(work())


@each_transport
def test_a_link_may_be_closed_by_many_and_twice_and_reading_ends(transport: str) -> None:
    async def work() -> None:
        async with serving(echo) as server:
            link = await linked(server, transport)
            reading = asyncio.create_task(link.next_event())
            await asyncio.sleep(0.01)
            await asyncio.gather(link.close(), link.close(), link.abort())
            await link.close()
            assert isinstance(await reading, Closed)
            assert isinstance(await link.next_event(), Closed)
            with pytest.raises(SourceUnavailable):
                await link.send(Message.create(1))
            with pytest.raises(SourceUnavailable):
                link.offer_encoded(b"")

    run(work())


@each_transport
def test_what_is_queued_is_sent_before_a_link_is_closed(transport: str) -> None:
    received: list[Any] = []

    def on_connect(connection: Connection) -> None:
        connection.add_message_listener(lambda _, message: received.append(message.body))

    async def work() -> None:
        async with serving(on_connect) as server:
            link = await linked(server, transport)
            for number in range(100):
                await link.send(Message.create(number))
            await link.close()
            while len(received) < 100:
                await asyncio.sleep(0.01)

    run(work())
    assert received == list(range(100))


@each_transport
def test_a_server_that_answers_no_handshake_is_given_up(transport: str) -> None:
    async def work() -> None:
        async with scripted(silent) as address:
            builder = ConfigurationBuilder().add_transport(transport, port=address.port)
            client = Client.create(builder.set(handshake_timeout=0.1, connect_timeout=0.1).build())
            with pytest.raises(SourceUnavailable, match=r"no handshake within 0\.[12] s"):
                await client.connect("127.0.0.1")

    run(work())


@each_transport
def test_a_client_may_be_stopped_by_its_own_listener_and_a_server_started_again(transport: str) -> None:
    async def work() -> None:
        builder = ConfigurationBuilder().add_transport(transport, port=0)
        server = Server.create(builder.set(close_timeout=0.1).build())
        for _ in range(2):
            await server.start(echo)
            client = Client.create(ConfigurationBuilder().add_transport(transport, port=port_of(server)).build())
            connection = await client.connect("127.0.0.1")
            connection.add_message_listener(lambda *_, client=client: client.stop())
            await connection.write_object(1)
            await connection.wait_closed()
            await server.stop()
            await server.stop()

    run(work())


def test_an_error_of_on_connect_ends_the_connection_on_either_side() -> None:
    def failing(_connection: Connection) -> None:
        raise ValueError("mine")

    async def work() -> None:
        async with serving(failing) as server:
            async with connected(server, "tcp") as connection:
                await connection.wait_closed()
            with pytest.raises(ValueError, match="mine"):
                async with connected(server, "tcp", failing):
                    pass

    run(work())


def test_an_outbox_keeps_order_whoever_waits_or_is_cancelled() -> None:
    async def work() -> None:
        outbox = Outbox(10)
        await outbox.put(b"x" * 20)
        tasks = [asyncio.create_task(outbox.put(bytes([number]) * 6)) for number in range(5)]
        await asyncio.sleep(0)
        assert not outbox.offer(b"")
        tasks[1].cancel()
        found = []
        while len(found) < 5:
            await outbox.filled()
            found += outbox.take(0)
            await asyncio.sleep(0)
        assert found == [b"x" * 20, *(bytes([number]) * 6 for number in (0, 2, 3, 4))]
        outbox.put_back([b"a", b"b"])
        assert (len(outbox), outbox.take(100)) == (2, [b"a", b"b"])
        outbox.close()
        with pytest.raises(SourceUnavailable):
            await outbox.put(b"late")
        await asyncio.gather(*tasks, return_exceptions=True)

    run(work())


@each_transport
def test_inboxes_can_be_removed_while_messages_come(transport: str) -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, transport) as connection:
            first, second = Inbox(connection), Inbox(connection)
            await connection.write_object(1)
            assert (await first.get(), await second.get()) == (1, 1)
            first.registration.remove()
            await connection.write_object(2)
            assert await second.get() == 2
            assert (await connection.request(3)).body == 3

    run(work())


def test_a_client_that_connects_again_at_each_end_keeps_nothing_of_earlier_connections() -> None:
    inherited: list[int] = []

    async def work() -> None:
        over, tasks = asyncio.Event(), set[asyncio.Task[None]]()

        class Again(ConnectionListener):
            async def on_closed(self, connection: Connection) -> None:
                inherited.append(len(_CALLS.get()) + len(_ENDS.get()))
                if len(inherited) == 20:
                    over.set()
                else:
                    await connect()

        async def connect() -> None:
            connection = await client.connect("127.0.0.1")
            connection.add_connection_listener(Again())
            tasks.add(asyncio.create_task(connection.disconnect()))

        async with serving() as server:
            configuration = ConfigurationBuilder().add_transport("tcp", port=port_of(server)).build()
            async with Client.create(configuration) as client:
                await connect()
                await over.wait()

    run(work())
    assert max(inherited) < 10


def test_a_client_that_stops_while_on_connect_runs_has_no_connection() -> None:
    async def work() -> None:
        async with serving(echo) as server:
            client = Client.create(ConfigurationBuilder().add_transport("tcp", port=port_of(server)).build())
            with pytest.raises(SourceUnavailable, match="was stopped"):
                await client.connect("127.0.0.1", lambda _: client.stop())

    run(work())


async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A peer that shakes hands, reads nothing more and never closes."""
    writer.write(b"\1\xff\x9b" + bytes(16) + HANDSHAKE[1:])
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def stop_of_three() -> AsyncIterator[tuple[asyncio.Task[None], list[Connection]]]:
    """Begin to stop a client of three deaf peers; yield the stop and the connections."""
    async with scripted(deaf) as address:
        builder = ConfigurationBuilder().add_transport("tcp", port=address.port).set(close_timeout=1_000)
        client = Client.create(builder.build())
        connections = [await client.connect("127.0.0.1") for _ in range(3)]
        yield asyncio.create_task(client.stop()), connections


def test_a_client_ends_its_connections_at_once_and_not_one_after_another() -> None:
    async def work() -> None:
        async with stop_of_three() as (stopping, connections):
            for each in connections:
                await until(lambda each=each: each._is_leaving, "its end", seconds=10)
            for each in connections:
                await each.abort()
            await stopping

    run(work())


def test_a_stop_that_is_cancelled_ends_all_connections_all_the_same() -> None:
    async def work() -> None:
        async with stop_of_three() as (stopping, connections):
            await until(lambda: all(each._is_leaving for each in connections), "the stop", seconds=10)
            stopping.cancel()
            await asyncio.wait([stopping], timeout=10)
            assert stopping.cancelled()
            assert [each.is_closed for each in connections] == [True] * 3

    run(work())
