"""A table that is asked for in vain: what the marks name, and which of them stays a stream's newest."""

from __future__ import annotations

import json

import pytest

from silverfold.conf.errors import TruncatedMessage
from silverfold.connectors.tengi.protocol import Packet
from silverfold.connectors.tengi.protocol.events import BadFrame
from silverfold.connectors.tengi.protocol.feed.packets import Newest, Pong, Position, Subscribe
from tests.support.tengi.landed import EPOCH, change, schema, snapshot
from tests.support.tengi.played import Played, changes
from tests.support.tengi.receiving import landed_positions


def test_a_table_that_is_asked_for_in_vain_names_the_newest_bad_frame_as_its_newest_mark() -> None:
    played = Played(subscribe_wait=10)
    for wait in (10, 20, 40):
        for reason in ("older", "cut"):
            bad = BadFrame(TruncatedMessage("it breaks off", offset=256, reason=reason), b"bytes")
            played.frames += played.epoch.take(bad, played.now)
        played.wait(wait)
    warning = json.loads(played.frames[-1].body)
    assert warning["mark"] == "asked in vain"
    assert warning["reason"] == "cut at byte 256: it breaks off"
    asked = len(played.asked)
    for _ in range(6):
        played.wait(320)
    assert [each for each in played.asked[asked:] if isinstance(each, Subscribe)] == [Subscribe("orders", -1)] * 6
    assert json.loads(played.frames[-1].body) == warning
    played.wait(320)
    assert json.loads(played.frames[-1].body).items() >= {("mark", "asked in vain"), ("times", 10)}
    assert "reason" not in json.loads(played.frames[-1].body)


def test_a_table_that_loses_its_position_after_many_subscriptions_in_vain_asks_for_a_snapshot_later_too() -> None:
    played = Played(7, subscribe_wait=10)
    for _ in range(5):
        played.wait(320)
    played.take(Pong(1, {"orders": Newest(Position(EPOCH, 3))}).to_packet())
    positions = {"orders": str(Position(EPOCH, 7))} | landed_positions(played.frames)
    assert Played(positions).asked == [Subscribe("orders", -1)]


def subscriptions(played: Played) -> int:
    return sum(isinstance(each, Subscribe) for each in played.asked)


def newer(seq: int) -> Packet:
    return change(seq, "DELETE", version=3, key={"id": seq})


@pytest.mark.parametrize("answer", [[schema(), newer(2)], [schema(), snapshot(1, []), newer(2)], [schema()]])
def test_rows_of_a_version_that_no_schema_has_are_warned_of_with_both_versions(answer: list[Packet]) -> None:
    played = Played(1, subscribe_wait=10)
    played.take(schema(), newer(2))
    for seconds in (10, 20, 40):
        played.wait(seconds - 1)
        asked = subscriptions(played)
        played.wait(1)
        assert subscriptions(played) == asked + 1
        if seconds < 40:
            played.take(*answer)
    assert played.newest_mark == {
        "mark": "asked in vain",
        "level": "warning",
        "times": 3,
        "version": 3,
        "newest": 1,
        "reason": "rows of version 3 wait for a schema, and the newest has version 1",
    }
    for _ in range(97):
        played.take(*answer)
        played.wait(320)
    warnings = [json.loads(frame.body)["times"] for frame in played.frames if b"asked in vain" in frame.body]
    assert warnings == [3, 10, 100]


@pytest.mark.parametrize("first", [-7, 1])
def test_the_schema_that_rows_wait_for_ends_the_row_of_subscriptions_in_vain(first: int) -> None:
    played = Played(1, subscribe_wait=10)
    awaited = change(2, "DELETE", version=first + 1, key={"id": 2})
    for _ in range(2):
        played.take(schema(version=first), awaited)
        played.wait(320)
    played.take(schema(version=first + 1), schema(version=first))
    assert played.boundaries[-1] == "data whole 2"
    for _ in range(3):  # the first one asks because the table is quiet
        played.wait(320)
    assert played.marks == []
    played.wait(320)
    assert played.newest_mark == {"mark": "asked in vain", "level": "warning", "times": 3}


def test_an_older_schema_is_an_answer_if_a_newer_one_has_all_rows() -> None:
    played = Played(1, subscribe_wait=10)
    played.take(change(2, "DELETE", version=2, key={"id": 2}), schema(version=2))
    for _ in range(2):
        for _ in range(3):  # the first one asks because the table is quiet
            played.wait(320)
        played.take(schema())
    assert played.marks == []


def test_rows_that_came_without_any_schema_are_warned_of() -> None:
    played = Played(1, subscribe_wait=10)
    for _ in range(3):
        played.take(*changes(2))
        played.wait(320)
    assert played.newest_mark["reason"] == "rows of version 1 wait for a schema, and none came"


def test_rows_without_room_that_wait_for_a_schema_are_asked_for_again() -> None:
    played = Played(1, subscribe_wait=10, reorder_bytes=1 << 10)
    wide = newer(2).set_value("text", "x" * 1_100)
    for _ in range(3):
        played.take(schema(), wide)
        played.wait(320)
    assert played.marks[-1] == "asked in vain"
    assert played.newest_mark["version"] == 3


def test_a_schema_that_cannot_be_read_is_named_as_the_reason() -> None:
    played = Played(1, subscribe_wait=10)
    for _ in range(3):
        played.take(schema().set_value("version", 1 << 31))
        played.wait(320)
    assert played.newest_mark["reason"] == "wrong_type in version: int instead of a whole number of 32 bits"
