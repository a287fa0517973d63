"""Connections of a client and a server, over each transport."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from silverfold.conf.errors import InvalidValue, OversizedMessage, SourceUnavailable
from silverfold.connectors.tengi.client import Client, ConfigurationBuilder, Connection, ConnectionListener
from silverfold.connectors.tengi.protocol import Byte, Char, Float, Handshake, Identifier, Int, Message, Packet, Short
from silverfold.connectors.tengi.transports import connection as api
from tests.support.peers import nobody
from tests.support.polling import until
from tests.support.tengi.pairs import TRANSPORTS, Inbox, connected, port_of, run, serving
from tests.support.tengi.pieces import in_pieces

each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


def echo(connection: Connection) -> None:
    connection.add_message_listener(lambda connection, message: connection.answer(message, message.body))


def drawn_packet(draw: random.Random, depth: int = 0) -> Packet:
    """A packet of any values."""
    kinds: list[Any] = [
        lambda: Byte(draw.randrange(-128, 128)),
        lambda: Short(draw.randrange(-(1 << 15), 1 << 15)),
        lambda: Int(draw.randrange(-(1 << 31), 1 << 31)),
        lambda: draw.randrange(-(1 << 63), 1 << 63),
        lambda: Float(draw.randrange(1000) / 8),
        draw.random,
        lambda: Char(chr(draw.randrange(1, 1 << 15))),
        lambda: "".join(draw.choices("aé€😀\0", k=draw.randrange(300))),
        lambda: draw.randbytes(draw.randrange(3000)),
        lambda: Identifier(draw.randbytes(16)),
        lambda: drawn_packet(draw, depth + 1) if depth < 3 else 1,
    ]
    return Packet("drawn", {f"k{at}": draw.choice(kinds)() for at in range(draw.randrange(8))})


class Recorder(ConnectionListener):
    """Records events by name, in their order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.errors: list[Exception] = []
        self.closed = asyncio.Event()

    def on_connected(self, connection: Connection) -> None:
        self.events.append("connected")

    def on_message(self, connection: Connection, message: Message) -> None:
        self.events.append("message")

    def on_exception(self, connection: Connection, error: Exception) -> None:
        self.events.append("exception")
        self.errors.append(error)

    def on_disconnected(self, connection: Connection) -> None:
        self.events.append("disconnected")

    def on_closed(self, connection: Connection) -> None:
        self.events.append("closed")
        self.closed.set()


@each_transport
def test_packets_come_back_as_they_were_sent_and_in_order(transport: str) -> None:
    draw = random.Random(7)
    packets = [drawn_packet(draw) for _ in range(60)]

    async def work() -> None:
        async with serving(echo) as server, connected(server, transport) as connection:
            inbox = Inbox(connection)
            for packet in packets:
                await connection.write_object(packet)
            assert await inbox.take(len(packets)) == packets

    run(work())


@each_transport
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_where_reads_end_does_not_matter(transport: str, size: int) -> None:
    draw = random.Random(size)
    packets = [Packet("p", {"v": draw.randbytes(400)}), Packet("empty"), Packet("t", {"t": "é" * 90})]

    async def work() -> None:
        async with serving(echo) as server, in_pieces(port_of(server), size) as port:
            configuration = ConfigurationBuilder().add_transport(transport, port=port).build()
            async with Client.create(configuration) as client:
                connection = await client.connect("127.0.0.1")
                inbox = Inbox(connection)
                for packet in packets:
                    await connection.write_object(packet)
                assert await inbox.take(len(packets)) == packets

    run(work())


@each_transport
def test_a_packet_of_megabytes_goes_both_ways(transport: str) -> None:
    large = Packet("large", {"v": random.Random(1).randbytes(5 << 20)})

    async def work() -> None:
        async with serving(echo) as server, connected(server, transport) as connection:
            assert (await connection.request(large)).body == large

    run(work())


