"""Listeners without some methods, or that raise what no task survives: neither costs messages or hides the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.processors import format_exc_info
from structlog.testing import capture_logs

from silverfold.conf.errors import InvalidValue, OversizedMessage, SourceUnavailable
from silverfold.connectors.tengi.client import Client, ConfigurationBuilder, Connection
from silverfold.connectors.tengi.protocol import Identifier, Message, Packet
from silverfold.connectors.tengi.server import Broadcaster
from silverfold.connectors.tengi.transports.queues import MAX_UNDELIVERED
from tests.connectors.tengi.client.test_connection import Recorder, echo
from tests.support.tengi.pairs import TRANSPORTS, Inbox, connected, port_of, run, serving


class OnlyTheEnd:
    """A listener without the base class that has one method, and no method for another event."""

    on_message = None

    def __init__(self) -> None:
        self.ends: list[Connection] = []

    def on_closed(self, connection: Connection) -> None:
        self.ends.append(connection)


class NoMethods:
    """A listener of no event."""


class Raising:
    """A listener whose methods cannot be looked up."""

    def __getattr__(self, name: str) -> Any:
        raise GeneratorExit(name)


async def _told_of_the_end(connection: Connection, listener: OnlyTheEnd) -> None:
    async with asyncio.timeout(20):
        await connection.wait_closed()
    assert listener.ends == [connection]


def test_a_listener_that_could_never_be_called_is_refused() -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            for strange in (print, None, OnlyTheEnd, NoMethods()):
                with pytest.raises(TypeError, match="an object with one of the methods on_closed, on_connected, "):
                    connection.add_connection_listener(strange)
            not_callable: Any = "listener"
            with pytest.raises(TypeError, match="a message listener is a function, no str"):
                connection.add_message_listener(not_callable)

    run(work())


def test_a_listener_without_some_methods_is_told_of_the_rest_on_both_sides() -> None:
    ours, theirs = OnlyTheEnd(), OnlyTheEnd()

    def on_connect(connection: Connection) -> None:
        connection.add_connection_listener(Raising())
        connection.add_connection_listener(theirs)
        echo(connection)

    async def work() -> None:
        async with serving(on_connect) as server, connected(server, "tcp") as connection:
            connection.add_connection_listener(Raising())
            connection.add_connection_listener(ours)
            inbox = Inbox(connection)
            await connection.write_object("hello")
            assert await inbox.get() == "hello"
            (accepted,) = server.connections
            await connection.disconnect()
            await _told_of_the_end(connection, ours)
            await _told_of_the_end(accepted, theirs)

    run(work())


@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError, BaseException])
@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_a_listener_raises_the_next_message_and_the_end_are_delivered(
    error: type[BaseException], is_async: bool
) -> None:
    recorder = Recorder()

    def fail(_connection: Connection, _message: Message) -> None:
        raise error

    async def fail_later(connection: Connection, message: Message) -> None:
        await asyncio.sleep(0)
        fail(connection, message)

    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            connection.add_connection_listener(recorder)
            connection.add_message_listener(fail_later if is_async else fail)
            inbox = Inbox(connection)
            for number in range(2):
                await connection.write_object(number)
            assert await inbox.take(2) == [0, 1]
            await connection.disconnect()
            async with asyncio.timeout(20):
                await connection.wait_closed()

    run(work())
    assert [type(each) for each in recorder.errors] == [RuntimeError] * 2


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("asks", [False, True], ids=["writes", "asks"])
def test_a_listener_that_writes_after_its_peer_has_left_is_no_failure(transport: str, asks: bool) -> None:
    recorder, begun = Recorder(), asyncio.Event()

    async def write_late(connection: Connection, _message: Message) -> None:
        begun.set()
        await connection.wait_closed()
        await (connection.request("late") if asks else connection.write_object("late"))

    def on_connect(connection: Connection) -> None:
        connection.add_connection_listener(recorder)
        connection.add_message_listener(write_late)

    async def work() -> None:
        async with serving(on_connect, expire_after=0.1) as server, connected(server, transport) as connection:
            await connection.write_object("hello")
            await begun.wait()
            await (connection.disconnect() if asks else connection.abort())
            async with asyncio.timeout(20):
                await recorder.closed.wait()

    with capture_logs() as logged:
        run(work())
    assert [type(each) for each in recorder.errors] == [SourceUnavailable]
    assert [each["log_level"] for each in logged if each["event"] in ("listener_failed", "connection_error")] == [
        "info"
    ]


def test_a_listener_that_writes_until_its_peer_leaves_is_no_failure_even_if_messages_have_yet_to_be_read() -> None:
    recorder = Recorder()

    async def write_for_ever(connection: Connection, _message: Message) -> None:
        while True:
            await connection.write_object(b"x" * 100_000)

    def on_connect(connection: Connection) -> None:
        connection.add_connection_listener(recorder)
        connection.add_message_listener(write_for_ever)

    async def work() -> None:
        async with serving(on_connect, "tcp") as server, connected(server, "tcp") as connection:
            for number in range(2 * MAX_UNDELIVERED):
                await connection.write_object(number)
            await Inbox(connection).get()
            await connection.abort()
            async with asyncio.timeout(20):
                await recorder.closed.wait()

    with capture_logs() as logged:
        run(work())
    assert SourceUnavailable in [type(each) for each in recorder.errors]
    assert "listener_failed" not in [each["event"] for each in logged]


def test_a_listener_whose_own_source_is_away_has_failed() -> None:
    async def fail(_connection: Connection, _message: Message) -> None:
        raise SourceUnavailable("another one")

    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            connection.add_message_listener(fail)
            inbox = Inbox(connection)
            await connection.write_object("hello")
            assert await inbox.get() == "hello"

    with capture_logs() as logged:
        run(work())
    assert "listener_failed" in [each["event"] for each in logged]


def test_a_connection_added_while_its_end_is_told_is_no_member_of_a_broadcast() -> None:
    broadcaster = Broadcaster()

    class Late:
        def on_closed(self, connection: Connection) -> None:
            broadcaster.add(connection)

    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp") as connection:
            connection.add_connection_listener(Late())
            await connection.abort()

    run(work())
    assert broadcaster.members == []


def test_a_client_that_stops_ends_an_on_connect_that_still_runs() -> None:
    begun = asyncio.Event()

    async def for_ever(_connection: Connection) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def work() -> None:
        async with serving(echo) as server:
            client = Client.create(ConfigurationBuilder().add_transport("tcp", port=port_of(server)).build())
            connecting = asyncio.create_task(client.connect("127.0.0.1", for_ever))
            await begun.wait()
            await client.stop()
            with pytest.raises(SourceUnavailable, match="was stopped"):
                await asyncio.wait_for(connecting, 20)

    run(work())


def test_a_handshake_handler_that_returns_something_else_is_named_in_the_log() -> None:
    async def work() -> str:
        async with serving(handshake_handler=lambda *_: {}) as server:
            with capture_logs([format_exc_info]) as logged, pytest.raises(SourceUnavailable):
                async with connected(server, "tcp"):
                    pass
            (failed,) = [each for each in logged if each["event"] == "client_failed"]
            return str(failed["exception"]).splitlines()[-1]

    assert run(work()) == "TypeError: handshake_handler returned dict: it returns a Handshake or None"


def test_a_timeout_of_on_connect_is_its_own_error() -> None:
    async def late(_connection: Connection) -> None:
        raise TimeoutError("mine")

    async def work() -> None:
        async with serving(echo) as server:
            with pytest.raises(TimeoutError, match="mine"):
                async with connected(server, "tcp", late):
                    pass

    run(work())


@pytest.mark.parametrize(
    ("value", "error"), [(Packet("p", {"b": bytes(2_000)}), OversizedMessage), (None, InvalidValue)]
)
def test_a_request_that_could_not_be_sent_hides_no_message_of_its_id(value: object, error: type[Exception]) -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, "tcp", max_packet=1024) as connection:
            inbox = Inbox(connection)
            refused = Message(Identifier.random(), value)
            with pytest.raises(error):
                await connection.request(refused)
            await connection.write_object(Message(refused.id, "small"))
            assert await inbox.get() == "small"

    run(work())
