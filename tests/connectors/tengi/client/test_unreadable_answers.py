"""Requests whose answers cannot be read, on either side: the peer has types that we have not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from silverfold.conf.errors import InvalidValue, SourceUnavailable, WireError
from silverfold.connectors.tengi.client import Connection
from silverfold.connectors.tengi.protocol import EnumValue, Message, Packet, TypeRegistry
from silverfold.connectors.tengi.protocol.errors import UnknownType
from tests.connectors.tengi.client.test_connection import Recorder
from tests.support.polling import until
from tests.support.tengi.pairs import TRANSPORTS, Inbox, connected, run, serving


class Newer(Packet):
    type_id = 77


THEIRS = TypeRegistry(Newer, enums={10: ["OLD", "NEW"]})
OURS = TypeRegistry(enums={10: ["OLD"]})
CONSTANT = Packet("a", {"e": EnumValue(10, "NEW")})
"""Its end is found."""
TYPE = Packet("a", {"e": Newer("n")})
"""Its end is not found."""


@asynccontextmanager
async def asking(transport: str, **settings: Any) -> AsyncIterator[tuple[Connection, Recorder]]:
    """Connect to a server that answers with a constant, a type or a text that it is asked for."""

    async def answer(connection: Connection, message: Message) -> None:
        await connection.answer(message, {"constant": CONSTANT, "type": TYPE}.get(message.body, message.body))

    async with (
        serving(lambda each: each.add_message_listener(answer), types=THEIRS, **settings) as server,
        connected(server, transport, types=OURS, **settings) as connection,
    ):
        recorder = Recorder()
        connection.add_connection_listener(recorder)
        yield connection, recorder


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_answer_that_cannot_be_read_is_the_error_of_its_request(transport: str) -> None:
    async def work() -> None:
        async with asking(transport) as (connection, recorder):
            with pytest.raises(InvalidValue, match="bad_constant"):
                await connection.request("constant")
            assert (await connection.request("there")).body == "there"
            assert recorder.errors == []

    run(work())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_so_is_one_whose_end_is_not_found_and_listeners_learn_of_it_too(transport: str) -> None:
    async def work() -> None:
        async with asking(transport) as (connection, recorder):
            with pytest.raises(UnknownType):
                await connection.request("type")
            await until(lambda: recorder.errors, "its error")
            assert [type(each) for each in recorder.errors] == [UnknownType]
            if transport == "tcp":  # nobody knows where the next packet begins
                await recorder.closed.wait()
                with pytest.raises(SourceUnavailable):
                    await connection.request("there")
            else:
                assert (await connection.request("there")).body == "there"

    run(work())


def test_an_answer_that_comes_too_late_and_cannot_be_read_is_no_error_of_the_connection() -> None:
    async def work() -> None:
        asked: list[Message] = []

        def collect(connection: Connection) -> None:
            connection.add_message_listener(lambda _, message: asked.append(message))

        async with serving(collect, types=THEIRS) as server, connected(server, "tcp", types=OURS) as connection:
            recorder, inbox = Recorder(), Inbox(connection)
            connection.add_connection_listener(recorder)
            with pytest.raises(TimeoutError):
                await connection.request("question", timeout=0.05)
            await until(lambda: asked, "the question")
            (theirs,) = server.connections
            await theirs.answer(asked[0], CONSTANT)
            await theirs.write_object("a message")
            assert await inbox.get() == "a message"
            assert recorder.errors == []

    run(work())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_that_asks_its_client_gets_the_error_too(transport: str) -> None:
    errors: list[Exception] = []

    async def ask(connection: Connection) -> None:
        try:
            await connection.request("question")
        except WireError as error:
            errors.append(error)

    async def answer(connection: Connection, message: Message) -> None:
        await connection.answer(message, CONSTANT)

    async def work() -> None:
        async with (
            serving(ask, types=OURS) as server,
            connected(server, transport, lambda each: each.add_message_listener(answer), types=THEIRS),
        ):
            await until(lambda: errors, "the error")

    run(work())
    assert [type(each) for each in errors] == [InvalidValue]