@each_transport
def test_an_answer_finds_its_request_and_no_listener(transport: str) -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, transport) as connection:
            recorder = Recorder()
            connection.add_connection_listener(recorder)
            answers = await asyncio.gather(*(connection.request(number) for number in range(20)))
            assert [each.body for each in answers] == list(range(20))
            assert "message" not in recorder.events

    run(work())


def test_an_answer_that_comes_too_late_is_no_message_and_answers_none() -> None:
    async def work() -> None:
        questions: list[Message] = []

        def collect(connection: Connection) -> None:
            connection.add_message_listener(lambda _, message: questions.append(message))

        async with serving(collect) as server, connected(server, "tcp") as connection:
            inbox = Inbox(connection)
            with pytest.raises(TimeoutError, match=r"no answer to .* within 0\.\d+ s"):
                await connection.request("question", timeout=0.05)
            await connection.write_object("go on")
            await until(lambda: len(questions) == 2, "both messages")
            (asked,) = server.connections
            await asked.answer(questions[0], "late")
            await asked.write_object("a message")
            assert await inbox.get() == "a message"

    run(work())


def test_only_so_many_requests_without_an_answer_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_MAX_UNANSWERED", 2)

    async def work() -> None:
        async with serving() as server, connected(server, "tcp") as connection:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await connection.request("question", timeout=0)
            assert len(connection._unanswered) == 2

    run(work())


@each_transport
def test_events_come_in_their_order_on_both_sides(transport: str) -> None:
    served, mine = Recorder(), Recorder()

    def on_connect(connection: Connection) -> None:
        connection.add_connection_listener(served)
        echo(connection)

    async def work() -> None:
        async with serving(on_connect, expire_after=0.2) as server, connected(server, transport) as connection:
            connection.add_connection_listener(mine)
            inbox = Inbox(connection)
            await connection.write_object(1)
            await inbox.get()
            await connection.disconnect()
            await connection.wait_closed()
            await served.closed.wait()

    run(work())
    assert mine.events == ["connected", "message", "closed"]
    assert served.events == ["connected", "message", "disconnected", "closed"]


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_the_client_learns_that_the_server_disconnects(transport: str) -> None:
    mine = Recorder()

    async def on_connect(connection: Connection) -> None:
        await connection.write_object("last")
        await connection.disconnect()

    async def work() -> None:
        async with serving(on_connect) as server, connected(server, transport) as connection:
            connection.add_connection_listener(mine)
            await mine.closed.wait()
            with pytest.raises(SourceUnavailable):
                await connection.write_object(1)

    run(work())
    assert mine.events == ["connected", "message", "disconnected", "closed"]


def test_over_http_what_is_queued_still_comes_when_the_server_disconnects() -> None:
    mine = Recorder()

    async def on_connect(connection: Connection) -> None:
        await connection.write_object("last")
        await connection.disconnect()

    async def work() -> None:
        async with serving(on_connect) as server, connected(server, "http") as connection:
            connection.add_connection_listener(mine)
            await mine.closed.wait()

    run(work())
    assert mine.events == ["connected", "message", "exception", "disconnected", "closed"]


@each_transport
def test_a_listener_can_be_removed_and_its_error_harms_no_other(transport: str) -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, transport) as connection:
            recorder = Recorder()
            connection.add_connection_listener(recorder)
            failing = connection.add_message_listener(lambda *_: {}["nothing"])
            inbox = Inbox(connection)
            await connection.write_object(1)
            assert await inbox.get() == 1
            failing.remove()
            failing.remove()
            await connection.write_object(2)
            assert await inbox.get() == 2
            assert [type(each) for each in recorder.errors] == [KeyError]

    run(work())


@each_transport
def test_a_listener_may_ask_its_peer_or_leave(transport: str) -> None:
    asked: list[Any] = []

    async def on_message(connection: Connection, message: Message) -> None:
        asked.append((await connection.request("question")).body)
        await connection.disconnect()

    async def work() -> None:
        async with serving(echo) as server, connected(server, transport) as connection:
            connection.add_message_listener(on_message)
            await connection.write_object("hello")
            await connection.wait_closed()

    run(work())
    assert asked == ["question"]


