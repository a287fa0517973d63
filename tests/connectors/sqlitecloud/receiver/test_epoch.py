"""The course of an epoch, without a socket: what lands of notifications, and when tables fall due."""

import json
from random import Random

import pytest

from silverfold.conf.errors import WireError
from silverfold.connectors.common.backoff import Backoff, CircuitBreaker
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions
from silverfold.connectors.sqlitecloud.protocol.encode import encode_json
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, TableColumn
from silverfold.connectors.sqlitecloud.protocol.landed.payload import parse_streams
from silverfold.connectors.sqlitecloud.protocol.messages import Notification
from silverfold.connectors.sqlitecloud.receiver import deferred_checks
from silverfold.connectors.sqlitecloud.receiver.deferred_checks import named_table
from silverfold.connectors.sqlitecloud.receiver.epoch import Epoch
from tests.support.chance import Highest
from tests.support.sqlitecloud.receiving import Sink

FOO = Description("foo", (TableColumn("id", "INTEGER", pk=1), TableColumn("a", "TEXT")), ("id",))


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def epoch_of(*tables, channels=(), **options):
    clock = Clock()
    breaker = CircuitBreaker(lambda: Backoff(1.0, 60.0, Highest()), clock)
    epoch = Epoch(
        {},
        SqliteCloudOptions(**options),
        channel="ours",
        backoff=lambda: Backoff(1.0, 60.0, Random(1)),
        circuit_breaker=breaker,
        clock=clock,
        channels=channels,
    )
    return epoch, clock, [epoch.add(table) for table in tables]


def insert(number, **columns):
    entry = {"sqlite_type": "INSERT", "id": number, **columns}
    return text(channel="foo", channel_type="TABLE", sqlite_pk_name=["id"], payload=[entry])


def text(**members):
    return json.dumps({"sender": "b7a92805", **members}, ensure_ascii=False, separators=(",", ":")).encode()


def notifications(*texts):
    return [Notification(each, encode_json(each)) for each in texts]


def snapshot_end(table):
    """Let the table have had a snapshot of no rows."""
    table.begin(FOO)
    assert len(table.close(1000.0)) == 1


def outline(frames, stream="foo"):
    return Sink(frames).outline(stream)


@pytest.mark.parametrize(
    "odd",
    [
        insert(1),
        text(channel="foo", type="TABLE", pk=["id"], payload=[]),
        text(channel="foo", type="TABLE", channel_type="MESSAGE"),
        text(channel="foo", channel_type="MESSAGE", type="TABLE"),
        text(channel='fo"o', channel_type="TABLE"),
        text(channel="foo", sender2=1, channel_type="TABLE"),
        b'{"sender":0,"channel":"foo","channel_type":"TABLE","channel":"bar"}',
        b'{"sender":0,"channel":"f\\u006fo","channel_type":"TABLE"}',
        b'{"sender":0,"channel":"","channel_type":"TABLE"}',
        b'{ "sender":0,"channel":"foo","channel_type":"TABLE"}',
        b'{"channel_type":"MESSAGE","sender":0,"channel":"foo","channel_type":"TABLE"}',
    ],
)
def test_a_table_told_from_the_beginning_is_the_one_that_reading_it_all_tells(odd):
    begins = named_table(odd)
    try:
        streams = parse_streams(odd)
    except WireError:
        streams = []
    assert begins is None or [begins[1].decode()] == streams


def test_most_texts_tell_their_table_from_the_beginning():
    assert named_table(insert(1))[1] == b"foo"
    assert named_table(text(channel="foo", type="TABLE", pk=["id"]))[1] == b"foo"
    assert named_table(text(channel="foo", channel_type="MESSAGE")) is None


