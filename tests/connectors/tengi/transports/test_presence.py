"""A client over HTTP whose listeners are busy: it does not poll for messages, and shows that it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from silverfold.connectors.tengi.client import Connection
from silverfold.connectors.tengi.protocol import Message
from silverfold.connectors.tengi.protocol.events import MessageReceived, Transport
from silverfold.connectors.tengi.transports.client_polling import ClientPollingLink
from silverfold.connectors.tengi.transports.configuration import ConfigurationBuilder, Tls
from silverfold.connectors.tengi.transports.dialing import open_link
from silverfold.connectors.tengi.transports.server_polling import ServerPollingLink
from tests.connectors.tengi.client.test_connection import Recorder
from tests.support.certificates import server_of
from tests.support.peers import serving as scripted
from tests.support.polling import until
from tests.support.tengi.pairs import connected, run, serving
from tests.support.tengi.polled_server import RESPONSE, PolledServer
from tests.support.tengi.vectors import written

NUMBERS = list(range(200))
"""Messages, more than are read ahead of a listener."""


class Busy:
    """A client whose listener is busy with the first of the numbers; all have come.

    Attributes:
        ours, theirs: Its connection at the client and at the server.
        is_free: Lets the listener go on.
        received: What it got.
    """

    ours: Connection
    theirs: Connection

    def __init__(self) -> None:
        self.is_free = asyncio.Event()
        self.received: list[Any] = []

    async def on_message(self, _connection: Connection, message: Message) -> None:
        await self.is_free.wait()
        self.received.append(message.body)

    @property
    def asking(self) -> ClientPollingLink:
        assert isinstance(self.ours._link, ClientPollingLink)
        return self.ours._link

    @property
    def answering(self) -> ServerPollingLink:
        assert isinstance(self.theirs._link, ServerPollingLink)
        return self.theirs._link


def has_failed(task: asyncio.Task[None] | None) -> bool:
    return task is not None and task.done() and task.exception() is not None


@asynccontextmanager
async def busy_client(served: dict[str, Any] | None = None, used: dict[str, Any] | None = None) -> AsyncIterator[Busy]:
    client, are_written = Busy(), asyncio.Event()

    async def on_connect(connection: Connection) -> None:
        client.theirs = connection
        for number in NUMBERS:
            await connection.write_object(number)
        are_written.set()

    async with (
        serving(on_connect, **(served or {})) as server,
        connected(server, "http", presence_interval=0.1, **(used or {})) as client.ours,
    ):
        client.ours.add_message_listener(client.on_message)
        await are_written.wait()
        await until(lambda: not len(client.answering._outbox), "all polls for messages")
        yield client


@pytest.mark.parametrize(
    ("served", "used"),
    [({}, {}), ({"tls": Tls(context=server_of())}, {"tls": Tls(verify=False)}), ({"peer": "java"}, {"peer": "java"})],
    ids=["tengi", "tls", "java"],
)
def test_a_busy_client_shows_that_it_is_there_and_takes_nothing(served: dict[str, Any], used: dict[str, Any]) -> None:
    async def work() -> None:
        async with busy_client(served, used) as client:
            for number in NUMBERS:
                await client.theirs.write_object(number)
            for _ in range(3):
                before = client.answering.last_received
                await until(lambda before=before: client.answering.last_received > before, "a sign of the client")
                assert len(client.answering._outbox) == len(NUMBERS)
            client.is_free.set()
            await until(lambda: len(client.received) == 2 * len(NUMBERS), "all messages")
            assert client.received == 2 * NUMBERS

    run(work())


def test_a_busy_client_gets_all_messages_before_it_learns_that_the_server_has_ended() -> None:
    async def work() -> None:
        recorder = Recorder()
        async with busy_client() as client:
            client.ours.add_connection_listener(recorder)
            await client.theirs.abort()
            await until(lambda: has_failed(client.asking._polling), "a sign in vain")
            failed = client.asking._polling
            await asyncio.sleep(0.25)
            assert client.asking._polling is failed  # there is no other that would hide its error
            client.is_free.set()
            await recorder.closed.wait()
        assert client.received == NUMBERS
        assert [getattr(each, "reason", "") for each in recorder.errors] == ["bad_status"]

    run(work())


@pytest.mark.parametrize("end", [Connection.disconnect, Connection.abort])
def test_a_busy_client_may_end_its_connection(end: Any) -> None:
    async def work() -> None:
        async with busy_client() as client:
            before = client.answering.last_received
            await until(lambda: client.answering.last_received > before, "a sign of the client")
            ending = asyncio.create_task(end(client.ours))
            await asyncio.sleep(0)
            client.is_free.set()
            await ending
            await client.ours.wait_closed()

    run(work())


def test_of_a_server_that_answers_with_messages_all_the_same_one_answer_is_read_ahead() -> None:
    server = PolledServer(RESPONSE + (1).to_bytes(4) + written(Message.create("answered")))

    async def work() -> None:
        async with scripted(server) as address:
            settings = ConfigurationBuilder().add_transport("http").set(presence_interval=0.1).build()
            link = await open_link(address, Transport.HTTP, settings)
            for polls in (2, 4):  # one for messages, and one that shows that we are there
                assert isinstance(await link.next_event(), MessageReceived)
                await until(lambda polls=polls: len(server.times) == polls, "a sign of the client")
                await asyncio.sleep(0.35)
                assert len(server.times) == polls
                assert isinstance(await link.next_event(), MessageReceived)
            await link.abort()

    run(work())
