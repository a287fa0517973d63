"""Subscriptions: what a receiver gets for what it asks, when history lets go, and which mistakes are answered."""

from __future__ import annotations

from itertools import count

import pytest

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.tengi.protocol.values import Identifier, Int, Packet
from silverfold.connectors.tengi.server.feed.source import FeedOptions, FeedSession, FeedSource, Refusal
from silverfold.connectors.tengi.server.feed.tables import PartLimits, RowChanges, SourceTable
from tests.support.tengi.model_receiver import decoded

EPOCH, LATER = "00001700000000000000", "00001800000000000000"


@pytest.fixture
def table() -> SourceTable:
    found = SourceTable("orders", {"id": "bigint"}, ["id"], [{"id": 1}, {"id": 2}, {"id": 3}], epoch=EPOCH, history=4)
    for number in range(10, 16):
        found.apply(RowChanges(added=[{"id": number}]))
    return found


@pytest.fixture
def source(table: SourceTable) -> FeedSource:
    numbers = count()
    options = FeedOptions(
        subscription_ttl=60,
        part_limits=PartLimits(rows=5),
        new_id=lambda: Identifier(next(numbers).to_bytes(16)),
    )
    return FeedSource([table, SourceTable("empty", {"k": "int"}, ["k"], epoch=EPOCH)], options)


@pytest.fixture
def session(source: FeedSource) -> FeedSession:
    return FeedSession(source, 0.0)


def subscribe(table: str = "orders", after: object = -1, epoch: object = None) -> Packet:
    packet = Packet("subscribe", {"table": table, "from": after})
    return packet if epoch is None else packet.set_value("epoch", epoch)


def ack(seq: int, epoch: str = EPOCH, table: str = "orders") -> Packet:
    return Packet("ack", {"table": table, "epoch": epoch, "seq": seq})


def next_packet(session: FeedSession) -> Packet | None:
    outgoing = session.next_packet()
    return None if outgoing is None else decoded(outgoing)


def drain(session: FeedSession) -> list[str]:
    """Take all packets; each as its name, with its table's place."""
    found = []
    while (packet := next_packet(session)) is not None:
        part, seq, version, code = (int(packet.get_value(name, -1)) for name in ("part", "seq", "version", "code"))
        if packet.name == "snapshot":
            found.append(f"part {part} at {seq}")
        else:
            number = {"schema": version, "error": code}.get(packet.name, seq)
            found.append(f"{packet.name} {number}")
    return found


SNAPSHOT = ["schema 1", "part 0 at 6", "part 1 at 6"]


@pytest.mark.parametrize(
    ("after", "epoch", "expected"),
    [
        (-1, None, SNAPSHOT),
        (-1, EPOCH, SNAPSHOT),
        (4, None, SNAPSHOT),
        (4, "00000000000000000000", SNAPSHOT),
        (4, LATER, SNAPSHOT),
        (1, EPOCH, SNAPSHOT),
        (-2, EPOCH, SNAPSHOT),
        (7, EPOCH, SNAPSHOT),
        (2, EPOCH, ["schema 1", "change 3", "change 4", "change 5", "change 6"]),
        (5, EPOCH, ["schema 1", "change 6"]),
        (Int(5), EPOCH, ["schema 1", "change 6"]),
        (6, EPOCH, ["schema 1"]),
    ],
)
def test_a_subscription_continues_where_history_allows_and_begins_with_a_snapshot_elsewhere(
    session: FeedSession, after: int, epoch: str | None, expected: list[str]
) -> None:
    session.receive(subscribe(after=after, epoch=epoch), 0.0)
    assert drain(session) == expected


def test_changes_follow_all_parts_of_a_snapshot(session: FeedSession, table: SourceTable) -> None:
    session.receive(subscribe(), 0.0)
    assert [session.next_packet() for _ in range(2)][1] is not None
    table.apply(RowChanges(removed=[(1,)]))
    assert drain(session) == ["part 1 at 6", "change 7"]


def test_an_empty_table_is_one_part_without_rows(session: FeedSession) -> None:
    session.receive(subscribe("empty"), 0.0)
    assert drain(session) == ["schema 1", "part 0 at 0"]


def test_a_new_subscription_replaces_the_one_before_and_its_snapshot(session: FeedSession) -> None:
    session.receive(subscribe(), 0.0)
    assert session.next_packet() is not None
    assert session.next_packet() is not None
    session.receive(subscribe(after=5, epoch=EPOCH), 0.0)
    assert drain(session) == ["schema 1", "change 6"]


def test_subscriptions_take_turns(session: FeedSession) -> None:
    session.receive(subscribe(), 0.0)
    session.receive(subscribe("empty"), 0.0)
    packets = [next_packet(session) for _ in range(5)]
    assert [each.get_value("table") for each in packets if each] == ["orders", "empty", "orders", "empty", "orders"]


def test_a_subscriber_that_history_has_overtaken_gets_a_snapshot(session: FeedSession, table: SourceTable) -> None:
    session.receive(subscribe(after=5, epoch=EPOCH), 0.0)
    assert drain(session) == ["schema 1", "change 6"]
    for number in range(20, 26):
        table.apply(RowChanges(added=[{"id": number}]))
    assert drain(session) == ["part 0 at 12", "part 1 at 12", "part 2 at 12"]


