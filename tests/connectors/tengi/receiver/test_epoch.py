"""What lands of each packet, and what is asked for when: without a link, at times passed in."""

from __future__ import annotations

import json

import pytest

from silverfold.conf.errors import RemoteProtocolError, SourceRefused, TruncatedMessage
from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.connectors.tengi.protocol import Identifier, Int, Packet
from silverfold.connectors.tengi.protocol.events import BadFrame, MessageReceived
from silverfold.connectors.tengi.protocol.feed.packets import (
    Ack,
    Newest,
    Ping,
    Pong,
    Position,
    Schema,
    SourceError,
    Subscribe,
)
from silverfold.connectors.tengi.protocol.registry import BUILT_IN
from silverfold.connectors.tengi.receiver.epoch import Refused
from tests.support.tengi.landed import CONNECTION, EPOCH, MESSAGE, change, entry, frame_of, schema, snapshot
from tests.support.tengi.played import BODY_AT, Played, changes
from tests.support.tengi.receiving import landed_positions

WIDER = schema({"id": "bigint", "name": "string", "price": "double", "note": "string"}, version=2)
ONE = entry(row={"id": 1, "name": "one", "price": 1.5})


def test_a_table_without_a_position_is_asked_for_from_its_beginning() -> None:
    played = Played()
    assert played.asked == [Subscribe("orders", -1)]
    assert played.marks == ["snapshot asked"]
    played.take(schema(), *changes(3), snapshot(2, [ONE], last=False), snapshot(2, [], part=1))
    assert played.boundaries == ["control none", "snapshot begin", "snapshot end 2", "data whole 3"]
    assert played.frames[1] == Frame(frame_of(schema()), Kind.CONTROL, Boundary.NONE, "orders")


def test_a_table_with_a_position_is_asked_for_behind_it() -> None:
    played = Played(7)
    assert played.asked == [Subscribe("orders", 7, EPOCH)]
    played.take(schema(), *changes(7, 9, 8))
    assert played.boundaries == ["control none", "data whole 8", "data whole 9"]
    assert played.marks == []


def test_a_missing_change_is_marked_as_a_gap_and_asked_for_again_and_ends_the_epoch_the_third_time() -> None:
    played = Played(1, reorder_wait=5)
    played.take(schema(), *changes(3))
    played.wait(4.9)
    assert played.marks == []
    played.wait(0.2)
    assert played.marks == ["gap"]
    assert played.asked[-1] == Subscribe("orders", 1, EPOCH)
    played.wait(5.1)
    with pytest.raises(RemoteProtocolError, match="2 to 2"):
        played.wait(5.1)


def test_what_does_not_fit_the_bound_is_given_up_and_asked_for() -> None:
    played = Played(1, reorder_packets=1)
    played.take(schema(), *changes(3, 5))
    assert played.marks == ["given up", "gap"]
    assert played.asked[-1] == Subscribe("orders", 1, EPOCH)


def test_of_many_that_do_not_fit_the_first_asks_for_all() -> None:
    played = Played(1, reorder_packets=2)
    played.take(schema(), *changes(3, 4, 5, 6, 7, 8))
    assert played.marks == ["given up", "gap", *["given up"] * 3]
    assert played.asked == [Subscribe("orders", 1, EPOCH)] * 2
    played.take(schema(), *changes(2, 3, 4, 5, 6, 7, 8))
    assert played.boundaries == ["control none", *(f"data whole {seq}" for seq in range(2, 9))]


def test_rows_of_a_version_that_is_not_known_yet_wait_for_their_schema() -> None:
    played = Played(1)
    played.take(change(2, "DELETE", key={"id": 1}), schema())
    assert played.boundaries == ["control none", "data whole 2"]
    played.take(change(3, "DELETE", version=2, key={"id": 2}), schema(version=2))
    assert played.boundaries[2:] == ["control none", "data whole 3"]


def test_a_schema_that_does_not_come_is_asked_for_again_and_what_waits_is_bounded() -> None:
    played = Played(1, subscribe_wait=10, reorder_packets=2)
    played.take(*changes(2, 3, 4))
    assert played.marks == ["given up"]
    played.wait(10)
    assert played.asked == [Subscribe("orders", 1, EPOCH)] * 2
    played.take(schema())
    assert played.boundaries == ["control none", "data whole 2", "data whole 3"]
    played.wait(10)
    assert [each for each in played.asked if isinstance(each, Subscribe)] == [Subscribe("orders", 1, EPOCH)] * 2


def test_a_snapshot_whose_next_part_does_not_come_is_asked_for_again() -> None:
    played = Played(snapshot_wait=30)
    played.take(schema(), snapshot(2, [ONE], last=False))
    played.wait(29)
    assert played.asked == [Subscribe("orders", -1), Ping(1)]
    played.wait(1)
    assert played.asked[-1] == Subscribe("orders", -1)
    assert played.marks == ["snapshot asked", "snapshot asked"]


