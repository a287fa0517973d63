"""The client's polls over HTTP, of servers that do not wait for messages, or do not answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from silverfold.conf.errors import RemoteProtocolError, SourceUnavailable, TruncatedMessage
from silverfold.connectors.common.transport import Address
from silverfold.connectors.tengi.protocol.events import BadFrame, Transport
from silverfold.connectors.tengi.protocol.values import Message
from silverfold.connectors.tengi.transports.configuration import ConfigurationBuilder
from silverfold.connectors.tengi.transports.dialing import open_link
from silverfold.connectors.tengi.transports.link import Link
from tests.support.peers import serving
from tests.support.tengi.pairs import run
from tests.support.tengi.polled_server import NOTHING, RESPONSE, PolledServer
from tests.support.tengi.raw_peer import packet_of

TYPE = b"content-type: application/tengi\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\n" + TYPE + b"transfer-encoding: chunked\r\n\r\n1\r\n\1\r\n0\r\n\r\n"
EMPTY = b"HTTP/1.1 200 OK\r\n" + TYPE + b"content-length: 0\r\n\r\n"
"""Answers as a proxy may re-frame them."""


async def linked(address: Address) -> Link:
    return await open_link(address, Transport.HTTP, ConfigurationBuilder().add_transport("http").build())


@pytest.mark.parametrize("answer", [NOTHING, RESPONSE + b"\x7f\xff\xff\xff"], ids=["nothing", "nothing that is read"])
def test_a_server_that_answers_in_vain_is_not_polled_without_pause(answer: bytes) -> None:
    server = PolledServer(answer)

    async def work() -> None:
        async with serving(server) as address:
            link = await linked(address)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.35):
                    while True:
                        await link.next_event()
            await link.abort()

    run(work())
    pauses = [after - before for before, after in zip(server.times, server.times[1:], strict=False)]
    assert pauses
    assert min(pauses) > 0.08


def test_an_answer_may_take_longer_than_the_limit_as_long_as_bytes_of_it_come() -> None:
    server = PolledServer(pause=0.05)

    async def work() -> None:
        async with serving(server) as address:
            settings = ConfigurationBuilder().add_transport("http").build()
            link = await open_link(address, Transport.HTTP, replace(settings, request_timeout=0.3))
            moments = set[float]()
            event = asyncio.create_task(link.next_event())
            async with asyncio.timeout(20):
                while len(server.times) < 2:  # the next poll comes behind the answer to the first
                    moments.add(link.last_received)
                    await asyncio.sleep(0.02)
            assert len(moments) > 5
            event.cancel()
            await link.abort()

    run(work())


def test_a_post_that_is_closed_without_an_answer_may_be_lost_and_ends_the_connection() -> None:
    class Closing(PolledServer):
        async def post(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pass

    async def work() -> None:
        async with serving(Closing()) as address:
            link = await linked(address)
            await link.send(Message.create("lost"))
            with pytest.raises(SourceUnavailable, match="under a post, which may be lost"):
                await link.next_event()  # answers to polls without messages are none
            await link.abort()

    run(work())


def test_what_is_no_answer_to_a_poll_is_read_once_and_ends_the_connection() -> None:
    server = PolledServer(b"\1")

    async def work() -> None:
        async with serving(server) as address:
            link = await linked(address)
            assert isinstance(await link.next_event(), BadFrame)
            with pytest.raises(TruncatedMessage):
                await link.next_event()
            await link.abort()

    run(work())
    assert len(server.times) == 1


@pytest.mark.parametrize(
    ("poll", "post", "error"),
    [
        (CHUNKED, b"", "bad_http: {}: a transfer encoding"),
        (EMPTY, b"", "no_packet: {} answers with status 200"),
        (b"", b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n", "bad_http: {}: a transfer encoding"),
    ],
    ids=["chunked", "empty", "a post"],
)
def test_what_a_proxy_made_of_an_answer_is_told_with_the_address_and_is_no_bad_frame(
    poll: bytes, post: bytes, error: str
) -> None:
    class Reframed(PolledServer):
        def framed(self) -> bytes:
            return poll or super().framed()

        async def post(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(post)
            await super().post(reader, writer)

    async def work() -> None:
        async with serving(Reframed()) as address:
            link = await linked(address)
            await link.send(Message.create("posted"))
            with pytest.raises(RemoteProtocolError, match=error.format(address)):
                await link.next_event()
            await link.abort()

    run(work())


@pytest.mark.parametrize(
    ("transport", "answer", "error"),
    [
        ("websocket", b"HTTP/1.1 503 x\r\n\r\n", "no_upgrade: {}: status 503"),
        ("websocket", b"HTTP/1.1 101 x\r\nupgrade: websocket\r\n\r\n", "no_upgrade: {}: the upgrade answers another"),
        ("http", b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000000\r\n\r\n", "bad_http: {}: .*more than 15 digits"),
        ("http", b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n", "bad_http: {}: a length that is no number"),
        ("http", CHUNKED, "bad_http: {}: a transfer encoding, .*: a content-length is needed"),
        ("http", EMPTY, "no_packet: {} answers with status 200 and a content-length of 0, .*proxy"),
        ("http", b"HTTP/1.0 200 OK\r\n" + TYPE + b"\r\n", "no_packet: {} answers with status 200 and no content-len"),
        ("tcp", packet_of(bytes(16), "x"), "no_handshake: {}: a message"),
    ],
    ids=[
        *("503", "another key", "a length too long", "a length that is none"),
        *("chunked", "empty", "without a length", "a packet"),
    ],
)
def test_what_is_wrong_with_an_answer_to_a_handshake_is_told_with_the_address(
    transport: str, answer: bytes, error: str
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.write_eof()
        await reader.read()

    async def work() -> None:
        async with serving(greet) as address:
            settings = ConfigurationBuilder().add_transport(transport).build()
            with pytest.raises(RemoteProtocolError, match=error.format(address)) as raised:
                await open_link(address, Transport(transport), settings)
            assert str(raised.value).count(str(address)) == 1

    run(work())


def test_an_error_of_http_names_who_answers_and_what_it_means() -> None:
    async def forbid(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        writer.write_eof()
        await reader.read()

    async def work() -> None:
        async with serving(forbid) as address:
            with pytest.raises(
                RemoteProtocolError, match=f"{address} answers with status 403 .* does not know the conn"
            ):
                await linked(address)

    run(work())
