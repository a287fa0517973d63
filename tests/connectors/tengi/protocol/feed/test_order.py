"""The order of a table's changes: rule by rule, and against a source whose packets are lost, repeated and shuffled."""

from __future__ import annotations

from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.tengi.protocol import Identifier
from silverfold.connectors.tengi.protocol.feed.order import Ask, Duplicate, Gap, GivenUp, Land, NewerEpoch, TableOrder
from silverfold.connectors.tengi.protocol.feed.packets import Position

OLD, NOW, NEW = (f"{number:020d}" for number in (1, 2, 3))
ID, OTHER = Identifier(bytes(16)), Identifier(bytes([1] * 16))


def at(seq: int, epoch: str = NOW) -> Position:
    return Position(epoch, seq)


def order(seq: int | None = 5, **bounds: Any) -> TableOrder[str]:
    return TableOrder("t", None if seq is None else at(seq), **bounds)


def land(seq: int) -> Land[str]:
    return Land(str(seq), "whole", at(seq))


def change(given_order: TableOrder[str], seq: int, now: float = 0.0, epoch: str = NOW) -> list[Any]:
    return given_order.change(at(seq, epoch), str(seq), 10, now)


def test_the_next_change_lands_and_those_that_follow_on() -> None:
    table = order()
    assert change(table, 8) == change(table, 7) == []
    assert (table.held, table.held_bytes) == (2, 20)
    assert change(table, 6) == [land(6), land(7), land(8)]
    assert (table.held, table.held_bytes, table.deadline, table.position) == (0, 0, None, at(8))


def test_what_landed_or_is_held_is_a_duplicate() -> None:
    table = order()
    change(table, 8)
    assert change(table, 5) == [Duplicate("5")]
    assert change(table, 8) == [Duplicate("8")]
    assert change(table, 99, epoch=OLD) == [Duplicate("99")]


def test_a_missing_change_is_asked_for_after_a_while_and_ends_the_feed_the_third_time() -> None:
    table = order(wait=5.0)
    change(table, 9, now=1.0)
    change(table, 8, now=4.0)
    assert table.deadline == 6.0
    assert table.elapsed(5.9) == []
    assert table.elapsed(6.0) == [Gap(NOW, 6, 7), Ask(at(5))]
    assert table.elapsed(11.0) == [Gap(NOW, 6, 7), Ask(at(5))]
    with pytest.raises(RemoteProtocolError, match="changes 6 to 7"):
        table.elapsed(16.0)


def test_another_gap_is_counted_anew() -> None:
    table = order(wait=5.0)
    change(table, 7)
    table.elapsed(5.0)
    change(table, 9, now=6.0)
    assert change(table, 6, now=7.0) == [land(6), land(7)]
    assert table.deadline == 12.0
    assert table.elapsed(12.0) == [Gap(NOW, 8, 8), Ask(at(7))]
    assert table.elapsed(17.0) == [Gap(NOW, 8, 8), Ask(at(7))]


@pytest.mark.parametrize("bounds", [{"max_held": 2}, {"max_bytes": 25}])
def test_what_cannot_be_held_is_given_up_and_asked_for_once(bounds: dict[str, int]) -> None:
    table = order(**bounds)
    change(table, 8)
    change(table, 9)
    assert change(table, 10) == [GivenUp("10"), Gap(NOW, 6, 7), Ask(at(5))]
    assert change(table, 11) == [GivenUp("11")]
    assert change(table, 6) + change(table, 7) == [land(6), land(7), land(8), land(9)]
    assert change(table, 10) == [land(10)]


def test_changes_behind_a_snapshot_that_was_abandoned_are_held_until_another_one_is_over() -> None:
    table = order()
    assert part(table, 0, seq=5) == [Land("p0", "begin", None)]
    assert change(table, 6) == []
    table.abandon_snapshot(0.0)
    assert (table.position, change(table, 7)) == (None, [])
    assert part(table, 1, seq=5) == [Duplicate("p1")]
    assert part(table, 0, last=True, seq=5, id=OTHER) == [Land("p0", "whole", at(5)), land(6), land(7)]


