"""The client's session in memory: violations, and what the end of a connection leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from silverfold.conf.errors import (
    InvalidValue,
    LocalProtocolError,
    OversizedMessage,
    RemoteProtocolError,
    SilverfoldError,
    TruncatedMessage,
)
from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts, frame
from silverfold.connectors.deephaven.protocol.handshake import Expected
from silverfold.connectors.deephaven.protocol.messages import (
    BadFrame,
    ColumnReceived,
    Event,
    SubscribeResponse,
    UpdateBegan,
    UpdateVoided,
)
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.protocol.types import TYPES
from tests.support.deephaven.session import (
    BEGIN,
    BOTH,
    COLUMN,
    END,
    GREETING,
    REMOVED,
    RESPONSE,
    ROLES,
    UNSUBSCRIBED,
    connected,
    drain,
    refusal,
    say,
    subscribed,
)
from tests.support.deephaven.vectors import VECTORS

VIOLATIONS: dict[str, tuple[list[bytes], type[SilverfoldError], str]] = {
    "end without begin": ([END], RemoteProtocolError, "EndTableUpdate without BeginTableUpdate"),
    "begin in an open update": ([BEGIN, BEGIN], RemoteProtocolError, "inside an open update for subscription 7"),
    "column outside an update": ([COLUMN], RemoteProtocolError, "IntColumnData outside an update"),
    "removal outside an update": ([REMOVED], RemoteProtocolError, "RowsRemoved outside an update"),
    "second response": ([RESPONSE], RemoteProtocolError, "a second TableSubscribeResponse"),
    "second greeting": ([GREETING], RemoteProtocolError, "a second ConnectionResponse"),
    "a client's message": ([VECTORS["table-unsubscribe"].body], RemoteProtocolError, "sent TableUnsubscribe"),
    "begin for a stranger": ([control.encode_begin(ROLES, 9)], RemoteProtocolError, "subscription 9, which was never"),
    "column for a stranger": (
        [COLUMN.replace(b"\7", b"\x09")],
        RemoteProtocolError,
        "IntColumnData for subscription 9",
    ),
    "end for a stranger": ([control.encode_end(ROLES, 9)], RemoteProtocolError, "EndTableUpdate for subscription 9"),
    "response for a stranger": (
        [control.encode_subscribe_response(ROLES, 9, [])],
        RemoteProtocolError,
        "TableSubscribeResponse for subscription 9",
    ),
    "end of a stranger": (
        [control.encode_unsubscribe_response(ROLES, 9)],
        RemoteProtocolError,
        "TableUnsubscribeResponse for subscription 9",
    ),
    "update after the end": ([UNSUBSCRIBED, BEGIN], RemoteProtocolError, "which is closed"),
    "update after a failure": ([refusal("OBJECT_OVERFLOW"), BEGIN], RemoteProtocolError, "which is failed"),
    "wrong schema id": ([VECTORS["wrong-schema-id"].body], InvalidValue, "schema id 2, expected 1"),
    "truncated block": ([VECTORS["truncated-block"].body], TruncatedMessage, "root block needs 4 bytes, 3 are left"),
    "short block": ([bytes.fromhex("0200 0700 0100 0100 0700")], InvalidValue, "lacks subscriptionId"),
    "two columns of one id": (
        [control.encode_subscribe_response(ROLES, 7, [(1, "a", TYPES["Int"]), (1, "b", TYPES["Int"])])],
        InvalidValue,
        "two columns have one id",
    ),
    "cut response": ([RESPONSE[:-2]], TruncatedMessage, "truncated"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_keeps_its_bytes_and_is_final(name: str) -> None:
    bodies, error, text = VIOLATIONS[name]
    session = subscribed()

    session.receive(b"".join(map(frame, bodies)))
    events: list[Event] = []
    with pytest.raises(error, match=text) as caught:
        events.extend(iter(session.next_event, None))

    assert events[-1] == BadFrame(bodies[-1], caught.value)
    session.receive(frame(BEGIN))
    with pytest.raises(error):
        session.next_event()
    assert session.ended


def test_messages_ahead_of_a_violation_are_told_and_what_they_opened_is_void() -> None:
    session = subscribed()

    session.receive(b"".join(map(frame, [BEGIN, COLUMN, BEGIN])))

    kinds = [type(session.next_event()) for _ in range(4)]
    assert kinds == [UpdateBegan, ColumnReceived, UpdateVoided, BadFrame]


def test_a_frame_above_the_buffer_size_is_refused_from_its_length_alone() -> None:
    session = subscribed()
    length = (65541).to_bytes(4, "little")

    session.receive(length)

    event = session.next_event()
    assert isinstance(event, BadFrame)
    assert event.body == length
    assert isinstance(event.error, OversizedMessage)


def test_a_frame_may_exceed_the_buffer_size_by_the_size_of_a_length() -> None:
    session = subscribed(BOTH, BEGIN)

    say(session, COLUMN + b"\0" * (65540 - len(COLUMN)))

    assert not session.ended


def test_a_server_that_announces_a_monstrous_buffer_is_refused() -> None:
    session = Session(ROLES)

    session.receive(frame(control.encode_connection_response(ROLES, 2**31 - 1)))

    event = session.next_event()
    assert isinstance(event, BadFrame)
    assert "2147483647 bytes" in str(event.error)


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 40, frame(BEGIN), b"\x0c\0\0\0" + b"\xff" * 12]
)
def test_garbage_before_the_first_frame_is_kept_and_refused(garbage: bytes) -> None:
    session = Session(ROLES)

    session.receive(garbage)

    event = session.next_event()
    assert isinstance(event, BadFrame)
    assert event.body == garbage
    with pytest.raises(SilverfoldError):
        session.next_event()


def test_a_setting_that_contradicts_the_first_frame_ends_the_session() -> None:
    session = Session(ROLES, expected=Expected(prefix_counts=PrefixCounts.BODY))

    session.receive(frame(GREETING))

    event = session.next_event()
    assert isinstance(event, BadFrame)
    assert 'prefix_counts = "body"' in str(event.error)


def test_another_schema_id_is_read_once_the_setting_accepts_it() -> None:
    session = Session(ROLES, expected=Expected(accept_schema_id=True))
    theirs = bytearray(GREETING)
    theirs[4] = 2

    session.receive(frame(bytes(theirs)))
    session.next_event()
    request = session.subscribe(7, BOTH, "Quotes")

    assert session.roles.schema.id == 2
    assert request[8:10] == b"\2\0"


def test_an_orderly_end_gives_nothing_more() -> None:
    session = subscribed(BOTH, BEGIN, COLUMN, END)

    session.receive_eof()

    assert (drain(session), session.next_event(), session.ended) == ([], None, True)


def test_updates_that_are_open_when_the_connection_ends_are_void() -> None:
    session = subscribed(BOTH, BEGIN, COLUMN)

    session.receive_eof()

    assert drain(session) == [UpdateVoided(7, True)]


def test_a_frame_that_the_end_of_the_connection_cut_off_is_kept() -> None:
    session = subscribed(BOTH, BEGIN)
    session.receive(frame(COLUMN)[:20])

    session.receive_eof()

    first, second = session.next_event(), session.next_event()
    assert first == UpdateVoided(7, True)
    assert isinstance(second, BadFrame)
    assert second.body == frame(COLUMN)[:20]
    with pytest.raises(RemoteProtocolError, match="ended 20 bytes into a frame"):
        session.next_event()


@pytest.mark.parametrize("start", [b"", b"\x0c\0\0"])
def test_a_connection_that_ends_before_its_first_frame_is_an_error(start: bytes) -> None:
    session = Session(ROLES)
    session.receive(start)

    session.receive_eof()

    event = session.next_event()
    assert isinstance(event, BadFrame)
    assert event.body == start
    assert isinstance(event.error, RemoteProtocolError)


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda session: session.subscribe(7, BOTH, "Quotes"), "id 7 was used before"),
        (lambda session: session.unsubscribe(9), "id 9 was never subscribed"),
        (lambda session: session.subscribe(1 << 40, BOTH, "Quotes"), "cannot be sent: .*subscriptionId 1099511627776"),
        (lambda session: session.subscribe(9, BOTH, "x" * 70_000), "a request of 70.* the server's buffer has 65536"),
        (lambda session: session.subscribe(9, BOTH, "\ud800"), "cannot be sent: .*tableName"),
    ],
)
def test_what_may_not_be_asked_is_our_own_fault_and_changes_nothing(ask: Callable[[Session], bytes], text: str) -> None:
    session = subscribed()

    with pytest.raises(LocalProtocolError, match=text):
        ask(session)

    assert (session.state(9), session.ended) == (None, False)


def test_nothing_can_be_asked_after_the_end() -> None:
    session = subscribed()
    session.receive_eof()

    with pytest.raises(LocalProtocolError, match="the session is over"):
        session.unsubscribe(7)


def test_a_response_names_a_column_of_an_unknown_template_without_a_type() -> None:
    session = connected()
    session.subscribe(7, BOTH, "Quotes")
    unknown = RESPONSE.replace(bytes.fromhex("6a000000"), bytes.fromhex("e7030000"))

    (event,) = say(session, unknown)

    assert isinstance(event, SubscribeResponse)
    assert event.columns == ((3, 999, "Size", None),)
