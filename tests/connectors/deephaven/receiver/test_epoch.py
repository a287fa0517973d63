"""One connection's course without a socket: what lands, what is asked for, and what one bad stream does to others."""

import json
from base64 import b64decode
from collections.abc import Iterator
from importlib.resources import files
from itertools import count, islice

import pytest

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.deephaven.options import DeephavenTable
from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.control import (
    decode_request,
    encode_begin,
    encode_connection_response,
    encode_end,
    encode_subscribe_response,
)
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.receiver.epoch import Epoch
from silverfold.connectors.frames import Frame
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.chance import Clock, Highest
from tests.support.deephaven.epoch import TABLES, begun, marks, outline, subscribed
from tests.support.deephaven.frames import (
    GREETING,
    ROLES,
    begin,
    end,
    refusal,
    response,
    rows,
    sent,
    unsubscribed,
    update,
)
from tests.support.deephaven.vectors import VECTORS

UNKNOWN = VECTORS["unknown-template"].body


def requested_tables(request):
    """Ids, tables and modes of requests as the server reads them."""
    found = []
    while request:
        size = 4 + int.from_bytes(request[:4], "little")
        message = decode_request(ROLES, request[4:size])
        found.append((message.subscription_id, message.table, message.mode.value))
        request = request[size:]
    return found


def test_the_greeting_lands_as_control_with_a_mark_of_what_it_told():
    greeting, calibrated = begun().receive(sent(GREETING))
    assert greeting == Frame(GREETING, "control", "none", None)
    assert json.loads(calibrated.body) == {
        "mark": "calibrated",
        "byte_order": "little",
        "prefix_counts": "message",
        "message_buffer_size": 65536,
        "schema_id": 1,
        "version": 1,
        "differences": [],
    }


def test_nothing_is_asked_before_the_greeting():
    epoch = begun()
    assert epoch.wait() is None
    assert epoch.requests() == (b"", [])


def test_all_tables_are_asked_for_at_once_after_the_greeting():
    epoch = begun()
    epoch.receive(sent(GREETING))
    request, marked = epoch.requests()
    assert requested_tables(request) == [(1, "Quotes", "snapshot_with_updates"), (2, "Trades", "updates_only")]
    assert [(each.stream, json.loads(each.body)["mark"]) for each in marked] == [
        ("quotes", "snapshot asked"),
        ("trades", "updates asked"),
    ]
    assert epoch.wait() is None


def test_columns_and_filter_of_a_table_are_asked_for():
    epoch = begun({"quotes": DeephavenTable(source="Quotes", columns=("Bid", "Sym"), filter="Bid > 1")})
    epoch.receive(sent(GREETING))
    request, _ = epoch.requests()
    message = decode_request(ROLES, request[4:])
    assert (message.columns, message.filter) == (("Bid", "Sym"), "Bid > 1")


STREAM = [response(1), response(2), *update(1), begin(2), begin(1), rows(2), rows(1), end(1), end(2)]


def test_frames_land_with_stream_kind_and_boundary_and_their_bodies_unaltered():
    epoch = begun()
    epoch.receive(sent(GREETING))
    epoch.requests()
    frames = epoch.receive(sent(*STREAM))
    assert outline(frames) == [
        ("quotes", "control", "none"),
        ("trades", "control", "none"),
        ("quotes", "snapshot", "begin"),
        ("quotes", "snapshot", "inside"),
        ("quotes", "snapshot", "end"),
        ("trades", "data", "begin"),
        ("quotes", "data", "begin"),
        ("trades", "data", "inside"),
        ("quotes", "data", "inside"),
        ("quotes", "data", "end"),
        ("trades", "data", "end"),
    ]
    assert [frame.body for frame in frames] == STREAM


def test_removed_rows_land_inside_their_update():
    removed = VECTORS["rows-removed-one-range"].body  # of subscription 7
    tables = {f"t{number}": DeephavenTable(source="T") for number in range(1, 8)}
    frames = subscribed(tables).receive(sent(begin(7), removed, end(7)))
    assert outline(frames)[1] == ("t7", "snapshot", "inside")


