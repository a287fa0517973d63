"""``peer = "java"``: limits of the Java implementation, and a server that shows its faults."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from silverfold.conf.errors import OversizedMessage, SilverfoldError, SourceUnavailable, TruncatedMessage
from silverfold.connectors.common.transport import Address
from silverfold.connectors.tengi.client import Connection
from silverfold.connectors.tengi.protocol import Message
from silverfold.connectors.tengi.protocol.events import BadFrame, Peer, Transport
from silverfold.connectors.tengi.server import ConfigurationBuilder, Faults
from silverfold.connectors.tengi.transports.dialing import open_first_link, open_link
from silverfold.connectors.tengi.transports.frames import Opcode, encode_frame
from tests.connectors.tengi.client.test_connection import Recorder, echo
from tests.support.tengi.pairs import TRANSPORTS, Inbox, connected, port_of, run, serving
from tests.support.tengi.raw_peer import HANDSHAKE, UPGRADE, raw, read_all

STREAMS = ("tcp", "websocket")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_small_packets_go_both_ways_when_each_takes_the_other_for_java(transport: str) -> None:
    async def work() -> None:
        async with (
            serving(echo, peer=Peer.JAVA, poll_wait=0.05) as server,
            connected(server, transport, peer=Peer.JAVA, write_gap=0.001) as connection,
        ):
            inbox = Inbox(connection)
            for number in range(20):
                await connection.write_object(number)
            assert await inbox.take(20) == list(range(20))

    run(work())


@pytest.mark.parametrize("transport", STREAMS)
def test_tcp_and_websocket_to_java_warn_at_the_start_and_for_packets_that_may_be_cut(transport: str) -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, transport, peer=Peer.JAVA) as connection:
            await connection.write_object(b"x" * 250)

    with capture_logs() as logs:
        run(work())
    warned = [each for each in logs if each["log_level"] == "warning"]
    assert [each["event"] for each in warned] == ["java_transport", "packet_may_be_cut"]
    assert warned[1]["size"] == 39 + 6 + 250


@pytest.mark.parametrize(("transport", "size"), [("tcp", 400), ("websocket", 65536)])
def test_what_java_would_not_take_is_not_sent(transport: str, size: int) -> None:
    async def work() -> None:
        async with serving(echo) as server, connected(server, transport, peer=Peer.JAVA) as connection:
            with pytest.raises(OversizedMessage):
                await connection.write_object(b"x" * (size - 44))

    run(work())


def test_a_handshake_that_java_would_not_take_over_tcp_goes_over_the_next_transport() -> None:
    async def work() -> Transport:
        async with serving(echo) as server:
            builder = ConfigurationBuilder().add_transport("tcp", "http", port=port_of(server))
            settings = builder.set(peer=Peer.JAVA, handshake={"token": "t" * 500}).build()
            link = await open_first_link("127.0.0.1", settings)
            await link.abort()
            return link.transport

    assert run(work()) is Transport.HTTP


@pytest.mark.parametrize("transports", [("tcp",), ("tcp", "websocket", "http")])
def test_a_handshake_that_fits_no_transport_is_our_mistake_however_many_there_are(transports: tuple[str, ...]) -> None:
    settings = ConfigurationBuilder().add_transport(*transports, port=1).set(handshake={"token": "t" * 70_000}).build()
    with pytest.raises(OversizedMessage):
        run(open_first_link("127.0.0.1", settings))


def test_a_handshake_that_fits_some_transport_may_be_tried_again() -> None:
    builder = ConfigurationBuilder().add_transport("tcp", "http", port=1)
    settings = builder.set(peer=Peer.JAVA, handshake={"token": "t" * 500}).build()
    with pytest.raises(SourceUnavailable, match=r"tcp: too_large: .*; http: 127"):
        run(open_first_link("127.0.0.1", settings))


def test_a_server_of_java_clients_answers_polls_of_a_megabyte_at_most() -> None:
    errors: list[type[Exception]] = []

    async def on_connect(connection: Connection) -> None:
        try:
            await connection.write_object(b"x" * (1 << 20))
        except SilverfoldError as error:
            errors.append(type(error))
        await connection.write_object("end")

    async def work() -> None:
        async with serving(on_connect, peer=Peer.JAVA) as server, connected(server, "http") as connection:
            assert await Inbox(connection).get() == "end"

    run(work())
    assert errors == [OversizedMessage]


@pytest.mark.parametrize("transport", STREAMS)
def test_a_packet_that_java_cuts_is_a_bad_frame(transport: str) -> None:
    async def on_connect(connection: Connection) -> None:
        await connection.write_object("whole")
        await connection.write_object("cut" * 100)
        await connection.write_object("behind")

    async def work() -> list[object]:
        async with serving(on_connect, faults=Faults(cut=256)) as server:
            settings = ConfigurationBuilder().add_transport(transport).set(peer=Peer.JAVA).build()
            link = await open_link(Address("127.0.0.1", port_of(server)), Transport(transport), settings)
            try:
                return [await link.next_event() for _ in range(3 if transport == "websocket" else 2)]
            finally:
                await link.close()

    whole, cut, *behind = run(work())
    assert whole.body == "whole"
    assert isinstance(cut, BadFrame)
    assert isinstance(cut.error, TruncatedMessage)
    assert cut.raw[:1] == b"\1"
    assert [each.body for each in behind] == (["behind"] if transport == "websocket" else [])


def test_packets_that_are_shuffled_all_come() -> None:
    async def on_connect(connection: Connection) -> None:
        for number in range(200):
            await connection.write_object(number)

    async def work() -> list[int]:
        async with serving(on_connect, faults=Faults(shuffle=True)) as server, connected(server, "tcp") as connection:
            return await Inbox(connection).take(200)

    numbers = run(work())
    assert numbers != list(range(200))
    assert sorted(numbers) == list(range(200))


def test_a_server_that_takes_one_packet_of_a_read_loses_the_next_and_a_gap_between_writes_helps() -> None:
    async def received(peer: Peer) -> set[object]:
        found: set[object] = set()

        def on_connect(connection: Connection) -> None:
            connection.add_message_listener(lambda _, message: found.add(message.body))

        async with (
            serving(on_connect, faults=Faults(one_packet_per_read=True)) as server,
            connected(server, "tcp", peer=peer) as connection,
        ):
            for number in range(5):
                await connection.write_object(number)
            await connection.disconnect()
            while server.connections:
                await asyncio.sleep(0.01)
        return found

    assert run(received(Peer.TENGI)) == {0}
    assert run(received(Peer.JAVA)) == {0, 1, 2, 3, 4}


def test_a_server_that_closes_on_a_ping_does_and_another_answers_it() -> None:
    ping = encode_frame(Opcode.PING, b"?", mask=bytes(4))
    opening = UPGRADE + encode_frame(Opcode.BINARY, HANDSHAKE, mask=bytes(4))
    close = encode_frame(Opcode.CLOSE, b"\x03\xe8", mask=bytes(4))

    async def answered(faults: Faults) -> bytes:
        async with serving(echo, faults=faults) as server, raw(port_of(server)) as socket:
            await socket.send(opening + ping + close)
            return await read_all(socket)

    assert b"\x8a\x01?" in run(answered(Faults()))
    assert b"\x8a\x01?" not in run(answered(Faults(close_on_ping=True)))


def test_a_bad_frame_on_websocket_costs_one_frame_and_is_an_event() -> None:
    recorder = Recorder()

    async def on_connect(connection: Connection) -> None:
        await connection.write_object("cut" * 100)
        await connection.write_object(Message.create("behind"))

    async def work() -> None:
        async with (
            serving(on_connect, faults=Faults(cut=256)) as server,
            connected(server, "websocket", lambda each: each.add_connection_listener(recorder)) as connection,
        ):
            assert await Inbox(connection).get() == "behind"

    run(work())
    assert [type(each) for each in recorder.errors] == [TruncatedMessage]