def test_what_lands_unread_is_read_later_and_lets_the_table_be_due():
    epoch, _, (foo,) = epoch_of("foo")
    snapshot_end(foo)
    assert outline(epoch.receive(notifications(insert(1, a=[]), insert(2, b="new")))) == ["data, whole", "data, whole"]
    assert foo.due is None or foo.due > 1000 + 3600
    assert outline(epoch.check(1)) == []
    due = epoch.check(100)
    assert outline(due) == ["snapshot due"]
    assert json.loads(due[0].body)["level"] == "warning"  # it has only just had one
    assert epoch.check(100) is None
    assert 1000 <= foo.due <= 1001


def test_what_says_nothing_new_is_never_read():
    epoch, _, (foo,) = epoch_of("foo")
    snapshot_end(foo)
    assert outline(epoch.receive(notifications(insert(1), insert(2, a="é")))) == ["data, whole", "data, whole"]
    assert epoch.check(100) is None


def test_when_too_much_waits_notifications_are_read_before_they_land(monkeypatch):
    monkeypatch.setattr(deferred_checks, "MOST_BYTES", 1)
    epoch, _, (foo,) = epoch_of("foo")
    snapshot_end(foo)
    frames = epoch.receive(notifications(insert(1, b="new"), insert(2, b="new")))
    assert outline(frames) == ["data, whole", "data, whole", "snapshot due"]
    assert epoch.check(100) == []


def test_what_landed_before_an_attempt_began_is_not_held_against_it():
    epoch, _, (foo,) = epoch_of("foo")
    snapshot_end(foo)
    epoch.receive(notifications(insert(1, b="new"), b'{"sender":0,"channel":"foo","channel_type":"TABLE",'))
    foo.begin(FOO)
    assert epoch.check(100) == []
    assert outline(foo.close(1000.0)) == ["snapshot complete, end"]


def test_a_text_that_ends_too_early_is_found_later_and_told():
    epoch, _, (foo,) = epoch_of("foo")
    snapshot_end(foo)
    assert outline(epoch.receive(notifications(b'{"sender":0,"channel":"foo","channel_type":"TABLE",'))) == [
        "data, whole"
    ]
    assert outline(epoch.check(100)) == ["bad notification", "snapshot due"]


def test_what_cannot_be_read_of_a_table_that_nobody_captures_is_told_once():
    epoch, _, _ = epoch_of("foo")
    bad = b'{"sender":0,"channel":"bar","channel_type":"TABLE",'
    assert outline(epoch.receive(notifications(bad, bad)), "bar") == ["data, whole", "bad notification", "data, whole"]


def test_notifications_in_an_open_window_are_read_at_once_and_a_bad_one_voids_it():
    epoch, _, (foo,) = epoch_of("foo")
    foo.begin(FOO)
    assert outline(epoch.receive(notifications(insert(1), b'{"sender":0,"channel":"foo","channel_type":"TABLE",'))) == [
        "data, whole",
        "data, whole",
        "bad notification",
    ]
    assert epoch.check(100) is None
    assert outline(foo.close(1000.0)) == ["snapshot void"]


def test_another_version_of_the_schema_voids_an_open_window_and_lets_a_whole_snapshot_be_due_again():
    epoch, _, (foo, bar) = epoch_of("foo", "bar")
    foo.begin(FOO, 7)
    bar.begin(FOO, 7)
    assert outline(bar.close(1000.0), "bar") == ["snapshot complete, end"]
    assert epoch.compare_schema(7) == []
    assert [json.loads(frame.body)["mark"] for frame in epoch.compare_schema(8)] == ["snapshot due"]
    assert Sink(foo.close(1000.0)).marks("snapshot void")[0]["reason"] == "schema_changed"
    bar.begin(FOO, 8)
    assert epoch.compare_schema(8) == []


def test_an_attempt_described_before_the_schema_changed_is_void_whoever_saw_the_change_first():
    epoch, _, (foo,) = epoch_of("foo")
    epoch.compare_schema(8)
    foo.begin(FOO, 7)
    epoch.compare_schema(8)
    assert Sink(foo.close(1000.0)).marks("snapshot void")[0]["reason"] == "schema_changed"