def test_another_snapshot_is_asked_for_in_place_of_one_that_nobody_asked_for_and_that_does_not_end() -> None:
    played = Played(1, snapshot_wait=30)
    played.take(schema(), *changes(2), snapshot(5, [ONE], last=False))
    played.wait(30)
    assert played.asked[-1] == Subscribe("orders", -1)
    assert Played(landed_positions(played.frames)).asked == [Subscribe("orders", -1)]
    other = snapshot(5, [ONE]).set_value("id", Identifier(bytes(16)))
    played.take(schema(), *changes(6), other, *changes(7))
    assert played.boundaries[2:] == ["snapshot begin", "snapshot whole 5", "data whole 6", "data whole 7"]


def test_while_nobody_reads_no_packet_is_late_and_pings_go_out() -> None:
    played = Played(1, ping_interval=10, reorder_wait=5, snapshot_wait=30)
    played.take(schema(), *changes(3), snapshot(5, [ONE], last=False))
    assert played.epoch.due(1_000.0, is_reading=False) == []
    assert played.epoch.requests() == [Ping(1)]
    played.epoch.postpone(1_000.0)
    played.wait(1_029)
    assert [each for each in played.asked if isinstance(each, Subscribe)] == [Subscribe("orders", 1, EPOCH)]
    played.wait(1)
    assert played.asked[-1] == Subscribe("orders", -1)


def test_a_missing_change_has_longer_by_the_time_in_which_nobody_read() -> None:
    played = Played(1, reorder_wait=5)
    played.take(schema(), *changes(3))
    played.epoch.postpone(60.0)
    played.wait(64)
    assert played.marks == []
    played.wait(1)
    assert played.marks == ["gap"]


def test_a_quiet_table_is_asked_for_again_now_and_then() -> None:
    played = Played(1, resubscribe_idle=300)
    played.take(schema(), *changes(2))
    played.wait(299)
    played.wait(1)
    assert played.asked == [Subscribe("orders", 1, EPOCH), Ping(1), Subscribe("orders", 2, EPOCH)]
    played.take(schema())
    assert played.boundaries == ["control none", "data whole 2"]


def test_new_columns_are_followed_by_a_snapshot_also_after_a_new_connection() -> None:
    schemas: dict[str, Schema] = {}
    first = Played(1, schemas)
    first.take(schema())
    assert first.asked == [Subscribe("orders", 1, EPOCH)]
    second = Played(1, schemas)
    second.take(WIDER)
    assert second.asked == [Subscribe("orders", 1, EPOCH), Subscribe("orders", -1)]
    second.take(WIDER, *changes(2))
    assert second.asked[2:] == []
    assert second.boundaries == ["control none"]


def test_a_schema_that_did_not_land_is_new_on_the_next_connection() -> None:
    schemas: dict[str, Schema] = {}
    Played(1, schemas).take(schema())
    bad = [snapshot(5, [ONE], part=1, last=False, version=2), snapshot(5, [ONE], part=0, version=2)]
    with pytest.raises(RemoteProtocolError, match="behind its last"):
        Played(1, schemas).take(*bad, WIDER)
    again = Played(1, schemas)
    again.take(WIDER)
    assert again.asked[-1] == Subscribe("orders", -1)


@pytest.mark.parametrize(
    ("later", "asks"),
    [
        (schema({"id": "bigint", "name": "string", "price": "float"}, version=2), True),
        (schema(keys=("id", "name"), version=2), True),
        (schema({"id": "bigint", "name": "string"}, version=2), False),
        (schema(version=2), False),
        (schema(version=3), True),  # version 2 may have lacked a column
    ],
)
def test_another_type_other_keys_or_a_missing_version_are_followed_by_a_snapshot_and_a_column_less_is_not(
    later: Packet, asks: bool
) -> None:
    played = Played(1)
    played.take(schema(), later)
    assert played.asked[1:] == [Subscribe("orders", -1)] * asks


def test_a_new_schema_voids_a_snapshot_under_way_and_late_parts_of_an_older_version_are_dropped() -> None:
    played = Played()
    played.take(schema(), snapshot(2, [ONE], last=False), WIDER, snapshot(2, [], part=1))
    assert played.asked == [Subscribe("orders", -1)] * 2
    played.take(WIDER, snapshot(2, [ONE]), snapshot(3, [ONE], version=2))
    assert played.boundaries == ["control none", "snapshot begin", "control none", "snapshot whole 3"]


