"""The two streams of a session: what may come when, in whatever pieces, and what is final."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import silverfold.conf.errors
from silverfold.conf.errors import (
    InvalidValue,
    LocalProtocolError,
    RemoteProtocolError,
    StatementRefused,
    TruncatedMessage,
)
from silverfold.connectors.sqlitecloud.protocol.connection import MainState, MainStream, PubSubStream
from silverfold.connectors.sqlitecloud.protocol.messages import (
    BadFrame,
    ChunkReceived,
    ChunksEnded,
    ConnectionEnded,
    EchoRequested,
    JsonText,
    ListenAccepted,
    Login,
    Notification,
    PauthAccepted,
    PubSubTicket,
    ReplyReceived,
    Request,
    RequestRefused,
    Single,
    Statement,
    TicketReceived,
)
from silverfold.connectors.sqlitecloud.protocol.statements import listen_channel, listen_table, notify
from silverfold.connectors.sqlitecloud.protocol.streams import Stream
from tests.support.sqlitecloud.vectors import error, names, octets, pieces, rows, vectors

TICKET = PubSubTicket("a365efef-cfb7-4672-8ed4-45a489ddb194", "9230b8d8-93dc-4edc-bcaf-cc118fe32d4d")
OFFER = b"|79 PAUTH a365efef-cfb7-4672-8ed4-45a489ddb194 9230b8d8-93dc-4edc-bcaf-cc118fe32d4d"
LOGIN = Login("AUTH APIKEY hunter2;", ("hunter2",))
LISTEN = listen_table("foo", "t.sqlite")
SELECT = Statement("SELECT 1")
REPLIES, WRONG, STREAMS = vectors("replies"), vectors("wrong_place"), vectors("streams")


def drain(stream: Stream[Any]) -> list[Any]:
    """What comes without more bytes, up to an event that is final."""
    events: list[Any] = []
    while not is_over(events) and (event := stream.next_event()) is not None:
        events.append(event)
    return events


def events_of(stream: Stream[Any], whole: bytes, size: int | None = None) -> list[Any]:
    events: list[Any] = []
    for piece in pieces(whole, size or max(len(whole), 1)):
        if not is_over(events):
            stream.receive(piece)
            events += drain(stream)
    return events


def is_over(events: list[Any]) -> bool:
    return bool(events) and isinstance(events[-1], BadFrame)


def main(*requests: Request) -> MainStream:
    """Logged in, with requests answered by OK, but for the last: that is not answered yet."""
    stream = MainStream()
    for request, answer in zip([LOGIN, *requests], [b"+2 OK"] * len(requests) + [b""], strict=True):
        stream.send(request)
        events_of(stream, OFFER if request is LISTEN and answer else answer)
    return stream


def ready() -> MainStream:
    stream = MainStream()
    stream.send(LOGIN)
    assert events_of(stream, b"+2 OK") == [ReplyReceived(Single("OK"), b"+2 OK")]
    return stream


def pubsub(*, up: bool = True) -> PubSubStream:
    stream = PubSubStream()
    stream.send(TICKET)
    assert events_of(stream, b"+2 OK" if up else b"") == [PauthAccepted(b"+2 OK")] * up
    return stream


PLACES = {
    "waiting for a reply": lambda: main(SELECT),
    "main socket idle": ready,
    "waiting for the answer to LISTEN": lambda: main(LISTEN),
    "waiting for the answer to the first LISTEN": lambda: main(LISTEN),
    "waiting for the answer to a second LISTEN, pub/sub socket up": lambda: main(LISTEN, listen_channel("c1")),
    "waiting for the answer to PAUTH": lambda: pubsub(up=False),
    "pub/sub socket up": pubsub,
}


@pytest.mark.parametrize("size", [1, 2, 7, 2048])
@pytest.mark.parametrize("vector", REPLIES, ids=names(REPLIES))
def test_a_reply_in_chunks_comes_chunk_by_chunk_with_the_bytes_of_each(vector, size):
    events = events_of(stream := main(SELECT), octets(vector), size)
    *chunks, end = events
    assert [type(event) for event in chunks] == [ChunkReceived] * (vector["frames"] - 1)
    assert end == ChunksEnded(b"/6 0 0 0 ")
    assert [column.name for column in chunks[0].chunk.columns] == vector["result"]["columns"]
    assert [row for event in chunks for row in event.chunk.rows] == rows(vector["result"]["rows"])
    assert b"".join(event.frame for event in events) == octets(vector)
    assert stream.state is MainState.READY


def test_one_result_in_chunks_may_follow_another():
    stream = main(SELECT)
    chunks = octets(REPLIES[0])
    first = events_of(stream, chunks)
    stream.send(SELECT)
    assert events_of(stream, chunks) == first
    assert len(first) == REPLIES[0]["frames"]


@pytest.mark.parametrize("size", [1, 2048])
@pytest.mark.parametrize("vector", WRONG, ids=names(WRONG))
def test_a_frame_in_the_wrong_place_is_refused_and_in_the_right_one_taken(vector, size):
    stream = PLACES[vector["while"]]()
    *_, last = events_of(stream, octets(vector), size)
    if vector["error"] == "RemoteProtocolError":
        assert (type(last), type(last.error), last.error.reason) == (BadFrame, RemoteProtocolError, vector["reason"])
        with pytest.raises(RemoteProtocolError):
            stream.next_event()
    elif vector["error"] is not None:
        assert isinstance(last.error, getattr(silverfold.conf.errors, vector["error"]))
        assert last.error.code == vector["reason"]
    else:
        assert not isinstance(last, BadFrame | RequestRefused)


@pytest.mark.parametrize("size", [1, 2, 7, 2048])
@pytest.mark.parametrize("vector", STREAMS, ids=names(STREAMS))
def test_notifications_come_one_by_one_however_they_arrive(vector, size):
    payloads = {payload["id"]: octets(payload) for payload in vectors("payloads")}
    stream = pubsub(up=vector["frames"][0] != "ok")
    events = events_of(stream, octets(vector), size)
    expected = [payloads.get(name) for name in vector["frames"]]
    assert [getattr(event, "text", None) for event in events] == expected
    assert b"".join(event.frame for event in events) == octets(vector)[: len(octets(vector)) - stream.held]
    assert stream.held == vector.get("pending_bytes", 0)


def test_a_session_listens_with_two_connections_as_in_the_handshake():
    script = {
        (step[0], step[1], number): step[2].encode()
        for handshake in vectors("handshakes")
        if handshake["id"] == "listen"
        for number, step in enumerate(handshake["steps"])
    }
    stream, notifications = ready(), PubSubStream()
    assert stream.send(Statement("LISTEN TABLE foo;")) == script["main", ">", 0]
    stream = main(LISTEN)
    assert events_of(stream, script["main", "<", 1]) == [TicketReceived(TICKET)]
    assert notifications.send(TICKET) == script["pubsub", ">", 2]
    received = events_of(notifications, script["pubsub", "<", 3] + script["pubsub", "<", 4])
    assert [type(event) for event in received] == [PauthAccepted, Notification]


def test_our_listen_and_notify_are_bound():
    assert ready().send(LISTEN) == b"=52 3 !27 LISTEN TABLE ? DATABASE ?;\0!4 foo\0!9 t.sqlite\0"
    assert ready().send(notify("fence-1", "low")) == b"=36 3 !12 NOTIFY ? ?;\0!8 fence-1\0!4 low\0"
    assert ready().send(notify("x';DROP")) == b"=27 2 !10 NOTIFY ?;\0!8 x';DROP\0"


@pytest.mark.parametrize("answer", [b"+2 OK", OFFER, b"|11 PAUTH a b c"])
def test_a_later_listen_is_accepted_with_ok_or_any_ticket_which_is_not_told(answer):
    stream = main(LISTEN, listen_channel("c1"))
    assert events_of(stream, answer) == [ListenAccepted()]
    assert stream.state is MainState.READY


def test_a_text_asked_back_is_sent_back_and_the_answer_to_that_is_the_reply():
    stream = main(SELECT)
    assert events_of(stream, b"^4 PING") == [EchoRequested(b"+4 PING", b"^4 PING")]
    assert events_of(stream, b"+4 PONG") == [ReplyReceived(Single("PONG"), b"+4 PONG")]


def test_an_error_ends_the_request_and_not_the_session():
    stream = main(Statement("SELECT x"))
    (event,) = events_of(stream, b"-23 1:1:7 no such column: x")
    assert isinstance(event.error, StatementRefused)
    error = event.error
    assert (error.code, error.extended, error.offset, error.text) == ("1", 1, 7, "no such column: x")
    assert str(error) == "1: no such column: x"
    stream.send(SELECT)
    assert events_of(stream, b"#2 {}") == [ReplyReceived(JsonText(b"{}"), b"#2 {}")]


def test_an_error_without_a_place_has_none():
    (event,) = events_of(main(SELECT), b"-6 10003 ")
    assert (event.error.code, event.error.extended, event.error.offset) == ("10003", 0, None)


def test_a_refused_login_is_final_and_what_the_server_repeats_of_it_is_hidden():
    stream = MainStream()
    stream.send(LOGIN)
    (event,) = events_of(stream, error(b"10004:0:-1 wrong: AUTH APIKEY hunter2;"))
    assert event.error.text == "wrong: AUTH APIKEY (hidden);"
    assert b"hunter2" not in event.frame
    assert stream.state is MainState.REFUSED
    for request in (LOGIN, SELECT):
        with pytest.raises(LocalProtocolError):
            stream.send(request)
    (bad,) = events_of(stream, b"+2 OK")
    assert bad.error.reason == "unexpected_frame"


@pytest.mark.parametrize(
    "echoed", ["hunter2?/", "68756E746572323f2f", "aHVudGVyMj8v", "aHVudGVyMj8v==", "hunter2%3F%2f", "HUNTER2?/"]
)
def test_a_key_is_hidden_however_the_server_repeats_it(echoed: str):
    stream = MainStream()
    stream.send(Login("AUTH APIKEY hunter2?/;", ("hunter2?/",)))
    (event,) = events_of(stream, error(f"10004:0:-1 wrong: {echoed} it was".encode()))
    assert event.error.text.removesuffix(" it was").rstrip("=") == "wrong: (hidden)"
    assert echoed.encode() not in event.frame


@pytest.mark.parametrize("answer", [b":hunter2?/ ", b"*28 hunter2?/ x y", b"+hunter2?/ 1", b"+9 hunter2?/"])
def test_a_key_is_hidden_in_an_answer_that_is_none(answer: bytes):
    stream = MainStream()
    stream.send(Login("AUTH APIKEY hunter2?/;", ("hunter2?/",)))
    stream.receive(answer)
    stream.receive_eof()
    bad = stream.next_event()
    assert isinstance(bad, BadFrame)
    assert "hunter2" not in f"{bad.error}{bad.frame!r}"


@pytest.mark.parametrize("part", ["SECRETKEY-abc", "534543524554", "\\u0053\\u0045\\u0043"])
def test_the_beginning_of_a_key_is_hidden_too(part: str):
    stream = MainStream()
    stream.send(Login("AUTH APIKEY SECRETKEY-abcdefgh;", ("SECRETKEY-abcdefgh",)))
    (event,) = events_of(stream, error(f"10004:0:-1 near '{part}".encode()))
    assert (event.error.text, part.encode() in event.frame) == ("near '(hidden)", False)


def test_a_short_password_does_not_make_a_secret_of_every_bad_frame():
    stream = MainStream()
    stream.send(Login("AUTH USER u PASSWORD p;", ("p",)))
    (bad,) = events_of(stream, b":pp ")
    assert bad.error.reason == "bad_number"


def test_a_key_of_letters_of_two_bytes_is_hidden_up_to_where_it_ends():
    stream = MainStream()
    stream.send(Login("AUTH", ("schl\u00fcssel\u00e4",)))
    (event,) = events_of(stream, error("10004:0:-1 no schl\u00fcssel\u00f6 here".encode()))
    assert event.error.text.startswith("no (hidden)")


@pytest.mark.parametrize(
    "answer", [error(b"10002:0:-1 who are you: APIKEY SECRETKEY-abcdefgh"), b":SECRETKEY-abcdefgh ", b"!SECRETKEY-abc "]
)
def test_the_second_connection_knows_what_the_first_was_told(answer: bytes):
    stream = PubSubStream(secrets=("SECRETKEY-abcdefgh",))
    stream.send(TICKET)
    stream.receive(answer)
    event = stream.next_event()
    assert isinstance(event, BadFrame | RequestRefused)
    assert "SECRETKEY" not in f"{event.error}{event.frame!r}"


@pytest.mark.parametrize("kind", [b"+%d ", b"#%d ", b"!%d "])
def test_a_ticket_is_hidden_wherever_it_comes(kind: bytes):
    stream = ready()
    stream.send(listen_table("a", "t.sqlite"))
    offer = OFFER.removeprefix(b"|79 ")
    stream.receive(kind % len(offer) + offer)
    event = stream.next_event()
    assert isinstance(event, BadFrame)
    assert TICKET.secret not in f"{event.error}{event.frame!r}"


def test_a_key_is_hidden_in_later_errors_too():
    stream = MainStream()
    stream.send(Login("AUTH APIKEY hunter2?/;", ("hunter2?/",)))
    events_of(stream, b"+2 OK")
    stream.send(SELECT)
    (event,) = events_of(stream, error(b"10004:0:-1 no rights: hunter2?/"))
    assert event.error.text == "no rights: (hidden)"


def test_requests_are_sent_one_at_a_time_and_the_login_first():
    stream = MainStream()
    with pytest.raises(LocalProtocolError, match="a Statement cannot be sent in the state LOGIN"):
        stream.send(SELECT)
    stream.send(LOGIN)
    with pytest.raises(LocalProtocolError, match="in the state WAITING"):
        stream.send(SELECT)
    events_of(stream, b"+2 OK")
    with pytest.raises(LocalProtocolError, match="a Login cannot be sent in the state READY"):
        stream.send(LOGIN)
    stream.send(SELECT)
    events_of(stream, b"/15 1:1 1 1 +1 k:1 ")
    with pytest.raises(LocalProtocolError, match="in the state CHUNKS"):
        stream.send(SELECT)


def test_a_request_that_cannot_be_written_changes_nothing():
    stream = ready()
    with pytest.raises(InvalidValue):
        stream.send(listen_table("a\0b", "t.sqlite"))
    assert stream.state is MainState.READY


def test_pauth_is_sent_once():
    with pytest.raises(LocalProtocolError):
        pubsub(up=False).send(TICKET)


def test_what_pauth_is_refused_with_is_final_and_has_no_secret():
    stream = pubsub(up=False)
    (event,) = events_of(stream, error(b"10004:0:-1 " + TICKET.secret.encode()))
    assert (event.error.text, event.frame) == ("(hidden)", b"-47 10004:0:-1 (hidden)")
    assert isinstance(events_of(stream, b"+2 OK")[0], BadFrame)


def test_a_zero_terminated_notification_is_one_and_its_text_has_no_zero():
    good, bad = events_of(pubsub(), b"!3 {}\0!3 {}\n")
    assert (good, bad.error.reason) == (Notification(b"{}", b"!3 {}\0"), "missing_nul")


def test_the_end_between_frames_is_told_once_and_inside_a_frame_is_an_error_with_the_bytes():
    stream = pubsub()
    stream.receive(b"#2 {}")
    stream.receive_eof()
    assert drain(stream) == [Notification(b"{}", b"#2 {}"), ConnectionEnded()]
    stream = pubsub()
    stream.receive(b"#2 {}#9 {")
    stream.receive_eof()
    good, bad = drain(stream)
    assert (good, bad.frame, type(bad.error)) == (Notification(b"{}", b"#2 {}"), b"#9 {", TruncatedMessage)
    with pytest.raises(LocalProtocolError, match="over"):
        stream.send(TICKET)


def test_a_bad_frame_keeps_its_bytes_and_those_behind_it():
    stream = pubsub()
    stream.receive(b":1 #2 {}")
    event = stream.next_event()
    assert isinstance(event, BadFrame)
    assert event.frame == b":1 #2 {}"


@pytest.mark.parametrize(("size", "reason"), [(20, "truncated"), (82, "repeats_secret"), (83, "unexpected_frame")])
def test_no_secret_is_shown_by_whatever_holds_one(size, reason):
    stream = ready()
    stream.receive(OFFER[:size])
    stream.receive_eof()
    bad = stream.next_event()
    assert isinstance(bad, BadFrame)
    assert (bad.error.reason, bad.frame) == (reason, b"|79 ")
    assert TICKET.secret not in repr([TICKET, TicketReceived(TICKET), bad, str(bad.error)])
    assert "hunter2" not in repr(LOGIN)


ANY_FRAMES = st.lists(
    st.sampled_from([octets(vector) for group in ("frames", "malformed_frames") for vector in vectors(group)]),
    max_size=6,
).map(b"".join)


@given(st.sampled_from(sorted(PLACES)), st.one_of(ANY_FRAMES, st.binary(max_size=40)), st.integers(1, 9))
def test_any_bytes_give_the_same_events_in_any_pieces_and_nothing_behind_a_bad_frame(place, whole, size):
    seen = []
    for pieces_of in (size, None):
        stream = PLACES[place]()
        events = events_of(stream, whole, pieces_of)
        if not is_over(events):
            stream.receive_eof()
            events += drain(stream)
        assert isinstance(events[-1], BadFrame | ConnectionEnded)
        if isinstance(events[-1], BadFrame):
            with pytest.raises(type(events[-1].error)):
                stream.next_event()
        seen.append([repr(event).partition(", frame=")[0] for event in events])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("size", [1, None])
def test_20000_notifications_back_to_back_all_arrive_in_order(size):
    texts = [b'{"n":%d}' % number for number in range(20_000)]
    whole = b"".join(b"#%d %s" % (len(text), text) for text in texts)
    stream = pubsub()
    assert [event.text for event in events_of(stream, whole, size)] == texts
    assert stream.held == 0
