"""What a bad stream does to one connection: good frames stay, the bad one is kept, the end is marked."""

import json
from base64 import b64decode, b64encode

import pytest

from silverfold.connectors.deephaven.protocol.frames import frame
from tests.support.deephaven.epoch import begun, marks, outline, subscribed
from tests.support.deephaven.frames import GREETING, begin, end, response, rows, sent, update
from tests.support.deephaven.vectors import VECTORS

UNKNOWN = VECTORS["unknown-template"].body


def bad_header(body, *, schema_id):
    return body[:4] + schema_id.to_bytes(2, "little") + body[6:]


NOT_UTF8 = response(1).replace(b"\x01\x00\x00\x00n", b"\x01\x00\x00\x00\xff")

# name: what the server sends once both tables stand, what is kept of it, error class, reason, stream that is blamed
BAD = {
    "a truncated message": (frame(rows(1)[:10]), rows(1)[:10], "TRUNCATED_MESSAGE", "truncated", None),
    "a message without a whole header": (frame(b"\1\2\3"), frame(b"\1\2\3"), "TRUNCATED_MESSAGE", "short-frame", None),
    "an oversized message": (
        b"\xff\xff\xff\x7f\0\0",
        b"\xff\xff\xff\x7f\0\0",
        "OVERSIZED_MESSAGE",
        "frame-too-large",
        None,
    ),
    "a wrong schema id": (
        frame(bad_header(begin(1), schema_id=77)),
        bad_header(begin(1), schema_id=77),
        "INVALID_VALUE",
        "schema-id",
        None,
    ),
    "text that is not UTF-8": (frame(NOT_UTF8), NOT_UTF8, "INVALID_VALUE", "charset", "quotes"),
    "an end without a begin": (
        frame(end(1)),
        end(1),
        "REMOTE_PROTOCOL_ERROR",
        "EndTableUpdate without BeginTableUpdate",
        "quotes",
    ),
    "a begin inside an open update": (
        sent(begin(2), begin(2)),
        begin(2),
        "REMOTE_PROTOCOL_ERROR",
        "inside an open update",
        "trades",
    ),
    "rows outside an update": (frame(rows(1)), rows(1), "REMOTE_PROTOCOL_ERROR", "outside an update", "quotes"),
    "data for an unknown subscription": (
        frame(begin(42)),
        begin(42),
        "REMOTE_PROTOCOL_ERROR",
        "never requested",
        None,
    ),
    "a second greeting": (frame(GREETING), GREETING, "REMOTE_PROTOCOL_ERROR", "second ConnectionResponse", None),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bytes_land_as_a_mark_after_all_that_was_good_and_end_the_epoch(name):
    wire, retained, error_class, reason, stream = BAD[name]
    epoch = subscribed()
    frames = epoch.receive(sent(*update(2)) + wire)
    assert outline(frames)[:3] == [
        ("trades", "data", "begin"),
        ("trades", "data", "inside"),
        ("trades", "data", "end"),
    ]
    bad = frames[-1]
    details = json.loads(bad.body)
    assert (details["mark"], details["error_class"], bad.stream) == ("bad frame", error_class, stream)
    assert reason in details["reason"]
    assert details["body"] == b64encode(retained).decode()
    assert epoch.error.stream == stream
    assert epoch.error.retryable


def test_after_the_end_of_an_epoch_further_bytes_give_nothing():
    epoch = subscribed()
    epoch.receive(sent(end(1)))
    assert epoch.receive(sent(*update(2))) == []


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 64, b"\xff" * 64, sent(begin(1)), sent(UNKNOWN)]
)
def test_garbage_before_the_first_frame_is_kept_and_ends_the_epoch(garbage):
    epoch = begun()
    frames = epoch.receive(garbage)
    assert not epoch.greeted
    assert [each["mark"] for each in marks(frames)] == ["bad frame"]
    assert b64decode(marks(frames)[0]["body"]) == garbage
    assert epoch.error is not None


WIRE = sent(GREETING, response(1), response(2), *update(1), begin(1), begin(2), rows(1))


@pytest.mark.parametrize("length", range(len(WIRE)))
def test_a_connection_cut_anywhere_lands_every_whole_frame_and_ends_with_marks(length):
    epoch = begun()
    frames = []
    for at in range(length):
        frames += epoch.receive(WIRE[at : at + 1])
        epoch.requests()
    before = [frame for frame in frames if frame.kind != "mark"]
    whole, wire = 0, WIRE[:length]
    while len(wire) >= 4 and len(wire) >= 4 + int.from_bytes(wire[:4], "little"):
        whole, wire = whole + 1, wire[4 + int.from_bytes(wire[:4], "little") :]
    assert len(before) == whole
    ending = epoch.receive_eof()
    assert {frame.kind.value for frame in ending} <= {"mark"}
    assert (epoch.error is not None) == bool(wire or not length)


def test_updates_open_at_the_end_of_the_connection_are_marked_void():
    epoch = subscribed()
    epoch.receive(sent(begin(1), rows(1), begin(2)))
    frames = epoch.receive_eof()
    assert [(frame.stream, json.loads(frame.body)) for frame in frames] == [
        ("quotes", {"mark": "update void"}),
        ("trades", {"mark": "update void"}),
    ]
    assert epoch.error is None


def test_our_own_stop_lands_what_is_whole_and_finds_no_fault_with_the_rest():
    epoch = subscribed()
    wire = sent(begin(1), rows(1), rows(1))
    frames = epoch.receive(wire[:-5]) + epoch.stop()
    assert outline(frames) == [
        ("quotes", "snapshot", "begin"),
        ("quotes", "snapshot", "inside"),
        ("quotes", "mark", "none"),
    ]
    assert marks(frames) == [{"mark": "update void"}]
