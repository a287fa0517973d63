"""The client's session in memory: states, violations, and what the end of a connection leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conf.errors import (
    InvalidValue,
    LocalProtocolError,
    OversizedMessage,
    RemoteProtocolError,
    SilverfoldError,
    TruncatedMessage,
)
from connectors.deephaven import control
from connectors.deephaven.calibrate import Expected
from connectors.deephaven.frames import PrefixCounts, frame
from connectors.deephaven.messages import (
    BadFrame,
    ColumnReceived,
    ConnectionResponse,
    ErrorCode,
    Event,
    RowsRemovedReceived,
    SubscribeMode,
    SubscribeResponse,
    SubscriptionError,
    UnknownMessage,
    UnsubscribeResponse,
    UpdateBegan,
    UpdateEnded,
    UpdateVoided,
)
from connectors.deephaven.parts import Roles
from connectors.deephaven.protocol import Session
from connectors.deephaven.subscriptions import SubscriptionState
from connectors.deephaven.types import TYPES
from tests.support.deephaven_columns import encoded
from tests.support.deephaven_vectors import VECTORS, builtin_roles, other_roles

SNAPSHOT, BOTH, UPDATES = SubscribeMode.SNAPSHOT_ONLY, SubscribeMode.SNAPSHOT_WITH_UPDATES, SubscribeMode.UPDATES_ONLY

ROLES = builtin_roles()
GREETING = control.encode_connection_response(ROLES, 65536)
RESPONSE = control.encode_subscribe_response(ROLES, 7, [(3, "Size", TYPES["Int"])])
BEGIN, END = control.encode_begin(ROLES, 7), control.encode_end(ROLES, 7)
(COLUMN,) = encoded(ROLES, "Int", [1, 2])
REMOVED = VECTORS["rows-removed-one-range"].body
UNKNOWN = VECTORS["unknown-template"].body
UNSUBSCRIBED = control.encode_unsubscribe_response(ROLES, 7)


def refusal(code: str, subscription_id: int = 7) -> bytes:
    return control.encode_subscription_error(ROLES, subscription_id, code, "no")


def drain(session: Session) -> list[Event]:
    return list(iter(session.next_event, None))


def connected(roles: Roles = ROLES) -> Session:
    session = Session(roles)
    session.receive(frame(control.encode_connection_response(roles, 65536), header_size=roles.schema.header.size))
    assert isinstance(session.next_event(), ConnectionResponse)
    return session


def subscribed(mode: SubscribeMode = BOTH, *bodies: bytes) -> Session:
    """A session with subscription 7 confirmed, all events of further messages taken."""
    session = connected()
    session.subscribe(7, mode, "Quotes")
    say(session, RESPONSE, *bodies)
    return session


def say(session: Session, *bodies: bytes) -> list[Event]:
    session.receive(b"".join(map(frame, bodies)))
    return drain(session)


def test_nothing_can_be_asked_before_the_server_has_spoken() -> None:
    with pytest.raises(LocalProtocolError, match="wait for the server's first frame"):
        Session(ROLES).subscribe(1, BOTH, "Quotes")


def test_the_first_event_tells_the_buffer_size() -> None:
    session = Session(ROLES)

    (event,) = say(session, GREETING)

    assert event == ConnectionResponse(GREETING, 65536)
    assert session.calibration is not None
    assert session.calibration.prefix_counts == PrefixCounts.MESSAGE


def test_requests_are_the_bytes_of_their_vectors() -> None:
    session = connected()

    assert session.subscribe(7, BOTH, "Quotes") == VECTORS["table-subscribe-all-columns"].octets
    assert (
        session.subscribe(8, UPDATES, "Quotes", ["Sym", "Bid"], "Sym=`AAPL`")
        == VECTORS["table-subscribe-two-columns-filter"].octets
    )
    assert session.unsubscribe(7) == VECTORS["table-unsubscribe"].octets


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("calibrate-prefix-exclusive", 12), ("calibrate-prefix-inclusive", 16), ("calibrate-prefix-body-only", 4)],
)
def test_requests_and_later_frames_count_as_the_first_frame_did(name: str, prefix: int) -> None:
    session = Session(ROLES)
    session.receive(VECTORS[name].octets)
    session.next_event()
    session.subscribe(7, BOTH, "Quotes")

    request = session.unsubscribe(7)
    session.receive(prefix.to_bytes(4, "little") + UNKNOWN)

    assert request[:4] == prefix.to_bytes(4, "little")
    assert session.next_event() == UnknownMessage(UNKNOWN, 999)


def test_an_update_is_told_as_events_that_hold_the_messages() -> None:
    session = subscribed()

    events = say(session, BEGIN, COLUMN, REMOVED, END)

    assert events == [
        UpdateBegan(BEGIN, 7, True),
        ColumnReceived(COLUMN, 7, True),
        RowsRemovedReceived(REMOVED, 7, True),
        UpdateEnded(END, 7, True),
    ]


def test_only_the_first_update_of_a_subscription_is_its_snapshot() -> None:
    session = subscribed()

    events = say(session, BEGIN, END, BEGIN, COLUMN, END)

    assert [event.snapshot for event in events] == [True, True, False, False, False]


def test_updates_only_never_has_a_snapshot() -> None:
    session = subscribed(UPDATES)

    events = say(session, BEGIN, COLUMN, END)

    assert [event.snapshot for event in events] == [False, False, False]


@pytest.mark.parametrize(
    ("mode", "bodies", "state"),
    [
        (BOTH, [], SubscriptionState.SNAPSHOTTING),
        (UPDATES, [], SubscriptionState.LIVE),
        (BOTH, [BEGIN], SubscriptionState.SNAPSHOTTING),
        (BOTH, [BEGIN, COLUMN, END], SubscriptionState.LIVE),
        (SNAPSHOT, [BEGIN, END], SubscriptionState.CLOSED),
        (SNAPSHOT, [BEGIN, END, UNSUBSCRIBED], SubscriptionState.CLOSED),
        (SNAPSHOT, [BEGIN, END, refusal("INVALID_SUBSCRIPTION_ID")], SubscriptionState.CLOSED),
        (BOTH, [BEGIN, END, BEGIN, END], SubscriptionState.LIVE),
        (BOTH, [refusal("OBJECT_OVERFLOW")], SubscriptionState.FAILED),
        (BOTH, [BEGIN, END, refusal("UNEXPECTED_ERROR")], SubscriptionState.FAILED),
        (BOTH, [BEGIN, END, refusal("DUPLICATE_SUBSCRIPTION_ID")], SubscriptionState.LIVE),
        (BOTH, [refusal("INVALID_SUBSCRIPTION_ID")], SubscriptionState.SNAPSHOTTING),
        (BOTH, [UNSUBSCRIBED], SubscriptionState.CLOSED),
    ],
)
def test_a_subscription_stands_where_its_messages_brought_it(
    mode: SubscribeMode, bodies: list[bytes], state: SubscriptionState
) -> None:
    assert subscribed(mode, *bodies).state(7) is state


def test_a_subscription_is_requested_until_it_is_answered() -> None:
    session = connected()

    session.subscribe(7, BOTH, "Quotes")

    assert (session.state(7), session.state(8)) == (SubscriptionState.REQUESTED, None)


def test_a_refused_subscription_has_failed() -> None:
    session = connected()
    session.subscribe(7, BOTH, "Nope")

    events = say(session, refusal("UNKNOWN_TABLE"))

    assert events == [SubscriptionError(refusal("UNKNOWN_TABLE"), 7, ErrorCode.UNKNOWN_TABLE, "no")]
    assert session.state(7) is SubscriptionState.FAILED


def test_updates_may_come_until_the_unsubscription_is_answered() -> None:
    session = subscribed(BOTH, BEGIN, END)
    session.unsubscribe(7)

    closing = session.state(7)
    events = say(session, BEGIN, COLUMN, END, UNSUBSCRIBED)

    assert closing is SubscriptionState.CLOSING
    assert events[-1] == UnsubscribeResponse(UNSUBSCRIBED, 7)
    assert session.state(7) is SubscriptionState.CLOSED


def test_a_subscription_may_be_ended_before_it_is_answered() -> None:
    session = connected()
    session.subscribe(7, BOTH, "Quotes")
    session.unsubscribe(7)

    say(session, RESPONSE, BEGIN, END, UNSUBSCRIBED)

    assert session.state(7) is SubscriptionState.CLOSED


@pytest.mark.parametrize("last", [UNSUBSCRIBED, refusal("OBJECT_OVERFLOW")])
def test_an_update_that_is_open_when_its_subscription_ends_is_void_first(last: bytes) -> None:
    session = subscribed(BOTH, BEGIN, END, BEGIN)

    events = say(session, last)

    assert events[0] == UpdateVoided(7, False)
    assert isinstance(events[1], UnsubscribeResponse | SubscriptionError)


def test_an_error_for_an_id_that_is_not_ours_is_told_and_harmless() -> None:
    session = subscribed()

    events = say(session, refusal("UNEXPECTED_ERROR", subscription_id=-1), BEGIN)

    assert [type(event) for event in events] == [SubscriptionError, UpdateBegan]


def test_updates_of_two_subscriptions_may_interleave() -> None:
    session = subscribed()
    session.subscribe(8, UPDATES, "Trades")
    other = [encode(ROLES, 8) for encode in (control.encode_begin, control.encode_end)]

    events = say(session, control.encode_subscribe_response(ROLES, 8, []), BEGIN, other[0], COLUMN, other[1], END)

    ids = [event.subscription_id for event in events[1:]]
    assert ids == [7, 8, 7, 8, 7]


def test_an_unknown_template_is_told_and_the_session_goes_on() -> None:
    session = subscribed()

    events = say(session, UNKNOWN, BEGIN)

    assert events == [UnknownMessage(UNKNOWN, 999), UpdateBegan(BEGIN, 7, True)]


def test_a_message_of_the_schema_that_plays_no_part_is_told_as_unknown() -> None:
    roles = other_roles()
    session = connected(roles)
    heartbeat = bytes.fromhex("01f4 1267 0003 0008 0000") + b"\0" * 8

    session.receive(frame(heartbeat))

    assert session.next_event() == UnknownMessage(heartbeat, 500)


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