def test_a_new_epoch_begins_with_a_snapshot(session: FeedSession, table: SourceTable) -> None:
    session.receive(subscribe(), 0.0)
    assert drain(session) == SNAPSHOT
    table.begin_epoch(LATER)
    table.apply(RowChanges(removed=[(1,)]))
    assert drain(session) == ["part 0 at 1", "part 1 at 1"]
    table.apply(RowChanges(removed=[(2,)]))
    assert drain(session) == ["change 2"]


def test_each_version_comes_before_the_first_change_that_has_it(session: FeedSession, table: SourceTable) -> None:
    table.set_columns({"id": "bigint", "name": "string"})
    table.apply(RowChanges(removed=[(1,)]))
    session.receive(subscribe(after=5, epoch=EPOCH), 0.0)
    assert drain(session) == ["schema 1", "change 6", "schema 2", "change 7"]
    table.set_columns({"id": "bigint"})
    assert drain(session) == ["schema 3"]


def test_acknowledged_history_goes_when_all_subscribers_have_it(source: FeedSource, table: SourceTable) -> None:
    one, other = FeedSession(source, 0.0), FeedSession(source, 0.0)
    one.receive(subscribe(after=2, epoch=EPOCH), 0.0)
    other.receive(subscribe(after=3, epoch=EPOCH), 0.0)
    drain(one)
    drain(other)
    one.receive(ack(6), 0.0)
    assert table.oldest == 4
    other.receive(ack(5), 0.0)
    assert table.oldest == 6
    other.close()
    one.receive(ack(6), 0.0)
    assert table.oldest == 7


@pytest.mark.parametrize("packet", [ack(7), ack(6, LATER), ack(6, table="empty")])
def test_an_acknowledgement_of_what_was_not_sent_is_ignored(
    session: FeedSession, table: SourceTable, packet: Packet
) -> None:
    session.receive(subscribe(after=2, epoch=EPOCH), 0.0)
    drain(session)
    session.receive(packet, 0.0)
    assert (table.oldest, drain(session)) == (3, [])


def test_an_old_epochs_acknowledgement_releases_nothing_of_the_new_one(
    session: FeedSession, source: FeedSource, table: SourceTable
) -> None:
    session.receive(subscribe(after=6, epoch=EPOCH), 0.0)
    drain(session)
    table.begin_epoch(LATER)
    table.apply(RowChanges(removed=[(1,)]))
    session.receive(ack(6), 0.0)
    assert table.oldest == 1


def test_a_ping_is_answered_with_its_number(session: FeedSession) -> None:
    session.receive(Packet("ping", {"seq": 7}), 0.0)
    session.receive(Packet("ping", {"seq": Int(8)}), 0.0)
    assert [next_packet(session) for _ in range(3)] == [
        Packet("pong", {"seq": 7}),
        Packet("pong", {"seq": 8}),
        None,
    ]


@pytest.mark.parametrize(
    "body",
    [
        "text",
        Packet("hello"),
        Packet("subscribe"),
        Packet("subscribe", {"table": "orders"}),
        subscribe(after="1"),
        subscribe(epoch=5),
        Packet("subscribe", {"table": 1, "from": 1}),
        Packet("ack", {"table": "orders", "epoch": EPOCH}),
        ack(-5),
        Packet("ping"),
        Packet("ping", {"seq": "1"}),
        Packet("error", {"code": Int(1), "text": "x"}),
    ],
)
def test_what_is_not_understood_is_answered_by_code_2(session: FeedSession, body: object) -> None:
    session.receive(body, 0.0)
    assert drain(session) == ["error 2"]


@pytest.mark.parametrize("length", [1_000, 1_001])
def test_an_unknown_table_is_answered_by_code_1_and_its_name_up_to_a_bound(session: FeedSession, length: int) -> None:
    session.receive(subscribe("x" * length), 0.0)
    packet = next_packet(session)
    assert packet == Packet("error", {"code": Int(1), "text": "there is no such table", "table": "x" * 1_000})


@pytest.mark.parametrize("code", [3, 4, 99])
def test_a_table_is_refused_by_the_code_it_has_and_served_when_it_has_none(
    session: FeedSession, source: FeedSource, code: int
) -> None:
    source.refusals["orders"] = Refusal(code, "not now")
    session.receive(subscribe(), 0.0)
    assert drain(session) == [f"error {code}"]
    del source.refusals["orders"]
    session.receive(subscribe(), 0.0)
    assert drain(session) == SNAPSHOT


def test_a_receiver_expires_a_while_after_its_last_packet(session: FeedSession) -> None:
    assert session.expires_at == 60.0
    session.receive(subscribe(), 100.0)
    assert session.expires_at == 160.0
    session.receive("not understood", 159.9)
    assert session.expires_at == 219.9


def test_a_closed_session_has_no_part_in_anything(session: FeedSession, source: FeedSource, table: SourceTable) -> None:
    session.receive(subscribe(after=2, epoch=EPOCH), 0.0)
    session.close()
    session.close()
    assert session.next_packet() is None
    assert not source.sessions


def test_a_receiver_that_never_reads_its_answers_is_dropped(session: FeedSession) -> None:
    for number in range(1000):
        session.receive(Packet("ping", {"seq": number}), 0.0)
    with pytest.raises(RemoteProtocolError, match="unread_answers"):
        session.receive(Packet("ping", {"seq": 1}), 0.0)
