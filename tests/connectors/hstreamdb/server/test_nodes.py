"""Nodes that fail, die and come back."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from silverfold.connectors.hstreamdb.protocol import methods as m
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.server.options import Fault, RebuiltWindow
from tests.support.hstreamdb.batches import numbered
from tests.support.hstreamdb.peer import Peer, refusal, serving, until

FIRST = (2 << 32) + 1


def test_a_method_fails_or_is_late_when_it_is_to() -> None:
    faults = [Fault("Echo", {2}, "INTERNAL", "some store text"), Fault("Echo", {3}, None, delay=0.2)]
    with serving(faults=faults) as (cluster, peer):
        peer.call(m.ECHO)
        assert refusal(lambda: peer.call(m.ECHO, node=2)) == ("INTERNAL", None, "some store text", None)
        start = time.monotonic()
        peer.call(m.ECHO)
        assert time.monotonic() - start >= 0.2
        cluster.add_fault(Fault("Echo", range(1, 1_000)))
        assert refusal(lambda: peer.call(m.ECHO))[0] == "UNAVAILABLE"


def test_two_of_three_nodes_die_while_it_is_read_and_nothing_is_lost() -> None:
    found = dict[RecordId, int]()
    with serving() as (cluster, peer):
        shards = peer.create_stream(shards=3)
        peer.subscribe(timeout=1)
        for number in range(90):
            peer.append(shards[number % 3], numbered([number]))
        for _ in range(2):
            owner = cluster.owner("sub")
            with peer.fetch("a") as fetch:
                found |= fetch.numbers(20, ack=True)
                if owner != 1:  # the peer talks to the first node
                    cluster.kill(owner)
                    assert fetch.status.grpc_code == "UNAVAILABLE"
        with peer.fetch("b") as fetch:
            while len(found) < 90:
                found |= fetch.numbers(1, ack=True)
    assert sorted(found.values()) == list(range(90))


def rebuilt(peer: Peer, shard: int, owner: int, restart: Callable[[], None]) -> dict[int, int]:
    """Acknowledge a batch, build the context again, acknowledge another; return the checkpoints."""
    peer.append(shard, numbered([1]))
    with peer.fetch() as fetch:
        fetch.numbers(1, ack=True)
        until(lambda: peer.checkpoints() == {shard: FIRST})
    restart()
    peer.append(shard, numbered([2]))
    with peer.fetch(node=owner) as fetch:
        assert list(fetch.numbers(1, ack=True).values()) == [2]
        time.sleep(0.2)
        return peer.checkpoints()


@pytest.mark.parametrize(
    ("window", "stored"), [(RebuiltWindow.AS_PUBLISHED, FIRST), (RebuiltWindow.FROM_CHECKPOINT, FIRST + 1)]
)
def test_after_a_restart_no_checkpoint_moves_as_published(window: RebuiltWindow, stored: int) -> None:
    with serving(nodes=1, rebuilt_window=window) as (cluster, peer):
        (shard,) = peer.create_stream()
        peer.subscribe(timeout=1)

        def restart() -> None:
            cluster.kill(1)
            cluster.restart(1)

        assert rebuilt(peer, shard, 1, restart) == {shard: stored}


def test_lookups_name_a_dead_node_until_it_left_the_member_list() -> None:
    with serving(member_delay=0.5) as (cluster, peer):
        peer.create_stream()
        peer.subscribe()
        owner = cluster.owner("sub")
        cluster.kill(owner)
        assert cluster.owner("sub") == owner
        until(lambda: cluster.owner("sub") != owner)


def test_a_node_that_comes_back_has_its_port_and_old_subscriptions_stay_where_they_went() -> None:
    with serving() as (cluster, peer):
        peer.create_stream()
        peer.subscribe()
        owner, ports = cluster.owner("sub"), list(cluster.ports)
        cluster.kill(owner)
        other = cluster.owner("sub")
        assert other != owner
        cluster.restart(owner)
        assert (list(cluster.ports), cluster.owner("sub")) == (ports, other)
        assert peer.call(m.ECHO, m.EchoRequest(msg="x"), node=owner).msg == "x"
