"""HTTP long polling of the server, as PROTOCOL.md has it under "Transports, client and server"."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest
from structlog.testing import capture_logs

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.tengi.protocol import Message, Packet, PollingResponse
from silverfold.connectors.tengi.protocol.decoder import Decoder
from silverfold.connectors.tengi.protocol.events import Peer
from silverfold.connectors.tengi.server import Connection
from silverfold.connectors.tengi.transports.server_polling import ServerPollingLink
from tests.connectors.tengi.client.test_connection import Recorder
from tests.support.polling import until
from tests.support.tengi.pairs import Inbox, port_of, run, serving
from tests.support.tengi.raw_peer import (
    HANDSHAKE,
    body_of,
    exchange,
    http_handshake,
    java_post,
    packet_of,
    poll_of,
    raw,
    read_all,
)


def bodies(answer: bytes) -> list[object]:
    """Bodies of the messages that a poll's answer brings."""
    decoder = Decoder(body_of(answer), at=19)
    message = decoder.read_message()
    decoder.check_end()
    assert isinstance(message.body, PollingResponse)
    return [each.body for each in message.body.messages]


class Served:
    """The server's connections as they come."""

    def __init__(self) -> None:
        self.connections: asyncio.Queue[Connection] = asyncio.Queue()

    def __call__(self, connection: Connection) -> None:
        self.connections.put_nowait(connection)


def test_a_handshake_of_javas_client_is_answered_and_the_socket_closed() -> None:
    async def work() -> bytes:
        async with serving() as server:
            return await exchange(port_of(server), java_post(HANDSHAKE))

    answer = run(work())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"content-type: application/tengi",
        b"content-length: 46",
        b"connection: close",
    ]
    assert (body[:3], body[19:]) == (b"\1\xff\x9b", HANDSHAKE[1:])


def test_polls_bring_what_is_queued_in_order_or_come_back_empty() -> None:
    served = Served()

    async def work() -> None:
        async with serving(served, poll_wait=0.05) as server:
            port = port_of(server)
            connection_id = await http_handshake(port)
            connection = await served.connections.get()
            assert connection.id == connection_id
            assert len(body_of(await exchange(port, java_post(poll_of(connection_id))))) == 47
            for number in range(500):
                await connection.write_object(number)
            assert bodies(await exchange(port, java_post(poll_of(connection_id)))) == list(range(500))

    run(work())


def test_a_poll_is_answered_as_soon_as_a_message_comes() -> None:
    served = Served()

    async def work() -> None:
        async with serving(served, poll_wait=50) as server:
            connection_id = await http_handshake(port_of(server))
            connection = await served.connections.get()
            poll = asyncio.create_task(exchange(port_of(server), java_post(poll_of(connection_id))))
            await asyncio.sleep(0.05)
            await connection.write_object("now")
            assert bodies(await poll) == ["now"]

    run(work())


def test_a_second_poll_ends_the_first() -> None:
    served = Served()

    async def work() -> None:
        async with serving(served, poll_wait=50) as server:
            connection_id = await http_handshake(port_of(server))
            connection = await served.connections.get()
            first, second = (
                asyncio.create_task(exchange(port_of(server), java_post(poll_of(connection_id)))) for _ in range(2)
            )
            assert bodies(await first) == []
            await connection.write_object("for the second")
            assert bodies(await second) == ["for the second"]

    run(work())


def test_an_answer_has_a_limit_that_only_one_large_message_exceeds() -> None:
    served = Served()

    async def work() -> None:
        async with serving(served, max_poll_answer=1000, poll_wait=0.05) as server:
            connection_id = await http_handshake(port_of(server))
            connection = await served.connections.get()
            for size in (300, 300, 300, 300, 2000, 1):
                await connection.write_object(b"x" * size)
            answers = []
            while answer := bodies(await exchange(port_of(server), java_post(poll_of(connection_id)))):
                answers.append([len(each) for each in answer])  # type: ignore[arg-type]  # bytes, all of them
            assert answers == [[300, 300], [300, 300], [2000], [1]]

    run(work())


def test_a_poll_whose_client_has_left_swallows_nothing() -> None:
    served = Served()

    async def work() -> None:
        async with serving(served, poll_wait=50) as server:
            connection_id = await http_handshake(port_of(server))
            connection = await served.connections.get()
            async with raw(port_of(server)) as leaving:
                await leaving.send(java_post(poll_of(connection_id)))
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
            await connection.write_object("still there")
            assert bodies(await exchange(port_of(server), java_post(poll_of(connection_id)))) == ["still there"]

    run(work())