def test_a_refused_subscription_is_asked_for_again_by_another_id_while_others_go_on():
    clock = Clock()
    epoch = begun(clock=clock)
    epoch.receive(sent(GREETING))
    epoch.requests()
    frames = epoch.receive(sent(refusal(1, "UNKNOWN_TABLE", "no such export"), response(2), *update(2)))
    assert outline(frames)[:2] == [("quotes", "control", "none"), ("quotes", "mark", "none")]
    assert marks(frames) == [
        {
            "mark": "subscription failed",
            "level": "warning",
            "code": "UNKNOWN_TABLE",
            "text": "no such export",
            "subscription_id": 1,
            "next_in": 2.0,
        }
    ]
    assert outline(frames)[2:] == [
        ("trades", "control", "none"),
        ("trades", "data", "begin"),
        ("trades", "data", "inside"),
        ("trades", "data", "end"),
    ]
    assert (epoch.error, epoch.wait()) == (None, 2.0)
    clock.now += 2.0
    assert requested_tables(epoch.requests()[0]) == [(3, "Quotes", "snapshot_with_updates")]
    assert outline(epoch.receive(sent(response(3), *update(3))))[1] == ("quotes", "snapshot", "begin")


def test_what_the_server_ends_unasked_is_asked_for_again_once():
    clock = Clock()
    epoch = subscribed(clock=clock)
    frames = epoch.receive(sent(*update(1), begin(1), rows(1), unsubscribed(1), *update(2)))
    reported = [(frame.stream, json.loads(frame.body)["mark"]) for frame in frames if frame.kind == "mark"]
    wait = epoch.wait()
    clock.now += wait
    again = requested_tables(epoch.requests()[0])
    late = epoch.receive(sent(unsubscribed(1), response(3), *update(3)))

    assert reported == [("quotes", "update void"), ("quotes", "subscription failed")]
    assert again == [(3, "Quotes", "snapshot_with_updates")]
    assert (marks(late), outline(late)[-1]) == ([], ("quotes", "snapshot", "end"))


@pytest.mark.parametrize("updates", [0, 1, 2])
def test_a_table_that_keeps_being_refused_is_asked_for_less_and_less_often(updates):
    clock = Clock()
    epoch = begun({"quotes": TABLES["quotes"]}, clock=clock)
    epoch.receive(sent(GREETING))
    waits = []
    for number in range(1, 7):
        epoch.requests()
        clock.now += 40 * (updates == 1)  # a snapshot may take long
        before = [response(number), *update(number) * updates] if updates else []
        epoch.receive(sent(*before, refusal(number, "UNEXPECTED_ERROR")))
        waits.append(epoch.wait())
        clock.now += waits[-1]
    assert waits == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    epoch.requests()
    epoch.receive(sent(response(7), *update(7)))
    clock.now += 30.0
    epoch.receive(sent(*update(7), refusal(7, "UNEXPECTED_ERROR")))
    assert epoch.wait() == 2.0


def test_a_subscription_that_fails_inside_an_update_leaves_a_mark_that_it_is_void():
    epoch = subscribed()
    frames = epoch.receive(sent(begin(1), rows(1), refusal(1, "OBJECT_OVERFLOW"), *update(2)))
    assert [(frame.stream, json.loads(frame.body)["mark"]) for frame in frames if frame.kind == "mark"] == [
        ("quotes", "update void"),
        ("quotes", "subscription failed"),
    ]
    assert outline(frames)[-1] == ("trades", "data", "end")


def test_an_error_for_a_subscription_that_is_not_ours_is_marked_and_nothing_else():
    epoch = subscribed()
    frames = epoch.receive(sent(refusal(99, "UNEXPECTED_ERROR", "?")))
    assert outline(frames) == [(None, "control", "none"), (None, "mark", "none")]
    assert marks(frames) == [
        {"mark": "server error", "level": "warning", "code": "UNEXPECTED_ERROR", "text": "?", "subscription_id": 99}
    ]
    assert (epoch.error, epoch.wait()) == (None, None)


def test_an_error_about_a_request_leaves_the_running_subscription_alone():
    epoch = subscribed()
    frames = epoch.receive(sent(*update(1), refusal(1, "INVALID_SUBSCRIPTION_ID"), *update(1)))
    assert marks(frames)[0]["mark"] == "server error"
    assert outline(frames)[-1] == ("quotes", "data", "end")
    assert epoch.wait() is None