def test_a_late_snapshot_that_is_older_than_what_landed_does_not_take_the_place_of_an_abandoned_one() -> None:
    table = order()
    part(table, 0, seq=9)
    table.abandon_snapshot(0.0)
    late, other = Identifier(b"l" * 16), Identifier(b"o" * 16)
    assert [part(table, number, seq=4, id=late, last=number == 1) for number in (0, 1)] == [
        [Duplicate("p0")],
        [Duplicate("p1")],
    ]
    assert part(table, 0, seq=4, id=other, last=True) == [Land("p0", "whole", at(4))]  # the source has none newer


def test_a_snapshot_of_what_landed_takes_the_place_of_an_abandoned_one() -> None:
    table = order()
    part(table, 0, seq=9)
    table.abandon_snapshot(0.0)
    assert part(table, 0, seq=5, id=OTHER, last=True) == [Land("p0", "whole", at(5))]


def test_without_a_snapshot_under_way_there_is_none_to_abandon() -> None:
    table = order(max_held=1)
    change(table, 7)
    assert change(table, 8) == [GivenUp("8"), Gap(NOW, 6, 6), Ask(at(5))]
    table.abandon_snapshot(0.0)
    assert table.position == at(5)
    assert change(table, 9) == [GivenUp("9")]


def part(table: TableOrder[str], number: int, *, last: bool = False, seq: int = 7, id: Identifier = ID) -> list[Any]:
    return table.snapshot_part(at(seq), id, f"p{number}", 0.0, part=number, is_last=last)


def test_a_snapshot_sets_the_position_once_all_its_parts_are_there() -> None:
    table = order(None)
    assert change(table, 8) + change(table, 7) == []
    assert part(table, 2, last=True) == [Land("p2", "begin", None)]
    assert table.has_snapshot
    assert table.deadline is None
    assert part(table, 2, last=True) == [Duplicate("p2")]
    assert part(table, 0) == [Land("p0", "inside", None)]
    assert part(table, 1) == [Land("p1", "end", at(7)), Duplicate("7"), land(8)]
    assert part(table, 1) == [Duplicate("p1")]
    assert (table.position, table.has_snapshot) == (at(8), False)


def test_a_snapshot_of_one_part_is_whole() -> None:
    assert part(order(), 0, last=True) == [Land("p0", "whole", at(7))]


def test_a_greater_epoch_is_held_until_its_snapshot() -> None:
    table = order()
    assert change(table, 1, epoch=NEW) == []
    assert table.snapshot_part(at(0, NEW), ID, "p", 0.0, part=0, is_last=True) == [
        Land("p", "whole", at(0, NEW)),
        Land("1", "whole", at(1, NEW)),
    ]
    assert change(table, 6) == [Duplicate("6")]


def asked(table: TableOrder[str], until: int) -> list[tuple[int, list[Any]]]:
    """Return what is asked for at which second."""
    return [(now, actions) for now in range(until) if (actions := table.elapsed(now))]


def test_without_a_snapshot_it_is_asked_for_with_growing_waits_the_third_time_from_the_beginning() -> None:
    table = order(wait=5.0)
    change(table, 1, epoch=NEW)
    warned = [NewerEpoch(NEW, NOW), Ask(at(5))]
    assert asked(table, 1_000) == [(5, warned), (15, warned), (35, [Ask(None)])]
    assert (table.position, table.held, table.held_bytes, table.deadline) == (None, 0, 0, None)
    assert part(table, 0, last=True, seq=5) == [Land("p0", "whole", at(5))]  # it was one stray change
    assert change(table, 6, now=1_000.0) == [land(6)]
    change(table, 1, now=1_000.0, epoch=NEW)
    assert table.deadline == 1_005.0


def test_changes_that_land_between_do_not_make_the_third_time_the_first() -> None:
    table = order(wait=5.0)
    change(table, 1, epoch=NEW)
    asks = []
    for number in range(3):
        assert change(table, 6 + number, now=30.0 * number) == [land(6 + number)]
        asks += table.elapsed(30.0 * number + 29)
    assert [each.position for each in asks if isinstance(each, Ask)] == [at(6), at(7), None]


def test_the_waits_for_a_snapshot_that_never_comes_grow_up_to_a_bound() -> None:
    table = order(None, wait=5.0)
    change(table, 1)
    assert [now for now, _ in asked(table, 1_300)] == [5, 15, 35, 75, 155, 315, 475, 635, 795, 955, 1115, 1275]


def test_what_is_given_up_during_a_snapshot_is_asked_for_behind_it() -> None:
    table = order(None, max_held=1)
    part(table, 0)
    assert change(table, 8) == []
    assert change(table, 9) == [GivenUp("9")]
    assert part(table, 1, last=True) == [Land("p1", "end", at(7)), land(8), Ask(at(8))]


