"""The feed's law: whatever is lost, repeated and reordered, the receiver ends with the source's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.tengi.server.feed.faults import FaultyLink, FeedFaults
from silverfold.connectors.tengi.server.feed.source import FeedOptions, FeedSession, FeedSource
from silverfold.connectors.tengi.server.feed.tables import Outgoing, PartLimits, Row, SourceTable
from silverfold.connectors.tengi.server.workload.changer import Changer
from tests.support.tengi.model_receiver import ModelReceiver, decoded, rows_of, without_nulls

COLUMNS = {
    "id": "int",
    "name": "string",
    "price": "decimal(12,2)",
    "at": "timestamp",
    "tags": "array<struct<k:string,v:float>>",
    "sizes": "map<string,date>",
}
RATES = st.sampled_from([0.0, 0.1, 0.4])


class World:
    """A source, a receiver, and the network between them."""

    def __init__(
        self, chance: Random, count: int, history: int, faults: FeedFaults, keys: Sequence[str] = ("id",)
    ) -> None:
        self.keys = keys
        self.chance, self.faults, self.history, self.now, self.epoch = chance, faults, history, 0.0, 0
        self.receiver = ModelReceiver("t")
        self.start(COLUMNS, [dict.fromkeys(COLUMNS) | {"id": number, "name": "n"} for number in range(count)], 1)

    def start(self, columns: Mapping[str, str], rows: list[Row], version: int) -> None:
        """Start the source, with a new epoch and without history."""
        self.epoch += 1
        place: dict[str, Any] = {"epoch": f"{self.epoch:020d}", "history": self.history, "version": version}
        self.table = SourceTable("t", columns, self.keys, rows, **place)
        self.source = FeedSource([self.table], FeedOptions(part_limits=PartLimits(rows=7)))
        self.changer = Changer(self.table, lambda table, changes: table.apply(changes), self.chance.random())
        self.connect()

    def connect(self) -> None:
        """Begin a new connection, from what has landed."""
        for each in list(self.source.sessions):
            each.close()
        self.session, self.link = FeedSession(self.source, self.now), FaultyLink(self.faults, self.chance)
        self.receiver.requests.clear()
        self.receiver.restart(self.now)

    def columns(self) -> dict[str, str]:
        return {name: str(kind) for name, kind in self.table.columns.items()}

    def exchange(self, most: int) -> None:
        """Let the receiver's requests pass, some of which are lost, and up to so many packets of the source."""
        requests, self.receiver.requests = self.receiver.requests, []
        for each in requests:
            if self.chance.random() >= self.faults.lose:
                self.session.receive(each, self.now)
        for _ in range(most):
            packet = self.session.next_packet()
            if packet is None:
                for late in self.link.flush():
                    self.deliver(late)
                return
            for each in self.link.send(packet):
                self.deliver(each)

    def deliver(self, packet: Outgoing) -> None:
        try:
            self.receiver.receive(decoded(packet), self.now)
        except RemoteProtocolError:
            self.connect()

    def step(self) -> None:
        self.now += self.chance.choice([0.1, 1.0, 3.0, 6.0])
        match self.chance.choices(["change", "epoch", "start", "column", "reconnect", "rest"], [60, 2, 2, 3, 5, 30])[0]:
            case "change":
                self.changer.change()
            case "epoch":
                self.epoch += 1
                self.table.begin_epoch(f"{self.epoch:020d}")
            case "start":
                rows = list(self.table.rows.values())[self.chance.randint(0, 3) :]
                self.start(self.columns(), rows, self.table.version + 1)
            case "column":
                columns = self.columns()
                self.table.set_columns({**columns, f"extra{len(columns)}": "bigint"})
            case "reconnect":
                self.connect()
        self.exchange(self.chance.randint(0, 12))
        try:
            self.receiver.elapse(self.now)
        except RemoteProtocolError:
            self.connect()

    def mend(self) -> None:
        """End all faults, and exchange packets until nothing is left."""
        self.faults = FeedFaults()
        self.connect()
        for _ in range(3):  # the subscription; schema, snapshot and changes; acknowledgements
            self.exchange(10_000)


@given(
    st.randoms(use_true_random=False),
    st.sampled_from([0, 1, 30]),
    st.sampled_from([1, 10, 1_000]),
    st.builds(FeedFaults, lose=RATES, repeat=RATES, reorder=RATES, drop_parts=RATES),
    st.sampled_from([["id"], ["name", "id"], []]),
)
def test_the_receiver_ends_with_the_sources_table(
    chance: Random, count: int, history: int, faults: FeedFaults, keys: list[str]
) -> None:
    world = World(chance, count, history, faults, keys)
    for _ in range(60):
        world.step()
    world.mend()
    assert world.receiver.position == (world.table.epoch, world.table.seq)
    assert without_nulls(world.receiver.rows) == without_nulls(rows_of(world.table))
    assert not world.receiver.errors


@given(st.randoms(use_true_random=False), st.sampled_from([0, 30]))
def test_without_faults_and_with_history_enough_one_snapshot_serves(chance: Random, count: int) -> None:
    world = World(chance, count, 10_000, FeedFaults())
    for _ in range(50):
        world.exchange(1_000)
        world.changer.change()
    world.exchange(1_000)
    assert world.receiver.snapshots == 1
    assert world.receiver.rows == rows_of(world.table)