def test_messages_of_an_answer_that_is_not_taken_are_queued_again_in_order() -> None:
    """The client asks, and resets the connection before it has read an answer larger than the system's buffers."""
    served = Served()
    large = [bytes([number]) * (1 << 20) for number in range(12)]

    async def work() -> None:
        async with serving(served, max_poll_answer=16 << 20, queue_bytes=16 << 20) as server:
            connection_id = await http_handshake(port_of(server))
            connection = await served.connections.get()
            for each in large:
                await connection.write_object(each)
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server), limit=1024)
            writer.write(java_post(poll_of(connection_id)))
            await reader.readexactly(20)
            writer.transport.abort()
            await asyncio.sleep(0.05)
            await connection.write_object("last")
            found: list[object] = []
            while len(found) < 13:
                found += bodies(await exchange(port_of(server), java_post(poll_of(connection_id))))
            assert found == [*large, "last"]

    run(work())


def test_an_answer_that_is_taken_late_comes_once() -> None:
    """The system's buffers are as small as a network's: the answer is written in parts."""
    served = Served()

    async def work() -> None:
        async with serving(served, poll_wait=0.05) as server:
            for each in server._listening._listening:  # type: ignore[union-attr]  # it listens
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 43_520)
            connection_id = await http_handshake(port_of(server))
            connection = await served.connections.get()
            for each in "abc":
                await connection.write_object(each * 120_000)
                assert bodies(await exchange(port_of(server), java_post(poll_of(connection_id)))) == [each * 120_000]
            assert bodies(await exchange(port_of(server), java_post(poll_of(connection_id)))) == []

    run(work())


def test_a_poll_that_wants_no_messages_takes_none_and_ends_no_other_poll() -> None:
    served = Served()

    async def work() -> None:
        async with serving(served, poll_wait=50) as server:
            port, connection_id = port_of(server), await http_handshake(port_of(server))
            connection = await served.connections.get()
            poll = java_post(poll_of(connection_id))
            minimal = poll.replace(b"user-agent", b"prefer: wait=1, Return=minimal\r\nuser-agent")
            first = asyncio.create_task(exchange(port, poll))
            await asyncio.sleep(0.05)
            assert bodies(await exchange(port, minimal)) == []
            await connection.write_object("for the first")
            assert bodies(await first) == ["for the first"]
            await connection.write_object("for the next")
            assert bodies(await exchange(port, minimal)) == []
            assert bodies(await exchange(port, poll)) == ["for the next"]

    run(work())


def test_posts_are_answered_with_204_and_several_may_use_one_socket() -> None:
    received: list[object] = []

    def on_connect(connection: Connection) -> None:
        connection.add_message_listener(lambda _, message: received.append(message.body))

    async def work() -> bytes:
        async with serving(on_connect) as server:
            connection_id = await http_handshake(port_of(server))
            async with raw(port_of(server)) as peer:
                for number in range(3):
                    post = java_post(packet_of(connection_id, number))
                    await peer.send(post.replace(b"connection: close\r\n", b"") if number < 2 else post)
                return await read_all(peer)

    assert run(work()) == 2 * b"HTTP/1.1 204 No Content\r\n\r\n" + (
        b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"
    )
    assert received == [0, 1, 2]


def test_a_post_of_a_java_client_is_taken_without_an_answer() -> None:
    async def work() -> None:
        served = Served()
        async with serving(served, peer=Peer.JAVA) as server:
            connection_id = await http_handshake(port_of(server))
            inbox = Inbox(await served.connections.get())
            packet = Packet("p", {"k": "v"})
            assert await exchange(port_of(server), java_post(packet_of(connection_id, packet))) == b""
            assert await inbox.get() == packet

    run(work())


def test_a_connection_ends_when_no_request_comes() -> None:
    recorder = Recorder()

    async def work() -> bytes:
        async with serving(lambda each: each.add_connection_listener(recorder), expire_after=0.1) as server:
            connection_id = await http_handshake(port_of(server))
            await recorder.closed.wait()
            return await exchange(port_of(server), java_post(poll_of(connection_id)))

    assert run(work()).startswith(b"HTTP/1.1 403 ")
    assert recorder.events == ["connected", "disconnected", "closed"]


def test_what_an_expiry_drops_is_counted_in_the_log_and_so_is_who_ended_the_connection() -> None:
    async def on_connect(connection: Connection) -> None:
        for number in range(3):
            await connection.write_object(number)

    async def work() -> list[Any]:
        with capture_logs() as logs:
            async with serving(on_connect, expire_after=0.1) as server:
                connection_id = await http_handshake(port_of(server))
                await until(lambda: any(each["event"] == "connection_closed" for each in logs), "its end")
        return [each for each in logs if each.get("connection") == str(connection_id)]

    logs = {each["event"]: each for each in run(work())}
    dropped, closed = logs["messages_dropped"], logs["connection_closed"]
    assert (dropped["log_level"], dropped["count"]) == ("warning", 3)
    assert dropped["reason"] == closed["reason"] == "no request came for 0.1 s"
    assert closed["by"] == "us"


