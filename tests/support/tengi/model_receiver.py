"""A receiver of one table without a socket: restores the order, lands, acknowledges, and folds what has landed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silverfold.connectors.tengi.protocol.decoder import Decoder
from silverfold.connectors.tengi.protocol.feed.columns import ColumnType, parse_type, read_row, write_row
from silverfold.connectors.tengi.protocol.feed.order import Action, Ask, Land, TableOrder
from silverfold.connectors.tengi.protocol.feed.packets import (
    Ack,
    Change,
    Entry,
    FeedPacket,
    Position,
    Schema,
    Snapshot,
    SourceError,
    Subscribe,
    Update,
    read_packet,
)
from silverfold.connectors.tengi.protocol.values import Identifier, Packet
from silverfold.connectors.tengi.server.feed.tables import Outgoing, SourceTable

Rows = dict[tuple[Any, ...], dict[str, Any]]
_PATIENCE = 5.0
"""Seconds without progress after which it subscribes again."""


class ModelReceiver:
    """What a receiver does with a table. A restart forgets all but what has landed."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.requests: list[Packet] = []
        self.rows: Rows = {}
        self.errors: list[SourceError] = []
        self.snapshots = 0
        self._schemas: dict[int, Mapping[str, ColumnType]] = {}
        self._keys: tuple[str, ...] = ()
        self._parts: dict[Identifier, list[Snapshot]] = {}
        self._progress_at = 0.0
        self._order = TableOrder[FeedPacket](table, wait=_PATIENCE, max_held=20)

    @property
    def position(self) -> Position | None:
        return self._order.position

    def restart(self, now: float) -> None:
        """Begin a new connection at what has landed; parts of a snapshot are none."""
        self._order = TableOrder(self.table, self._order.position, wait=_PATIENCE, max_held=20)
        self._parts.clear()
        self.subscribe(now)

    def subscribe(self, now: float) -> None:
        self._progress_at = now
        self._order.abandon_snapshot(now)
        position = self.position
        found = Subscribe(self.table, -1) if position is None else Subscribe(self.table, position.seq, position.epoch)
        self.requests.append(found.to_packet())

    def receive(self, body: Packet, now: float) -> None:
        packet = read_packet(body)
        match packet:
            case Schema():
                self._keys = packet.keys
                self._schemas[packet.version] = {name: parse_type(text) for name, text in packet.columns.items()}
            case Change() | Update() if packet.version in self._schemas:
                self._perform(self._order.change(packet.position, packet, 1, now), now)
            case Snapshot() if packet.version in self._schemas:
                place = packet.position, packet.id
                actions = self._order.snapshot_part(*place, packet, now, part=packet.part, is_last=packet.is_last)
                self._perform(actions, now)
            case SourceError():
                self.errors.append(packet)

    def elapse(self, now: float) -> None:
        self._perform(self._order.elapsed(now), now)
        if now - self._progress_at >= _PATIENCE:
            self.subscribe(now)

    def _perform(self, actions: list[Action[FeedPacket]], now: float) -> None:
        for each in actions:
            if isinstance(each, Ask):
                self.subscribe(now)
            elif isinstance(each, Land):
                self._progress_at = now
                self._fold(each.item)
                if each.position is not None:
                    self.requests.append(Ack(self.table, each.position).to_packet())

    def _fold(self, packet: FeedPacket) -> None:
        match packet:
            case Snapshot():
                parts = self._parts.setdefault(packet.id, [])
                parts.append(packet)
                if any(each.is_last and each.part == len(parts) - 1 for each in parts):
                    self.snapshots += 1
                    self.rows = {}
                    for part in sorted(self._parts.pop(packet.id), key=lambda each: each.part):
                        for entry in part.rows:
                            self._add(entry, part.version)
            case Change(op="DELETE"):
                self._remove(packet.entry, packet.version)
            case Change(op="UPDATE"):
                self._modify(packet.entry, packet.version)
            case Change():
                self._add(packet.entry, packet.version)
            case Update():
                for entry in packet.removed:
                    self._remove(entry, packet.version)
                for entry in packet.modified:
                    self._modify(entry, packet.version)
                for entry in packet.added:
                    self._add(entry, packet.version)

    def _values(self, entry: Entry, version: int) -> dict[str, Any]:
        return read_row(entry.row or {}, entry.nulls, self._schemas[version])

    def _remove(self, entry: Entry, version: int) -> dict[str, Any]:
        assert entry.key is not None
        key = read_row(entry.key, frozenset(), self._schemas[version])
        return self.rows.pop(tuple(key[name] for name in self._keys))

    def _modify(self, entry: Entry, version: int) -> None:
        self._put({**self._remove(entry, version), **self._values(entry, version)})

    def _add(self, entry: Entry, version: int) -> None:
        row = self._values(entry, version)
        assert row.keys() == self._schemas[version].keys(), "a row that is added is whole"
        self._put(row)

    def _put(self, row: dict[str, Any]) -> None:
        key = tuple(row[name] for name in self._keys) if self._keys else (len(self.rows),)
        assert key not in self.rows, "a key is there once"
        self.rows[key] = row


def decoded(outgoing: Outgoing) -> Packet:
    """The packet that a source has encoded."""
    packet = Decoder(outgoing.body).read_object()
    assert isinstance(packet, Packet)
    return packet


def rows_of(table: SourceTable) -> Rows:
    """Rows of a source's table as a receiver has them: a float has single precision."""
    columns = table.columns
    return {key: read_row(*write_row(row, columns), columns) for key, row in table.rows.items()}


def without_nulls(rows: Rows) -> Rows:
    """Rows with the columns that are not NULL: rows that are older than a column lack it."""
    return {key: {name: value for name, value in row.items() if value is not None} for key, row in rows.items()}
