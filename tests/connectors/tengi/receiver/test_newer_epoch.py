"""A source whose changes are of a greater epoch than what landed, without a snapshot: what is landed and asked for."""

from __future__ import annotations

import json

from silverfold.connectors.frames import Kind
from silverfold.connectors.tengi.protocol import Packet
from silverfold.connectors.tengi.protocol.feed.packets import Subscribe
from tests.support.tengi.landed import EPOCH, entry, schema, snapshot
from tests.support.tengi.played import Played, changes

NEWER = "9" * 20
ROW = entry(row={"id": 1, "name": "one", "price": 1.5})


def newer(*packets: Packet) -> list[Packet]:
    return [each.set_value("epoch", NEWER) for each in packets]


def played_for(seconds: int) -> Played:
    """Play a table at position 7, of which two changes of a greater epoch come. Its source answers with a schema."""
    played = Played(7, reorder_wait=5)
    played.take(schema(), *newer(*changes(1, 2)))
    wait(played, seconds)
    return played


def wait(played: Played, seconds: int) -> None:
    for _ in range(seconds):
        before = len(subscriptions(played))
        played.wait(1)
        if len(subscriptions(played)) > before:
            played.take(schema())


def subscriptions(played: Played) -> list[Subscribe]:
    return [each for each in played.asked if isinstance(each, Subscribe)]


def test_the_source_is_warned_of_once_and_asked_from_the_beginning_the_third_time() -> None:
    played = played_for(60)
    assert subscriptions(played) == [Subscribe("orders", 7, EPOCH)] * 3 + [Subscribe("orders", -1)]
    assert played.marks == ["newer epoch", "snapshot asked"]
    warning = next(json.loads(each.body) for each in played.frames if each.kind is Kind.MARK)
    assert (warning["level"], warning["epoch"], warning["landed"]) == ("warning", NEWER, EPOCH)
    played.take(schema(), *newer(snapshot(2, [ROW]), *changes(3)))
    assert played.boundaries == ["control none", "snapshot whole 2", "data whole 3"]


def test_after_a_stray_change_of_the_future_the_table_goes_on_in_its_epoch_and_nothing_more_is_asked_for() -> None:
    played = played_for(36)
    played.take(schema(), snapshot(7, [ROW]), *changes(8))
    wait(played, 200)
    assert len(subscriptions(played)) == 4
    assert played.boundaries == ["control none", "snapshot whole 7", "data whole 8"]


def test_the_wait_grows_for_a_snapshot_that_never_comes_and_for_an_answer() -> None:
    answering, silent = (
        Played(snapshot_wait=30, resubscribe_idle=86_400),
        Played(subscribe_wait=10, resubscribe_idle=86_400),
    )
    answering.take(schema())
    wait(answering, 3_600)
    for _ in range(3_600):
        silent.wait(1)
    assert len(subscriptions(answering)) == 1 + 7  # after 30, 60, 120, 240, 480, 960, 960 s
    assert len(subscriptions(silent)) == 1 + 15
    assert [sum(each == "asked in vain" for each in played.marks) for played in (answering, silent)] == [1, 2]


def test_a_snapshot_that_a_change_has_overtaken_is_no_reason_for_a_warning() -> None:
    played = played_for(4)
    played.take(*newer(snapshot(1, [ROW])))
    played.wait(60)
    assert played.marks == []
    assert played.boundaries == ["control none", "snapshot whole 1", "data whole 2"]