def test_a_client_is_there_while_a_request_is_served_and_for_a_while_after() -> None:
    served = Served()

    async def work() -> None:
        async with serving(served, poll_wait=50) as server:
            connection_id = await http_handshake(port_of(server))
            connection = await served.connections.get()
            link = connection._link
            assert isinstance(link, ServerPollingLink)
            poll = asyncio.create_task(exchange(port_of(server), java_post(poll_of(connection_id))))
            await until(lambda: link._served, "the poll")
            link.last_received -= 100  # as if it had come long ago, and any before
            link._served_until -= 100
            link._expire()
            await connection.write_object("in the end")
            assert bodies(await poll) == ["in the end"]
            await until(lambda: not link._served, "its end")
            link._expire()
            await connection.write_object("dropped")
            link._served_until -= 100
            link._expire()
            with pytest.raises(SourceUnavailable):
                await connection.write_object("too late")

    run(work())


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (java_post(HANDSHAKE).replace(b"POST", b"GET"), 405),
        (java_post(HANDSHAKE).replace(b"POST", b"PUT"), 405),
        (java_post(HANDSHAKE).replace(b"/channel", b"/channel?x"), 403),
        (java_post(HANDSHAKE).replace(b"/tengi\r", b"/tengi; charset=utf-8\r"), 406),
        (java_post(HANDSHAKE).replace(b"content-type", b"x"), 406),
        (java_post(HANDSHAKE).replace(b"content-length", b"x"), 411),
        (java_post(b"0\r\n\r\n").replace(b"content-length: 5", b"transfer-encoding: chunked"), 411),
        (java_post(b"").replace(b"length: 0", b"length: 99999999"), 413),
        (java_post(b"\0" * 100_000), 413),
        (java_post(packet_of(bytes(16), 1)), 403),
    ],
    ids=[
        "GET",
        "PUT",
        "a query",
        "a charset",
        "no type",
        "no length",
        "chunked",
        "a large length",
        "a large body",
        "no connection",
    ],
)
def test_requests_that_are_not_allowed_have_their_status(request_: bytes, status: int) -> None:
    async def work() -> bytes:
        async with serving() as server:
            return await exchange(port_of(server), request_)

    assert run(work()).startswith(b"HTTP/1.1 %d " % status)


def test_a_bad_packet_costs_a_request_and_the_listener_learns_of_it() -> None:
    recorder = Recorder()

    async def work() -> None:
        async with serving(lambda each: each.add_connection_listener(recorder), poll_wait=0.05) as server:
            connection_id = await http_handshake(port_of(server))
            bad = packet_of(connection_id, 1)[:-1]
            assert (await exchange(port_of(server), java_post(bad))).startswith(b"HTTP/1.1 400 ")
            post = java_post(packet_of(connection_id, Message.create("good")))
            assert (await exchange(port_of(server), post)).startswith(b"HTTP/1.1 204 ")
            assert bodies(await exchange(port_of(server), java_post(poll_of(connection_id)))) == []

    run(work())
    assert recorder.events[:3] == ["connected", "exception", "message"]


def test_a_peer_that_shook_hands_and_is_gone_keeps_nobody_out() -> None:
    served = Served()

    async def work() -> None:
        async with serving(served, "http", max_connections=1) as server:
            with socket.create_connection(("127.0.0.1", port_of(server))) as ghost:
                ghost.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it resets
                ghost.sendall(java_post(HANDSHAKE))
            with capture_logs() as logs:
                while not any(each["event"] == "client_dropped" for each in logs):
                    await asyncio.sleep(0.01)
            assert "unknown" not in {each.get("client") for each in logs}
            assert await exchange(port_of(server), java_post(HANDSHAKE))
            assert served.connections.qsize() == 1

    run(work())


def test_of_two_handshakes_that_come_at_once_one_is_the_last_that_fits() -> None:
    async def work() -> list[bytes]:
        async with serving(None, "http", max_connections=1) as server:
            address = ("127.0.0.1", port_of(server))
            clients = [await asyncio.to_thread(socket.create_connection, address) for _ in range(2)]
            await asyncio.sleep(0.05)  # both are accepted: the requests are found in one turn of the loop
            for client in clients:
                client.sendall(java_post(HANDSHAKE))
            answers = [await asyncio.to_thread(client.recv, 12) for client in clients]
            for client in clients:
                client.close()
            return sorted(answers)

    assert run(work()) == [b"", b"HTTP/1.1 200"]
