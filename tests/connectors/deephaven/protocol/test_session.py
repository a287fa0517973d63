"""The client's session in memory: requests, updates, and the states of a subscription."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import (
    LocalProtocolError,
)
from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts, frame
from silverfold.connectors.deephaven.protocol.messages import (
    ColumnReceived,
    ConnectionResponse,
    ErrorCode,
    RowsRemovedReceived,
    SubscribeMode,
    SubscriptionError,
    UnknownMessage,
    UnsubscribeResponse,
    UpdateBegan,
    UpdateEnded,
    UpdateVoided,
)
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.protocol.subscriptions import SubscriptionState
from tests.support.deephaven.session import (
    BEGIN,
    BOTH,
    COLUMN,
    END,
    GREETING,
    REMOVED,
    RESPONSE,
    ROLES,
    SNAPSHOT,
    UNKNOWN,
    UNSUBSCRIBED,
    UPDATES,
    connected,
    refusal,
    say,
    subscribed,
)
from tests.support.deephaven.vectors import VECTORS, other_roles


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