def test_a_snapshot_that_was_asked_for_and_did_not_complete_is_asked_for_again_on_every_connection() -> None:
    played = Played(1)
    played.take(schema(), *changes(2), WIDER)
    for last in (False, False, True):
        played = Played(landed_positions(played.frames))
        assert played.asked == [Subscribe("orders", -1)]
        played.take(WIDER, snapshot(2, [ONE], last=last, version=2))
    assert Played(landed_positions(played.frames)).asked == [Subscribe("orders", 2, EPOCH)]


def test_what_landed_is_acknowledged_once() -> None:
    played = Played(1)
    assert played.epoch.landed == {}
    played.take(schema(), *changes(2, 3))
    committed = played.epoch.landed
    played.take(*changes(4))
    assert played.epoch.acknowledge(committed) == [Ack("orders", Position(EPOCH, 3))]
    assert played.epoch.landed == {"orders": Position(EPOCH, 4)}
    played.epoch.acknowledge(played.epoch.landed)
    assert played.epoch.landed == {}


def test_pings_are_answered_and_sent_now_and_then() -> None:
    played = Played(1, ping_interval=15)
    played.take(schema(), Ping(9).to_packet(), Pong(1).to_packet())
    assert played.asked[1:] == [Pong(9)]
    played.wait(14)
    assert played.epoch.deadline == 15
    played.wait(1)
    assert played.asked[2:] == [Ping(1)]


def pong(seq: int, *, ts: int | None = None, epoch: str = EPOCH) -> Packet:
    """Return a pong of a source whose newest update has a number."""
    return Pong(1, {"orders": Newest(Position(epoch, seq), ts)}).to_packet()


def test_the_lag_is_reported_whenever_it_has_changed() -> None:
    played = Played(1, clock=lambda: 1_000.0)
    played.take(Pong(1).to_packet(), schema(), *changes(4), pong(5, ts=990_000_000), pong(8, ts=999_000_000))
    played.take(*changes(2, 3, 5), pong(8, ts=999_000_000), *changes(6, 7, 8), pong(8), pong(8))
    behind = [
        {"updates_behind": 4, "updates_held": 1, "packets_repeated": 0, "seconds_behind": 10.0},
        {"updates_behind": 7, "updates_held": 1, "packets_repeated": 0, "seconds_behind": 10.0},
        {"updates_behind": 3, "updates_held": 0, "packets_repeated": 0, "seconds_behind": 1.0},
        {"updates_behind": 0, "updates_held": 0, "packets_repeated": 0, "seconds_behind": 0},
    ]
    assert played.progress == [{"table orders": each} for each in behind]


def seconds_behind(played: Played) -> float:
    return float(played.progress[-1]["table orders"]["seconds_behind"])


def test_a_lag_in_seconds_begins_with_the_first_update_reported_that_has_not_landed() -> None:
    played = Played(1, clock=lambda: 1_000.0)
    reports = [pong(seq, ts=seq * 100_000_000) for seq in (2, 4, 6, 8)]
    played.take(schema(), *reports, *changes(2, 3), reports[-1])
    assert seconds_behind(played) == 600
    played.take(*changes(4, 5, 6), reports[-1])
    assert seconds_behind(played) == 200


def test_of_thousands_of_reports_some_are_forgotten_and_the_lag_is_at_least_what_it_shows() -> None:
    played = Played(1, clock=lambda: 1_000.0)
    reports = [pong(seq, ts=seq * 100_000) for seq in range(2, 1_500)]
    played.take(schema(), *reports, *changes(2), reports[-1])
    assert seconds_behind(played) == 999.6
    played.take(*changes(*range(3, 1_499)), reports[-1])
    assert seconds_behind(played) == 850.1


def test_no_lag_is_reported_before_the_source_has_told_its_place_and_none_in_seconds_without_times() -> None:
    played = Played()
    played.take(schema(), pong(3))
    assert played.progress == []
    played.take(snapshot(3, [ONE]), pong(9, epoch="9" * 20), pong(3, epoch="0" * 20))
    assert played.progress == []
    played.take(pong(4))
    assert played.progress == [{"table orders": {"updates_behind": 1, "updates_held": 0, "packets_repeated": 0}}]
    played.take(pong(9, epoch="9" * 20))
    assert played.progress[1:] == [{}]


def behind(played: Played) -> list[float]:
    return [each["table orders"]["updates_behind"] for each in played.progress]


def test_while_a_snapshot_is_asked_for_the_lag_is_that_of_what_landed_last_on_later_connections_too() -> None:
    given_up, wider, landed = Played(1, snapshot_wait=30), Played(1), dict[str, Position]()
    given_up.take(schema(), *changes(2), pong(5), snapshot(5, [ONE], last=False), pong(6))
    given_up.wait(30)
    given_up.take(pong(9))
    assert behind(given_up) == [3, 4, 7]
    wider.take(schema(), *changes(2), pong(5), WIDER, pong(9))
    assert behind(wider) == [3, 7]
    Played(1, last_landed=landed).take(schema(), *changes(2, 3))
    again = Played(last_landed=landed)
    again.take(schema(), pong(9))
    assert behind(again) == [6]