def test_a_window_that_opens_among_notifications_judges_all_behind_it():
    epoch, _, (foo,) = epoch_of("foo")
    snapshot_end(foo)
    epoch.expect("low", lambda: foo.begin(FOO))
    low = text(channel="ours", channel_type="MESSAGE", payload="low")
    update = text(
        channel="foo", channel_type="TABLE", sqlite_pk_name=["id"], payload=[{"sqlite_type": "UPDATE", "id": 7}]
    )
    epoch.receive(notifications(insert(1), low, update, insert(2)))
    assert outline(foo.close(1000.0)) == ["snapshot void"]


def test_tables_are_due_one_after_another_the_one_that_waits_longest_first():
    epoch, clock, (foo, bar) = epoch_of("foo", "bar", reconcile_hours=1)
    snapshot_end(bar)
    assert epoch.next_due() is foo
    snapshot_end(foo)
    clock.now += 1
    assert epoch.next_due() is None
    assert epoch.wait() == 3599
    clock.now += 3600
    assert epoch.next_due() in (foo, bar)


def test_a_table_read_again_and_again_waits_longer_each_time():
    epoch, clock, (foo,) = epoch_of("foo")
    snapshot_end(foo)
    waits = []
    for _ in range(6):
        epoch.receive(notifications(insert(1, b="new")))
        epoch.check(10)
        waits.append(foo.due - clock.now)
        snapshot_end(foo)
    assert max(waits) > 1.0
    assert max(waits) <= 32.0


def test_a_table_that_broke_epochs_is_due_only_once_it_is_suspended_no_longer():
    epoch, clock, (foo,) = epoch_of("foo")
    snapshot_end(foo)
    epoch.circuit_breaker.trip("bar")
    epoch.circuit_breaker.trip("bar")
    bar = epoch.add("bar")
    assert (epoch.next_due(), epoch.wait()) == (None, 1.0)
    clock.now += 1
    assert epoch.next_due() is bar


def test_a_channel_that_is_a_table_is_a_warning_to_the_table_of_its_messages():
    epoch, _, _ = epoch_of("foo", channels=["bar"])
    change = text(channel="bar", channel_type="TABLE", sqlite_pk_name=["id"], payload=[])
    found = [frame for frame in epoch.receive(notifications(change, change)) if frame.stream == "notify:bar"]
    (warning,) = [json.loads(frame.body) for frame in found]
    assert (warning["mark"], warning["level"]) == ("no channel", "warning")
    assert warning["reason"].endswith("name it as source, not as channel")


def test_a_stream_nobody_knows_is_told_once_and_found_again_once_its_table_left():
    epoch, _, _ = epoch_of("foo")
    other = text(channel="bar", channel_type="TABLE", sqlite_pk_name=["id"], payload=[])
    assert outline(epoch.receive(notifications(other, other)), "bar") == [
        "data, whole",
        "unknown stream",
        "data, whole",
    ]
    assert epoch.candidates == ["bar"]
    epoch.candidates.clear()
    epoch.add("bar")
    epoch.leave("bar")
    assert outline(epoch.receive(notifications(other)), "bar") == ["data, whole", "unknown stream"]


def test_what_is_of_nothing_lands_as_a_mark_and_every_table_is_read_again():
    epoch, _, (foo, bar) = epoch_of("foo", "bar")
    snapshot_end(foo)
    snapshot_end(bar)
    frames = epoch.receive(notifications(b"\xff", b"[]"))
    assert [mark["reason"].partition(":")[0].split()[0] for mark in Sink(frames).marks("bad frame")] == [
        "invalid_utf8",
        "not_an_object",
    ]
    assert [mark["size"] for mark in Sink(frames).marks("bad frame")] == [4, 5]
    assert outline(frames) == outline(frames, "bar") == ["data, whole", "snapshot due", "data, whole"]
