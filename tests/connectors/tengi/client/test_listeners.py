"""What a listener may await, and whom it may end; whose its errors are. Over each transport where that matters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from silverfold.conf.errors import InvalidValue, LocalProtocolError, SourceUnavailable
from silverfold.connectors.tengi.client import Client, ConfigurationBuilder, Connection, ConnectionListener
from silverfold.connectors.tengi.protocol import Decoder, Encoder, Marshallable, Message, Packet, TypeRegistry
from silverfold.connectors.tengi.server import Server
from tests.connectors.tengi.client.test_connection import Recorder, echo
from tests.support.peers import serving as scripted
from tests.support.tengi.pairs import TRANSPORTS, Inbox, connected, port_of, run, serving
from tests.support.tengi.raw_peer import HANDSHAKE

each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


class Day(Marshallable):
    """A user type that cannot read what it writes."""

    type_id = 50

    def marshall(self, encoder: Encoder) -> None:
        encoder.write_byte(-1)

    @classmethod
    def unmarshall(cls, decoder: Decoder) -> Day:
        raise ValueError("no such day")


@each_transport
def test_an_error_of_a_user_type_is_that_of_a_bad_packet(transport: str) -> None:
    recorder, types = Recorder(), TypeRegistry(Day)

    async def work() -> None:
        async with (
            serving(lambda each: each.add_connection_listener(recorder), types=types) as server,
            connected(server, transport, types=types) as connection,
        ):
            await connection.write_object(Day())
            while not recorder.errors:
                await asyncio.sleep(0.01)
            if transport == "tcp":  # nobody knows where the next packet begins
                await recorder.closed.wait()

    run(work())
    assert [type(each) for each in recorder.errors[:1]] == [InvalidValue]


class Faulty(Packet):
    type_id = 77


class BrokenTypes(dict[int, type[Packet]]):
    """A bug in the reading of one type."""

    def get(self, key: int, default: Any = None) -> Any:
        if key == Faulty.type_id:
            raise ZeroDivisionError
        return super().get(key, default)


def test_a_bug_in_reading_ends_the_connection_and_its_listeners_learn_of_it() -> None:
    recorder, broken = Recorder(), TypeRegistry(Faulty)
    broken.packets = BrokenTypes(broken.packets)

    async def work() -> None:
        async with (
            serving(lambda each: each.add_connection_listener(recorder), types=broken) as server,
            connected(server, "tcp", types=TypeRegistry(Faulty)) as connection,
        ):
            await connection.write_object(Faulty("p"))
            await recorder.closed.wait()

    run(work())
    assert [type(each) for each in recorder.errors] == [ZeroDivisionError]


def test_a_listener_gets_its_answer_behind_any_number_of_messages() -> None:
    answers: list[Any] = []

    async def on_connect(connection: Connection) -> None:
        connection.add_message_listener(lambda connection, message: connection.answer(message, "yes"))
        for number in range(300):
            await connection.write_object(number)

    async def on_message(connection: Connection, message: Message) -> None:
        if message.body == 0:
            answers.append((await connection.request("ask", timeout=5)).body)

    async def work() -> None:
        async with serving(on_connect) as server, connected(server, "tcp") as connection:
            inbox = Inbox(connection)
            connection.add_message_listener(on_message)
            assert await inbox.take(300) == list(range(300))

    run(work())
    assert answers == ["yes"]


def test_a_cancelled_error_that_a_listener_gets_is_an_event_and_delivery_goes_on() -> None:
    recorder = Recorder()

    async def on_message(_connection: Connection, message: Message) -> None:
        if message.body == 1:
            task = asyncio.create_task(asyncio.sleep(9))
            task.cancel()
            await task

    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            connection.add_connection_listener(recorder)
            connection.add_message_listener(on_message)
            inbox = Inbox(connection)
            for number in range(4):
                await connection.write_object(number)
            assert await inbox.take(4) == [0, 1, 2, 3]

    run(work())
    assert [str(each) for each in recorder.errors] == ["what a listener awaited was cancelled"]


Stop = Callable[[Server, Connection], Any]
STOPS: dict[str, Stop] = {
    "server": lambda server, _: server.stop(),
    "server in time": lambda server, _: asyncio.wait_for(server.stop(), 20),
    "connection": lambda _, connection: connection.abort(),
    "connection in time": lambda _, connection: asyncio.wait_for(connection.abort(), 20),
    "peacefully": lambda _, connection: connection.disconnect(),
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
@each_transport
def test_a_listener_may_end_its_connection_or_server_and_goes_on(stop: Stop, transport: str) -> None:
    async def work() -> None:
        stopped = asyncio.Event()
        async with serving(lambda each: each.add_message_listener(on_message), close_timeout=0.2) as server:

            async def on_message(connection: Connection, _message: Message) -> None:
                await stop(server, connection)
                stopped.set()

            async with connected(server, transport, close_timeout=0.2) as connection:
                await connection.write_object("quit")
                await stopped.wait()

    run(work())


class AtTheEnd(ConnectionListener):
    """Awaits a call when it is told of an end, and notes when that has returned."""

    def __init__(self, call: Callable[[Connection], Any]) -> None:
        self.call = call
        self.returned: list[str] = []
        self.closed = asyncio.Event()

    async def on_disconnected(self, connection: Connection) -> None:
        await self.call(connection)
        self.returned.append("disconnected")

    async def on_closed(self, connection: Connection) -> None:
        await self.call(connection)
        self.returned.append("closed")
        self.closed.set()


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
@each_transport
def test_a_listener_of_the_end_may_end_its_connection_or_server_and_goes_on(stop: Stop, transport: str) -> None:
    async def work() -> None:
        async with serving(lambda each: each.add_connection_listener(listener), close_timeout=0.2) as server:
            listener = AtTheEnd(lambda connection: stop(server, connection))
            async with connected(server, transport, close_timeout=0.2):
                (connection,) = server.connections
                await connection._link.abort()  # as if the network had ended it
                await listener.closed.wait()
            while server.connections:
                await asyncio.sleep(0.01)
        assert listener.returned == ["disconnected", "closed"]

    run(work())


def test_listeners_may_end_the_connection_of_each_other_when_both_have_ended() -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as one, connected(server, "tcp") as other:
            ends = {one: AtTheEnd(lambda _: other.abort()), other: AtTheEnd(lambda _: one.abort())}
            for connection, listener in ends.items():
                connection.add_connection_listener(listener)
            await server.stop()
            for listener in ends.values():
                await listener.closed.wait()

    run(work())


def test_on_connect_may_stop_the_server() -> None:
    async def work() -> None:
        stopped = asyncio.Event()

        async def on_connect(_connection: Connection) -> None:
            await server.stop()
            stopped.set()

        async with serving(on_connect) as server, connected(server, "tcp") as connection:
            await connection.wait_closed()
            await stopped.wait()
            while server.connections or len(asyncio.all_tasks()) > 2:  # on_connect's own ends last
                await asyncio.sleep(0.01)

    run(work())


def test_on_connect_and_a_listener_may_wait_for_the_end() -> None:
    seen: list[str] = []

    async def on_connect(connection: Connection) -> None:
        connection.add_message_listener(on_message)
        connection.add_connection_listener(recorder)
        await connection.wait_closed()
        seen.append("on_connect")

    async def on_message(connection: Connection, message: Message) -> None:
        if message.body == 0:
            await connection.wait_closed()
            seen.append("on_message")

    recorder = Recorder()

    async def work() -> None:
        async with serving(on_connect) as server:
            async with connected(server, "tcp") as connection:
                for number in range(200):
                    await connection.write_object(number)
            await recorder.closed.wait()
            while server.connections:
                await asyncio.sleep(0.01)

    run(work())
    assert seen == ["on_connect", "on_message"]
    assert recorder.events.count("message") == 200


def test_a_server_that_has_stopped_has_no_connections() -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            await connection.request(1)
            await server.stop()
            assert server.connections == []

    run(work())


def test_a_client_that_stops_while_it_connects_has_no_connection() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        writer.write(b"\1\xff\x9b" + bytes(16) + HANDSHAKE[1:])
        await reader.read()

    async def work() -> None:
        async with scripted(slow) as address:
            client = Client.create(ConfigurationBuilder().add_transport("tcp", port=address.port).build())
            connecting = asyncio.create_task(client.connect("127.0.0.1"))
            await asyncio.sleep(0.05)
            await client.stop()
            with pytest.raises(SourceUnavailable, match="was stopped"):
                await connecting

    run(work())


def test_a_request_that_waits_for_its_answer_is_not_sent_again() -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            message = Message.create("question")
            first, second = await asyncio.gather(
                connection.request(message), connection.request(message), return_exceptions=True
            )
            assert isinstance(first, Message)
            assert isinstance(second, LocalProtocolError)
            assert (await connection.request(message)).body == "question"

    run(work())


def test_a_transport_that_answers_garbage_is_not_the_last_that_is_tried() -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await reader.read()

    async def work() -> None:
        async with scripted(garbage) as address, serving(echo, "http") as server:
            builder = ConfigurationBuilder().add_transport("tcp", port=address.port)
            async with Client.create(builder.add_transport("http", port=port_of(server)).build()) as client:
                assert (await client.connect("127.0.0.1")).transport == "http"

    run(work())


@each_transport
def test_a_listener_that_takes_long_makes_the_peer_wait_and_costs_nothing(transport: str) -> None:
    async def on_message(_connection: Connection, message: Message) -> None:
        received.append(message.body)
        if message.body == 0:
            await asyncio.sleep(0.5)

    received: list[Any] = []

    async def work() -> None:
        async with (
            serving(lambda each: each.add_message_listener(on_message), poll_wait=0.05) as server,
            connected(server, transport, request_timeout=0.25) as connection,
        ):
            for number in range(100):
                await connection.write_object(number)
            while len(received) < 100:
                await asyncio.sleep(0.01)

    run(work())
    assert received == list(range(100))


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_what_is_queued_arrives_though_the_peer_reads_slowly_and_talks(transport: str) -> None:
    received: list[Any] = []
    talks: list[asyncio.Task[None]] = []

    async def talk(connection: Connection) -> None:
        while True:
            await connection.write_object("z" * 1000)
            await asyncio.sleep(0)

    async def on_message(_connection: Connection, message: Message) -> None:
        received.append(message.body)
        await asyncio.sleep(0.001)

    def on_connect(connection: Connection) -> None:
        connection.add_message_listener(on_message)
        talks.append(asyncio.create_task(talk(connection)))

    async def work() -> None:
        async with serving(on_connect) as server, connected(server, transport, close_timeout=30) as connection:
            await asyncio.sleep(0.1)
            for number in range(300):
                await connection.write_object(bytes([number % 256]) * 15_000)
            await connection.disconnect()
            while server.connections:
                await asyncio.sleep(0.01)
            await asyncio.wait(talks)
            assert all(isinstance(each.exception(), SourceUnavailable) for each in talks)

    run(work())
    assert len(received) == 300