def test_a_flood_of_pings_is_answered_up_to_a_bound() -> None:
    played = Played(1)
    event = MessageReceived(CONNECTION, MESSAGE, frame_of(Ping(9).to_packet()), BODY_AT, BUILT_IN)
    for _ in range(3000):
        played.epoch.take(event, 0.0)
    assert len(played.epoch.requests()) == 1000


def test_a_source_that_numbers_by_an_older_epoch_is_told_once() -> None:
    played = Played(7)
    older = [each.set_value("epoch", f"{int(EPOCH) - 1:020}") for each in changes(8, 9)]
    played.take(schema(), *older)
    assert played.marks == ["older epoch"]
    assert played.boundaries == ["control none"]
    assert json.loads(played.frames[-1].body)["landed"] == EPOCH


@pytest.mark.parametrize("report", [pong(5), snapshot(5, [ONE]), *changes(6)])
def test_a_source_that_has_lost_updates_is_asked_for_a_snapshot_once_and_its_new_updates_land(report: Packet) -> None:
    played = Played(7)
    played.take(schema(), report, report, *changes(6))
    assert played.asked[1:] == [Subscribe("orders", -1)]
    played.take(schema(), snapshot(5, [ONE]), *changes(7))
    assert played.marks[:2] == ["source behind", "snapshot asked"]
    assert played.boundaries[-3:] == ["snapshot whole 5", "data whole 6", "data whole 7"]
    assert landed_positions(played.frames) == {"orders": str(Position(EPOCH, 7))}


def test_reports_older_than_what_landed_on_the_same_connection_are_late_ones() -> None:
    played = Played(7)
    played.take(schema(), *changes(8, 9), pong(8), snapshot(8, [ONE]))
    assert played.asked[1:] == []
    assert played.boundaries == ["control none", "data whole 8", "data whole 9"]


@pytest.mark.parametrize("report", [pong(5), snapshot(5, [ONE]), *changes(6)])
def test_reports_of_an_epoch_that_is_over_are_late_ones(report: Packet) -> None:
    played = Played(7)
    newer = snapshot(0, [ONE]).set_value("epoch", "9" * 20).set_value("id", Identifier(bytes(16)))
    played.take(schema(), newer, report)
    assert played.asked[1:] == []
    assert played.boundaries == ["control none", "snapshot whole 0"]


@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_refused_table_is_not_asked_for_again_and_without_any_the_feed_ends(code: int) -> None:
    played = Played(1)
    with pytest.raises(SourceRefused, match="no") as raised:
        played.take(SourceError(code, "no", "orders").to_packet())
    assert isinstance(raised.value, Refused)
    assert json.loads(raised.value.frames[0].body)["mark"] == "source error"
    played.take(schema(), *changes(2))
    played.wait(10)
    assert played.boundaries == []


@pytest.mark.parametrize("named", [None, "orders"])
def test_a_table_that_cannot_be_served_now_is_asked_for_later(named: str | None) -> None:
    played = Played(1)
    played.take(SourceError(4, "later", named).to_packet())
    assert played.marks == ["source error"]
    played.wait(60)
    assert [each for each in played.asked if isinstance(each, Subscribe)] == [Subscribe("orders", 1, EPOCH)] * 2


def test_what_cannot_be_read_lands_as_a_mark() -> None:
    played = Played(1)
    played.take(Packet("rename"), Packet("change", {"table": "orders"}), Packet("schema", {"table": "orders"}))
    assert played.marks == ["bad frame"] * 3
    played.frames += played.epoch.take(BadFrame(TruncatedMessage("it ends", reason="truncated"), b"\1\2"), 0.0)
    assert json.loads(played.frames[-1].body)["error_class"] == "TRUNCATED_MESSAGE"
    played.frames.clear()
    played.take(*[schema(table="others")] * 20, Packet("subscribe", {"table": "orders", "from": 1}))
    assert [json.loads(frame.body)["count"] for frame in played.frames] == [1, 10, 1]


def test_a_part_of_a_snapshot_behind_its_last_ends_the_connection() -> None:
    played = Played()
    played.take(schema(), snapshot(2, [], part=3, last=True))
    with pytest.raises(RemoteProtocolError, match="behind its last"):
        played.take(snapshot(2, [], part=4, last=False))


def test_a_new_snapshot_voids_the_one_under_way() -> None:
    played = Played()
    other = snapshot(3, [ONE])
    other.set_value("id", Identifier(bytes(16))).set_value("part", Int(0))
    played.take(schema(), snapshot(2, [ONE], last=False), other, snapshot(2, [], part=1))
    assert played.boundaries == ["control none", "snapshot begin", "snapshot whole 3"]
