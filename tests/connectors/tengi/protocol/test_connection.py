"""Both sides of a connection: what may come when, in whatever pieces, and what a violation costs."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from silverfold.conf.errors import (
    InvalidValue,
    LocalProtocolError,
    OversizedMessage,
    ProtocolError,
    RemoteProtocolError,
    TruncatedMessage,
    WireError,
)
from silverfold.connectors.tengi.protocol import Handshake, Identifier, Int, Message, Packet, PollingResponse
from silverfold.connectors.tengi.protocol.connection import (
    ClientConnection,
    Connection,
    ServerConnection,
    State,
    encode_message,
    read_head,
)
from silverfold.connectors.tengi.protocol.errors import UnknownType
from silverfold.connectors.tengi.protocol.events import (
    BadFrame,
    Closed,
    HandshakeReceived,
    MessageReceived,
    Peer,
    PollAnswered,
    PollReceived,
    Transport,
)
from silverfold.connectors.tengi.protocol.heads import MAGIC
from silverfold.connectors.tengi.protocol.scanner import PacketScanner
from tests.support.tengi.vectors import TYPES, VECTORS, Point, Row, SubPacket, written

PACKETS = VECTORS["packets_on_a_connection"]["vectors"]
ANSWER = bytes.fromhex(PACKETS[2]["hex"])
REQUEST = bytes.fromhex(PACKETS[0]["hex"])
ID, OTHER = Identifier.parse(PACKETS[2]["connection_id"]), Identifier(bytes(16))
BODIES = [
    "x" * 40_000,
    Packet("p", {"a": Int(1), "b": "\U0001f600é\0", "c": b"\1" * 300, "d": Packet("", {"": 1.5})}),
    Row(5, "n", Packet("n", {"k": Point(1, 2)}), (True, False)),
    SubPacket("s", 9),
    7,
    Point(3, 4),
]
MESSAGES = [Message(Identifier(bytes([number] * 16)), body) for number, body in enumerate(BODIES)]


def packet(message: Message, connection_id: Identifier = ID) -> bytes:
    return b"\1" + written(connection_id) + written(message)


def drain(connection: Connection) -> list[Any]:
    events: list[Any] = []
    while (event := connection.next_event()) is not None:
        events.append(event)
        if isinstance(event, BadFrame) and connection.state is State.CLOSED:
            break
    return events


def events_of(connection: Connection, octets: bytes, size: int, *, eof: bool = True) -> list[Any]:
    events: list[Any] = []
    for start in range(0, len(octets), size):
        connection.receive(octets[start : start + size])
        events += drain(connection)
        if connection.state is State.CLOSED:
            return events
    if eof:
        connection.receive_eof()
        events += drain(connection)
    return events


def client(transport: Transport = Transport.TCP, **settings: Any) -> ClientConnection:
    connection = ClientConnection(transport, types=TYPES, **settings)
    connection.send_handshake()
    return connection


def opened(transport: Transport = Transport.TCP, **settings: Any) -> ClientConnection:
    connection = client(transport, **settings)
    connection.receive(ANSWER)
    assert connection.next_event() == HandshakeReceived(ID, {})
    return connection


def opened_server(transport: Transport = Transport.TCP, **settings: Any) -> ServerConnection:
    connection = ServerConnection(transport, types=TYPES, **settings)
    connection.receive(REQUEST if transport is Transport.TCP else REQUEST[5:])
    assert connection.next_event() == HandshakeReceived(None, {})
    assert connection.accept(ID) == ANSWER
    return connection


def test_a_client_sends_the_recorded_packets() -> None:
    assert ClientConnection(Transport.TCP).send_handshake() == REQUEST
    assert ClientConnection(Transport.HTTP).send_handshake() == bytes.fromhex(PACKETS[1]["hex"])
    message = Message(Identifier.parse("04152637-4859-4A7B-8C9D-AEBFD0E1F203"), Packet("request", {"name": "Steven"}))
    assert opened().send_message(message) == bytes.fromhex(PACKETS[3]["hex"])
    poll = Identifier.parse("05162738-495A-4B7C-8D9E-AFC0D1E2F304")
    assert opened(Transport.HTTP).send_poll(poll) == bytes.fromhex(PACKETS[4]["hex"])


def test_a_server_answers_with_the_recorded_packets() -> None:
    server = opened_server(Transport.HTTP)
    server.receive(bytes.fromhex(PACKETS[4]["hex"]))
    assert server.next_event() == PollReceived(Identifier.parse("05162738-495A-4B7C-8D9E-AFC0D1E2F304"))
    answer = server.send_poll_answer(Identifier.parse("08192A3B-4C5D-4E7F-90A1-B2C3D4E5F607"), [])
    assert answer == bytes.fromhex(PACKETS[5]["hex"])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, 1 << 20])
def test_events_do_not_depend_on_where_chunks_end(size: int) -> None:
    stream = ANSWER + b"".join(map(packet, MESSAGES))
    events = events_of(client(), stream, size)
    assert events[0] == HandshakeReceived(ID, {})
    assert [event.message for event in events[1:-1]] == MESSAGES
    assert [event.raw for event in events[1:-1]] == list(map(packet, MESSAGES))
    assert isinstance(events[-1], Closed)


@pytest.mark.parametrize("vector", PACKETS, ids=lambda each: each["name"])
def test_a_shorter_packet_asks_for_more(vector: dict[str, Any]) -> None:
    octets = bytes.fromhex(vector["hex"]).removeprefix(b"TeNgI")
    scanner = PacketScanner()
    for octet in octets[:-1]:
        scanner.receive(bytes([octet]))
        assert scanner.next_packet() is None
    scanner.receive(octets[-1:])
    assert scanner.next_packet() == octets


def test_a_packet_that_ends_too_early_is_an_error_at_the_end_only() -> None:
    events = events_of(opened(), packet(MESSAGES[1])[:-1], 7)
    assert [type(event) for event in events] == [BadFrame]
    assert isinstance(events[0].error, TruncatedMessage)
    assert events[0].raw == packet(MESSAGES[1])[:-1]


def test_a_bad_packet_ends_a_stream_and_costs_none_before_it() -> None:
    connection = opened()
    bad = b"\1" + written(ID) + b"\x03\xe7" + b"rest"
    events = events_of(connection, packet(MESSAGES[4]) + bad, 1 << 20)
    assert events[0].body == 7
    assert isinstance(events[1].error, UnknownType)
    assert (events[1].error.type_id, events[1].error.offset, events[1].raw) == (999, 19, bad)
    with pytest.raises(UnknownType):
        connection.next_event()


def test_a_bad_unit_costs_no_other() -> None:
    connection = opened(Transport.WEBSOCKET)
    for unit in (packet(MESSAGES[4])[:-1], packet(MESSAGES[4]) + b"x", packet(MESSAGES[4])):
        connection.receive(unit)
    events = drain(connection)
    assert [type(event) for event in events] == [BadFrame, BadFrame, MessageReceived]
    assert isinstance(events[0].error, TruncatedMessage)
    assert isinstance(events[1].error, InvalidValue)
    assert events[1].raw == packet(MESSAGES[4]) + b"x"


@pytest.mark.parametrize("peer", Peer)
@pytest.mark.parametrize("length", [200, 220, 300, 5_000, 40_000])
@pytest.mark.parametrize("is_server", [False, True])
def test_a_packet_that_breaks_off_where_java_cuts_is_cut_and_names_the_settings(
    peer: Peer, length: int, is_server: bool
) -> None:
    cut = packet(Message(OTHER, Packet("p", {"a": "x" * length, "b": 1})))[:256]
    streaming, framed = (
        opened_server(transport, peer=peer) if is_server else opened(transport, peer=peer)
        for transport in (Transport.TCP, Transport.WEBSOCKET)
    )
    streaming.receive(packet(MESSAGES[4]) + cut + packet(MESSAGES[4]))
    framed.receive(cut)
    whole, on_stream = drain(streaming)
    assert whole.body == 7
    for event in (on_stream, *drain(framed)):
        assert isinstance(event.error, TruncatedMessage)
        assert str(event.error).startswith("cut at byte 256: a packet breaks off behind 256 bytes, where Java cuts")
        assert 'transport = "http" with peer = "java"' in str(event.error)


def test_a_text_does_not_swallow_the_packet_behind_the_one_that_is_cut() -> None:
    connection = opened()
    swallowing = packet(Message(OTHER, "x" * (256 - 49 + 58)))
    connection.receive(swallowing[:256] + packet(MESSAGES[4]) * 20)
    (event,) = drain(connection)
    assert event.error.reason == "cut"


def test_the_last_packet_of_a_stream_is_cut_if_it_ends_where_java_cuts() -> None:
    cut, shorter = (events_of(opened(), packet(MESSAGES[1])[:size], 1 << 20) for size in (256, 255))
    assert [each.error.reason for each in (*cut, *shorter)] == ["cut", "truncated"]


def test_packets_of_which_one_ends_where_java_cuts_are_whole() -> None:
    whole = packet(Message(OTHER, b"x" * (256 - 19 - 20 - 6)))
    assert len(whole) == 256
    connection = opened()
    connection.receive(whole * 3 + packet(MESSAGES[1]))
    assert [type(event) for event in drain(connection)] == [MessageReceived] * 4


def test_a_post_that_ends_too_early_is_not_cut_for_java_cuts_none() -> None:
    connection = opened_server(Transport.HTTP)
    connection.receive(packet(MESSAGES[1])[:256])
    (event,) = drain(connection)
    assert event.error.reason == "truncated"


def test_bytes_behind_a_packet_of_java_are_counted() -> None:
    connection = opened(Transport.WEBSOCKET, peer=Peer.JAVA)
    connection.receive(packet(MESSAGES[4]) + b"xyz")
    (event,) = drain(connection)
    assert event.raw == packet(MESSAGES[4])
    assert connection.trailing_bytes == 3


def test_messages_of_an_answer_have_their_own_bytes_and_a_bad_one_costs_those_behind_it() -> None:
    connection = opened(Transport.HTTP)
    encoded = [encode_message(each, TYPES) for each in MESSAGES]
    answer = packet(Message(OTHER, PollingResponse(tuple(MESSAGES))))
    assert opened_server(Transport.HTTP).send_poll_answer(OTHER, encoded) == answer
    connection.receive(answer)
    (event,) = drain(connection)
    assert isinstance(event, PollAnswered)
    assert [each.raw for each in event.messages] == encoded
    assert [each.message for each in event.messages] == MESSAGES

    end = len(answer) - len(encoded[-1])
    connection.receive(answer[: end + 5])
    events = drain(connection)
    assert [each.raw for each in events[0].messages] == encoded[:-1]
    assert isinstance(events[1].error, TruncatedMessage)
    assert events[1].raw == encoded[-1][:5]


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (packet(MESSAGES[4], OTHER), "foreign_connection"),
        (ANSWER, "second_handshake"),
        (REQUEST[5:], "no_connection_id"),
        (b"\1" + written(ID) + written(7), "unexpected_object"),
    ],
)
@pytest.mark.parametrize("transport", [Transport.TCP, Transport.WEBSOCKET])
def test_what_is_not_allowed_ends_the_connection(transport: Transport, octets: bytes, reason: str) -> None:
    connection = opened(transport)
    connection.receive(octets)
    (event,) = drain(connection)
    assert isinstance(event.error, RemoteProtocolError)
    assert event.error.reason == reason
    with pytest.raises(RemoteProtocolError):
        connection.next_event()


@pytest.mark.parametrize("octets", [b"GET / HTTP/1.1", b"TeNgx", b"TeNgI" + packet(MESSAGES[4])])
def test_a_server_refuses_what_is_no_handshake(octets: bytes) -> None:
    (event,) = events_of(ServerConnection(Transport.TCP), octets, 1 << 20)
    assert isinstance(event.error, RemoteProtocolError)


def test_a_handshake_carries_values_both_ways() -> None:
    here, there = ClientConnection(Transport.TCP), ServerConnection(Transport.TCP)
    there.receive(here.send_handshake({"token": "t"}))
    assert there.next_event() == HandshakeReceived(None, {"token": "t"})
    here.receive(there.accept(ID, {"node": "n"}))
    assert here.next_event() == HandshakeReceived(ID, {"node": "n"})
    assert read_head(here.send_message(Message(OTHER, Handshake()))).message_id == OTHER


def test_sending_out_of_turn_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        ClientConnection(Transport.TCP).send_message(MESSAGES[4])
    with pytest.raises(LocalProtocolError):
        client().send_handshake()
    with pytest.raises(LocalProtocolError):
        ServerConnection(Transport.TCP).accept(ID)


def test_a_packet_over_the_limit_is_refused_when_it_is_announced() -> None:
    connection = opened(max_packet=1000)
    announced = b"\1" + written(ID) + b"\xff\x9a" + written(OTHER) + b"\xff\xf7" + (2000).to_bytes(4)
    (event,) = events_of(connection, announced, 1, eof=False)
    assert isinstance(event.error, OversizedMessage)
    with pytest.raises(OversizedMessage):
        opened(max_packet=1000).send_message(MESSAGES[0])


def test_limits_of_java_hold_on_its_transports() -> None:
    large = Message(OTHER, "x" * 400)
    with pytest.raises(OversizedMessage):
        opened(peer=Peer.JAVA).send_message(large)
    assert opened(Transport.WEBSOCKET, peer=Peer.JAVA).send_message(large)
    with pytest.raises(OversizedMessage):
        opened(Transport.WEBSOCKET, peer=Peer.JAVA).send_message(Message(OTHER, "x" * 66_000))
    assert opened(Transport.HTTP, peer=Peer.JAVA).send_message(Message(OTHER, "x" * 66_000))


@pytest.mark.parametrize("size", [1, 100, 256, 1000])
def test_a_packet_that_java_cut_is_an_error_once_256_bytes_are_there(size: int) -> None:
    whole, cut = packet(MESSAGES[4]), packet(Message(OTHER, "x" * 400))[:256]
    connection = opened(peer=Peer.JAVA)
    assert [type(event) for event in events_of(connection, whole + cut[:-1], size, eof=False)] == [MessageReceived]
    connection.receive(cut[-1:] + whole)
    (event,) = drain(connection)
    assert isinstance(event.error, TruncatedMessage)
    assert event.raw == cut + whole


@given(st.binary(max_size=200), st.sampled_from(Transport), st.sampled_from(Peer), st.integers(1, 9))
@example(
    b"\1" + written(ID) + written(Message(OTHER, PollingResponse(tuple(MESSAGES[3:])))), Transport.HTTP, Peer.JAVA, 9
)
def test_any_bytes_give_events_or_an_error_of_ours(octets: bytes, transport: Transport, peer: Peer, size: int) -> None:
    for connection in (opened(transport, peer=peer), opened_server(transport, peer=peer), client(transport, peer=peer)):
        for event in events_of(connection, octets, size if transport is Transport.TCP else 1 << 20):
            if isinstance(event, BadFrame):
                assert isinstance(event.error, WireError | ProtocolError)
            if isinstance(event, MessageReceived):
                with contextlib.suppress(WireError):
                    assert isinstance(event.body, object)


@given(st.data())
def test_a_changed_byte_gives_events_or_an_error_of_ours_whatever_the_chunks(data: st.DataObject) -> None:
    octets = bytearray(packet(data.draw(st.sampled_from(MESSAGES[1:]))) * 2)
    for at in data.draw(st.lists(st.integers(19, len(octets) - 1), max_size=3)):
        octets[at] = data.draw(st.integers(0, 255))
    small, whole = (events_of(opened(), bytes(octets), size) for size in (data.draw(st.integers(1, 50)), 1 << 20))
    assert list(map(shown, small)) == list(map(shown, whole))


def shown(event: Any) -> Any:
    """An event, its error by its text and its rest left out: how much had arrived depends on the chunks."""
    return (type(event.error), str(event.error)) if isinstance(event, BadFrame) else event


def test_a_handshake_has_64_kib_on_either_side_and_any_transport() -> None:
    large = {"a": "x" * 100_000}
    octets = b"\0" + written(Handshake(large))
    for transport in Transport:
        with pytest.raises(OversizedMessage):
            ClientConnection(transport).send_handshake(large)
        server = ServerConnection(transport)
        server.receive(MAGIC + octets if transport is Transport.TCP else octets)
        event = server.next_event()
        assert isinstance(event, BadFrame)
        assert isinstance(event.error, OversizedMessage)


@pytest.mark.parametrize("transport", Transport)
def test_a_handshake_may_be_longer_than_a_packet(transport: Transport) -> None:
    client_side, server_side = (kind(transport, max_packet=1024) for kind in (ClientConnection, ServerConnection))
    server_side.receive(client_side.send_handshake({"token": "x" * 5_000}))
    assert isinstance(server_side.next_event(), HandshakeReceived)
    client_side.receive(server_side.accept(ID, {"answer": "x" * 5_000}))
    assert isinstance(client_side.next_event(), HandshakeReceived)
    for side in (client_side, server_side):
        with pytest.raises(OversizedMessage):
            side.send_message(Message(OTHER, "x" * 1_024))
        side.receive(b"\1\xff\x9b" + ID + written(Message(OTHER, "x" * 1_024)))
        event = side.next_event()
        assert isinstance(event, BadFrame)
        assert isinstance(event.error, OversizedMessage)
