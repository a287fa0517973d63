"""The state of a subscription: the vectors of acknowledgement, flow control and what is due again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.server.reading.ack_window import AckWindow, Point
from silverfold.connectors.hstreamdb.server.reading.delivery_state import DeliveryState, UnknownShard
from tests.support.hstreamdb.vectors import names, vectors

SHARD = 7


def points(found: list[Any]) -> list[Any]:
    return [points(each) if isinstance(each[0], list) else (int(each[0]), each[1]) for each in found]


def ids(found: list[Any]) -> list[RecordId]:
    return [RecordId(SHARD, *point) for point in points(found)]


@pytest.mark.parametrize("vector", vectors("ack_window"), ids=names("ack_window"))
def test_the_window_moves_as_documented(vector: dict[str, Any]) -> None:
    state = DeliveryState({SHARD: int(vector["start"])}, max_unacked=10_000, timeout=1)
    window, checkpoint = state.windows[SHARD], None
    for step in vector["steps"]:
        match step["do"]:
            case "read":
                window.read(int(step["batch"]), step["size"])
                state.sent(SHARD, int(step["batch"]), step["size"])
            case "gap":
                window.gap(int(step["lo"]), int(step["hi"]))
            case "due":
                by_batch = {batch for batch, _ in points(step["ids"])}
                left = [
                    (batch, index)
                    for batch in sorted(by_batch)
                    for index in window.unacknowledged(batch, [i for b, i in points(step["ids"]) if b == batch])
                ]
                assert left == points(step["resend"])
            case "ack":
                before = state.unacked
                stored = state.acknowledge(ids(step["ids"])).get(SHARD)
                checkpoint = stored or checkpoint
                assert before - state.unacked == step["accepted"]
                assert [None if each is None else str(each) for each in (stored, checkpoint)] == [
                    step["committed"],
                    step["checkpoint"],
                ]
                assert window.lower_bound == (int(step["lower_bound"][0]), step["lower_bound"][1])
                assert window.ranges == [tuple(each) for each in points(step["acked_ranges"])]
        if "unacked" in step:
            assert state.unacked == step["unacked"]


@pytest.mark.parametrize("vector", vectors("flow_control"), ids=names("flow_control"))
def test_a_round_is_read_while_the_limit_is_not_reached(vector: dict[str, Any]) -> None:
    state = DeliveryState({SHARD: 1}, max_unacked=vector["max_unacked"], timeout=1)
    outstanding, batch = list[RecordId](), 0
    for step in vector["steps"]:
        if step["do"] == "round":
            assert state.may_read == step["delivered"]
            for size in step["batches"] if state.may_read else ():
                batch += 1
                state.windows[SHARD].read(batch, size)
                state.sent(SHARD, batch, size)
                outstanding += [RecordId(SHARD, batch, index) for index in range(size)]
        else:
            acked, outstanding = outstanding[: step["count"]], outstanding[step["count"] :]
            state.acknowledge(acked)
        assert state.unacked == step["unacked"]


def test_an_unknown_shard_is_an_error_and_others_before_it_count() -> None:
    state = DeliveryState({SHARD: 1}, max_unacked=10, timeout=1)
    state.windows[SHARD].read(1, 1)
    state.sent(SHARD, 1, 1)
    with pytest.raises(UnknownShard):
        state.acknowledge([RecordId(SHARD, 1, 0), RecordId(8, 1, 0)])
    assert state.unacked == 0


def test_what_was_acknowledged_is_not_due() -> None:
    state = DeliveryState({SHARD: 1}, max_unacked=10, timeout=2)
    state.windows[SHARD].read(1, 3)
    assert state.tick(10.0) == []
    state.sent(SHARD, 1, 3)
    state.acknowledge([RecordId(SHARD, 1, 1)])
    assert state.tick(11.9) == []
    assert [(each.batch, each.indexes) for each in state.tick(12.0)] == [(1, {0, 2})]
    assert state.tick(99.0) == []
    state.sent_again(SHARD, 1, [0, 2])
    assert [each.indexes for each in state.tick(101.0)] == [{0, 2}]


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
    gaps=st.sets(st.integers(0, 5)),
)
def test_the_checkpoint_never_passes_a_record_that_is_not_acknowledged(
    sizes: list[int], order: Any, gaps: set[int]
) -> None:
    window, batch, all_points = AckWindow(1), 1, list[Point]()
    for number, size in enumerate(sizes):
        if number in gaps:
            window.gap(batch, batch + 1)
            batch += 2
        window.read(batch, size)
        all_points += [Point(batch, index) for index in range(size)]
        batch += 1
    order.shuffle(all_points)
    acked, checkpoint = set[Point](), 0
    while all_points:
        request, all_points = all_points[:2], all_points[2:]
        accepted, moved = window.acknowledge(request)
        acked |= set(request)
        assert accepted == len(request)
        checkpoint = moved or checkpoint
        assert all(point.batch > checkpoint for point in all_points)
        assert window.acknowledge(request)[0] == 0
    while moved := window.acknowledge([])[1]:
        checkpoint = moved
    assert checkpoint == batch - 1