def snapshots_of(primitive: str, clock: Clock) -> tuple[Epoch, Iterator[int]]:
    """Return an epoch of a schema with such ids, and its snapshots' ids as each ends."""
    xml = (files("silverfold.connectors.deephaven") / "schema.xml").read_text()
    narrowed = xml.replace('"subscriptionId" id="1" type="int32"', f'"subscriptionId" id="1" type="{primitive}"')
    roles = bind(load_schema(narrowed.encode()))
    table = DeephavenTable(source="Quotes", mode="snapshot_only", every=5)
    backoffs = {"quotes": Backoff(2.0, 30.0, Highest())}
    epoch = Epoch(Session(roles), {"quotes": table}, suspensions={"quotes": 0.0}, backoffs=backoffs, clock=clock)
    epoch.receive(sent(encode_connection_response(roles, 65_536)))

    def snapshots() -> Iterator[int]:
        for number in count(1):
            assert epoch.requests()[0] != b""
            answer = encode_subscribe_response(roles, number, [(0, "n", TYPES["Long"])])
            epoch.receive(sent(answer, encode_begin(roles, number), encode_end(roles, number)))
            assert epoch.error is None
            clock.now += 5
            yield number

    return epoch, snapshots()


def test_a_connection_whose_subscription_ids_are_used_up_ends():
    _, snapshots = snapshots_of("uint8", Clock())
    assert next(islice(snapshots, 254, None)) == 255
    with pytest.raises(SourceUnavailable, match="used up"):
        next(snapshots)


def test_snapshots_without_end_are_forgotten_but_for_the_newest():
    epoch, snapshots = snapshots_of("int32", Clock())
    assert next(islice(snapshots, 2_999, None)) == 3_000
    session = epoch._session
    assert [session.state(each) for each in (1, 1_999, 2_001, 3_000)] == [None, None, "closed", "closed"]
    assert len(epoch._streams) <= 1_001
    assert epoch.subscribed_streams == {"quotes"}


def test_a_snapshot_only_table_is_asked_for_again_after_its_time():
    clock = Clock()
    table = DeephavenTable(source="Quotes", mode="snapshot_only", every=5)
    epoch = subscribed({"quotes": table}, clock=clock)
    clock.now += 1
    frames = epoch.receive(sent(*update(1)))
    assert outline(frames)[-1] == ("quotes", "snapshot", "end")
    assert epoch.wait() == 5.0
    clock.now += 5
    assert requested_tables(epoch.requests()[0]) == [(2, "Quotes", "snapshot_only")]
    assert outline(epoch.receive(sent(response(2), *update(2))))[-1] == ("quotes", "snapshot", "end")


def test_a_suspended_stream_is_marked_and_asked_for_when_its_rest_is_over():
    clock = Clock()
    epoch = begun(clock=clock, suspensions={"quotes": 3.0, "trades": 0.0})
    frames = epoch.receive(sent(GREETING))
    assert [(frame.stream, json.loads(frame.body)) for frame in frames[2:]] == [
        ("quotes", {"mark": "stream suspended", "level": "warning", "seconds": 3.0})
    ]
    assert requested_tables(epoch.requests()[0]) == [(1, "Trades", "updates_only")]
    assert epoch.subscribed_streams == {"trades"}
    clock.now += 3
    assert requested_tables(epoch.requests()[0]) == [(2, "Quotes", "snapshot_with_updates")]


def test_a_request_that_cannot_be_sent_fails_its_table_alone():
    epoch = begun({"wide": DeephavenTable(source="x" * 70_000), "quotes": TABLES["quotes"]})
    epoch.receive(sent(GREETING))
    request, marked = epoch.requests()
    assert [(each.stream, json.loads(each.body)["mark"]) for each in marked] == [
        ("wide", "subscription failed"),
        ("quotes", "snapshot asked"),
    ]
    assert [table for _, table, _ in requested_tables(request)] == ["Quotes"]
    assert epoch.wait() is None


def test_a_message_of_an_unknown_template_is_kept_and_the_epoch_goes_on():
    epoch = subscribed()
    unknown, *rest = epoch.receive(sent(UNKNOWN, *update(1)))
    details = json.loads(unknown.body)
    assert (unknown.kind, details["mark"], b64decode(details["body"])) == ("mark", "unknown template", UNKNOWN)
    assert outline(rest)[-1] == ("quotes", "snapshot", "end")


def test_a_flood_of_messages_of_an_unknown_template_is_told_by_powers_of_ten():
    epoch = subscribed()
    reports = [json.loads(frame.body) for _ in range(2) for frame in epoch.receive(sent(*[UNKNOWN] * 60))]
    assert [each["count"] for each in reports] == [1, 10, 100]