@each_transport
def test_none_is_no_object_and_a_packet_beyond_the_limit_is_not_sent(transport: str) -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, transport, max_packet=1000) as connection:
            with pytest.raises(InvalidValue):
                await connection.write_object(None)
            with pytest.raises(OversizedMessage):
                await connection.write_object(b"x" * 1000)
            assert (await connection.request("fine")).body == "fine"

    run(work())


@each_transport
def test_a_handshake_carries_values_both_ways_and_may_be_refused(transport: str) -> None:
    def on_handshake(_connection_id: Identifier, request: Handshake) -> Handshake | None:
        return Handshake({"welcome": "yes"}) if request.get_value("token") == "right" else None

    async def on_connect(connection: Connection) -> None:
        await connection.write_object(connection.handshake["token"])

    async def work() -> None:
        async with serving(on_connect, handshake_handler=on_handshake) as server:
            async with connected(server, transport, handshake={"token": "right"}) as connection:
                assert connection.handshake == {"welcome": "yes"}
                assert await Inbox(connection).get() == "right"
            with pytest.raises(SourceUnavailable, match="closed the connection without"):
                async with connected(server, transport, handshake={"token": "wrong"}):
                    pass

    run(work())


def test_the_first_transport_that_works_is_taken() -> None:
    async def work() -> None:
        async with serving(echo, "http") as server:
            with nobody() as unused:
                builder = ConfigurationBuilder().add_transport("tcp", port=unused.port)
                builder.add_transport("websocket", "http", port=port_of(server))
                async with Client.create(builder.build()) as client:
                    connection = await client.connect("127.0.0.1")
                    assert connection.transport == "http"
                    assert (await connection.request(1)).body == 1

    run(work())


def test_no_transport_that_works_is_an_error_with_all_reasons() -> None:
    async def work() -> None:
        with nobody() as unused:
            builder = ConfigurationBuilder().add_transport("tcp", "websocket", port=unused.port)
            async with Client.create(builder.build()) as client:
                with pytest.raises(SourceUnavailable, match=r"tcp: .*; websocket: "):
                    await client.connect("127.0.0.1")

    run(work())


@each_transport
def test_who_does_not_read_is_not_read_ahead_for_without_bound(transport: str) -> None:
    """The server's listener blocks: the client's writes wait before ten times the bounds are sent."""
    released = asyncio.Event()

    async def wait(*_: object) -> None:
        await released.wait()

    async def work() -> None:
        async with (
            serving(lambda connection: connection.add_message_listener(wait), queue_bytes=1 << 20) as server,
            connected(server, transport, queue_bytes=1 << 20) as connection,
        ):
            sent = 0

            async def flood() -> None:
                nonlocal sent
                while True:
                    await connection.write_object(b"x" * (1 << 18))
                    sent += 1

            task = asyncio.create_task(flood())
            last = -1
            while sent != last:
                last = sent
                await asyncio.sleep(0.3)
            assert sent < 64 + 64  # the listener's 64, and some megabytes between
            task.cancel()
            released.set()

    run(work())


@each_transport
def test_a_handshake_may_be_longer_than_the_packets_of_either_side(transport: str) -> None:
    asked = list[Any]()

    def answer(_connection_id: Identifier, request: Handshake) -> Handshake:
        asked.append(request.get_value("token"))
        return Handshake({"answer": "x" * 5_000})

    async def work() -> Any:
        async with (
            serving(echo, max_packet=1024, handshake_handler=answer) as server,
            connected(server, transport, max_packet=1024, handshake={"token": "x" * 5_000}) as connection,
        ):
            return (await connection.request("there")).body

    assert run(work()) == "there"
    assert asked == ["x" * 5_000]
