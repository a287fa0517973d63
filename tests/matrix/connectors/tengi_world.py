"""World of tengi: a source that publishes tables over a network with faults, feed settings, and the expected silver."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from silverfold.conf.validate import validated
from silverfold.connectors.base import Feed
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.options import ROW_NUMBER, TengiOptions, TengiTable
from silverfold.connectors.tengi.protocol.events import Transport
from silverfold.connectors.tengi.server.feed.faults import FeedFaults
from silverfold.connectors.tengi.server.feed.server import FeedServer, new_epoch
from silverfold.connectors.tengi.server.feed.source import FeedOptions, FeedSource
from silverfold.connectors.tengi.server.feed.tables import PartLimits, SourceTable
from silverfold.connectors.tengi.server.workload.changer import Changer
from silverfold.connectors.tengi.transports.configuration import ConfigurationBuilder
from silverfold.pipelines.landing.bronze import last_source_positions
from silverfold.pipelines.store import open_table
from tests.matrix.connectors.space import Choice, Settings, Space
from tests.matrix.connectors.world import FEED, HISTORY, HISTORY_LAW, RULES, SWIFT, Expected, World, expect, split
from tests.matrix.oracle import Rule
from tests.support.tengi.receiving import QUICK, position_of

SPACE = Space(
    feed={
        "transport": tuple(Transport),
        "parts": ("whole", "9 rows"),
        "network": ("true", "faulty"),
        # short: whoever is behind gets a snapshot
        "updates_kept": ("all", "few"),
        "dies": ("no", "yes"),
    },
    table={
        "keys": ("told", "given", "none"),
        "columns": ("told", "declared"),
        "columns_later": ("same", "added"),
        "history": HISTORY,
        "rules": RULES,
    },
    laws=(HISTORY_LAW,),
)

_COLUMNS = {
    "id": "bigint",
    "region": "string",
    "price": "double",
    "total": "decimal(10,2)",
    "tags": "array<string>",
    "at": "timestamp",
}
_ADDED = {"note": "string", "unit price": "struct<a:int>"}
_RULE = Rule("price IS NULL OR price < 102", lambda row: row["price"] is None or row["price"] < 102)
_FAULTS = FeedFaults(lose=0.02, repeat=0.05, reorder=0.05, drop_parts=0.02, close=0.005)


class TengiWorld(World):
    """A source of a table for each of the feed's, and the receiver of the feed."""

    def __init__(self, folder: Path, settings: Settings, rng: Random) -> None:
        super().__init__(CONNECTOR, folder, settings, rng)
        chosen, self._epochs = settings.feed, count(int(new_epoch()))
        history = 10_000 if chosen["updates_kept"] == "all" else 3
        self._tables = {name: self._table(name, choice, history) for name, choice in self.chosen.items()}
        configuration = ConfigurationBuilder().add_transport(chosen["transport"], port=0).set(poll_wait=0.2).build()
        parts = PartLimits(rows=1_000 if chosen["parts"] == "whole" else 9)
        source = FeedSource(self._tables.values(), FeedOptions(part_limits=parts))
        faults = _FAULTS if chosen["network"] == "faulty" else None
        server = FeedServer.start(source, configuration, faults=faults, seed=rng.random().hex())
        self._server = self.enter_context(server)
        self._changers = {name: Changer(table, server.change, rng.random()) for name, table in self._tables.items()}

    @property
    def feed(self) -> Feed:
        """See `World.feed`."""
        transport = self.settings.feed["transport"]
        options = {**QUICK, "transport": transport, "resubscribe_idle": 1.0, "ping_interval": 0.2}
        tables = {name: validated(TengiTable, _settings(choice), file="test") for name, choice in self.chosen.items()}
        address = f"tengi://127.0.0.1:{self._server.ports[Transport(transport)]}"
        return Feed(FEED, "tengi", address, validated(TengiOptions, options, file="test"), tables, **SWIFT)

    def change(self) -> None:
        """Make some updates of each table."""
        for changer in self._changers.values():
            for _ in range(self.rng.randint(0, 3)):
                changer.change()

    def disturb(self) -> None:
        """Break connections, number anew, add columns; stop the receiver, or let it die."""
        drawn = self.rng.random()
        if drawn < 0.2:
            self._server.disconnect_all()
        elif drawn < 0.4:
            table = self.rng.choice(list(self._tables.values()))
            self._server.run(lambda _: table.begin_epoch(f"{next(self._epochs):020d}"))
        elif drawn < 0.6:
            self._add_columns()
        elif drawn < 0.8 and self.settings.feed["dies"] == "yes":
            self.let_die(next(iter(self._changers.values())).change)
        else:
            self.stop()
            self.receive()

    def rest(self) -> None:
        """See `World.rest`."""
        self.wait_until(self._is_landed, "all that was sent has landed")

    def expected(self, table: str) -> Expected:
        """See `World.expected`."""
        choice, source = self.chosen[table], self._tables[table]
        names = _COLUMNS if choice["columns"] == "declared" else source.columns
        silver, side_rows = split([{n: row[n] for n in names} for row in source.rows.values()], choice, _RULE.met)
        return Expected(silver, side_rows, ("_position", *ROW_NUMBER), history=choice["history"] == "2")

    def _table(self, name: str, choice: Choice, history: int) -> SourceTable:
        blank = dict.fromkeys(_COLUMNS)
        rows = [{**blank, "id": number, "region": f"r{number % 2}'", "price": 100.0} for number in range(5)]
        keys = [] if choice["keys"] == "none" else ["id", "region"]
        return SourceTable(name, _COLUMNS, keys, rows, epoch=f"{next(self._epochs):020d}", history=history)

    def _add_columns(self) -> None:
        for name, choice in self.chosen.items():
            if choice["columns_later"] == "added":
                self._server.run(lambda _, table=self._tables[name]: table.set_columns({**_COLUMNS, **_ADDED}))
                self._changers[name].change()  # a source sends its schema before a change

    def _is_landed(self) -> bool:
        bronze = open_table(self.places.bronze(FEED))
        found = {} if bronze is None else last_source_positions(bronze)
        return all(found.get(name) == position_of(table) for name, table in self._tables.items())


def _settings(choice: Choice) -> dict[str, Any]:
    return {
        "keys": ["region", "id"] if choice["keys"] == "given" else [],
        "columns": _COLUMNS if choice["columns"] == "declared" else {},
        "stored_as_scd_type": int(choice["history"]),
        "expect": expect(choice, _RULE),
    }