def test_an_older_snapshot_is_a_duplicate_and_a_newer_one_takes_the_place() -> None:
    table = order()
    assert part(table, 0, seq=4) == [Duplicate("p0")]
    assert part(table, 0, seq=7) == [Land("p0", "begin", None)]
    assert part(table, 0, seq=9, id=OTHER) == [Land("p0", "begin", None)]
    assert part(table, 1, seq=7, last=True) == [Duplicate("p1")]
    assert part(table, 1, seq=9, id=OTHER, last=True) == [Land("p1", "end", at(9))]


def test_a_part_behind_the_last_one_is_refused() -> None:
    table = order()
    part(table, 1, last=True)
    with pytest.raises(RemoteProtocolError, match="snapshot_part"):
        part(table, 2)
    table = order()
    part(table, 3)
    with pytest.raises(RemoteProtocolError, match="snapshot_part"):
        part(table, 1, last=True)


class Source:
    """A source with a history, whose packets are lost, repeated and shuffled until the network is mended."""

    def __init__(self, random: Random, updates: int) -> None:
        self.random, self.updates = random, updates
        self.epochs = [NOW]
        self.sent: list[tuple[Any, ...]] = []
        self.snapshots = 0
        self.loses = True

    @property
    def newest(self) -> Position:
        return at(self.updates, self.epochs[-1])

    def subscribe(self, position: Position | None) -> None:
        epoch, seq = self.newest
        first = max(0, seq - 20)
        if position is not None and position.epoch == epoch and first <= position.seq:
            first = position.seq
        else:
            self.snapshots += 1
            parts = self.random.randint(1, 4)
            id = Identifier(self.snapshots.to_bytes(16))
            self.send([("snapshot", at(first, epoch), id, number, number == parts - 1) for number in range(parts)])
        self.send([("change", at(number, epoch)) for number in range(first + 1, seq + 1)])

    def send(self, packets: list[tuple[Any, ...]]) -> None:
        for packet in packets:
            copies = self.random.choice([0, 1, 1, 1, 1, 2]) if self.loses else 1
            self.sent += [packet] * copies

    def delivered(self) -> list[tuple[Any, ...]]:
        sent, self.sent = self.sent, []
        if self.loses and self.random.random() < 0.7:
            self.random.shuffle(sent)
        return sent


@given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(1, 8))
def test_whatever_happens_to_packets_changes_land_in_order_each_once(random: Random, updates: int, held: int) -> None:
    source = Source(random, updates)
    table = TableOrder[Any]("t", wait=5.0, max_held=held)
    landed: list[Land[Any]] = []
    now = 0.0

    def perform(actions: list[Any]) -> None:
        landed.extend(each for each in actions if isinstance(each, Land))
        for each in actions:
            if isinstance(each, Ask):
                source.subscribe(each.position)

    def turn() -> None:
        for kind, *packet in source.delivered():
            if kind == "change":
                perform(table.change(packet[0], packet[0], 1, now))
            else:
                position, id, number, is_last = packet
                perform(table.snapshot_part(position, id, "part", now, part=number, is_last=is_last))
            assert table.held <= held
        perform(table.elapsed(now))

    source.subscribe(None)
    for _ in range(30):
        now += random.choice([0.1, 3.0, 6.0])
        try:
            turn()
        except RemoteProtocolError:  # the feed begins anew, where it had landed
            source.sent.clear()
            table = TableOrder("t", table.position, wait=5.0, max_held=held)
            source.subscribe(table.position)
        if random.random() < 0.1:
            source.epochs.append(f"{int(source.epochs[-1]) + 1:020d}")
            source.updates = random.randint(0, 10)
            source.subscribe(None)
        elif random.random() < 0.5:
            source.updates += 1
            source.send([("change", source.newest)])
    source.loses = False
    source.sent.clear()
    table.abandon_snapshot(now)
    source.subscribe(table.position)
    for _ in range(10):
        now += 6.0
        turn()

    assert table.position == source.newest
    position: Position | None = None
    for each in landed:
        if each.position is not None:
            is_next = position is not None and each.position == at(position.seq + 1, position.epoch)
            assert is_next or each.item == "part"
            assert position is None or each.position >= position
            position = each.position
