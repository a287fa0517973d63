"""One table of a source: its rows, its numbered updates, and the newest of these as history.

The number of an update is its ``seq``; 0 is the state before the first. Numbers are dense within a source epoch. A row
maps columns to values, as `protocol.feed.columns` has them; NULL is None. Rows are never changed in place, so a list of
them is a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from silverfold.conf.errors import LocalProtocolError, OversizedMessage
from silverfold.connectors.tengi.protocol.encoder import Encoder
from silverfold.connectors.tengi.protocol.feed.columns import ColumnType, parse_type, write_row
from silverfold.connectors.tengi.protocol.feed.packets import (
    Change,
    Entry,
    Newest,
    Position,
    Schema,
    Snapshot,
    Update,
)
from silverfold.connectors.tengi.protocol.limits import MAX_PACKET
from silverfold.connectors.tengi.protocol.strings import encode_key
from silverfold.connectors.tengi.protocol.values import Identifier, Packet

Row: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[Any, ...]

_MOST_BYTES: Final = MAX_PACKET - 39
"""Most bytes of an update or a part of a snapshot. In its packet, a flag and two ids precede it."""
_VALUE_OVERHEAD: Final = 16
"""Most bytes of a value besides its name and text: lengths, type, or the value itself."""


@dataclass(frozen=True)
class RowChanges:
    """Changes of one update, applied in this order.

    Args:
        removed: Keys of rows to delete.
        modified: Keys of rows, and new values of some columns. A new value of a key column moves the row.
        added: Whole rows.
    """

    removed: Sequence[Key] = ()
    modified: Sequence[tuple[Key, Row]] = ()
    added: Sequence[Row] = ()

    def __len__(self) -> int:
        return len(self.removed) + len(self.modified) + len(self.added)


class PartLimits(NamedTuple):
    """Most rows of one part of a snapshot, and about its most bytes."""

    rows: int = 1_000
    size: int = 1 << 19


class Outgoing(NamedTuple):
    """An encoded packet. Each receiver gets the same bytes, in a message with an id of its own."""

    name: str
    body: bytes

    @classmethod
    def of(cls, packet: Packet) -> Outgoing:
        """Return a packet, encoded. Raises InvalidValue if a value in it cannot be encoded."""
        encoder = Encoder()
        encoder.write_object(packet)
        return cls(packet.name, encoder.to_bytes())


class _Update(NamedTuple):
    version: int
    packet: Outgoing
    changes: int


class SourceTable:
    """A published table.

    Args:
        name: Its name in all packets.
        columns: Types by column, as in Spark's DDL.
        keys: Columns that identify a row; empty for a table that takes inserts only.
        rows: Rows at ``seq`` 0, each with all columns.
        epoch: Source epoch, of 20 digits.
        history: Most row changes that history holds. It always holds the newest update.
        version: First version of the schema. It must exceed any version that receivers know with other columns.

    Raises:
        InvalidValue: A type is unknown, or a value does not fit its column.
        OversizedMessage: A row exceeds the largest packet.
        LocalProtocolError: A key column does not exist or is named twice, or a row's key is NULL or not unique.
    """

    def __init__(
        self,
        name: str,
        columns: Mapping[str, str],
        keys: Sequence[str],
        rows: Iterable[Row] = (),
        *,
        epoch: str,
        history: int = 10_000,
        version: int = 1,
    ) -> None:
        self.name, self.keys, self.epoch, self.seq = name, tuple(keys), epoch, 0
        self.rows: dict[Key, Row] = {}
        """Rows by key, or by number in a table without keys."""
        self._ts: int | None = None
        self._numbers = count()
        self._most_changes = history
        self._updates: dict[int, _Update] = {}
        self._change_count = 0
        self.version = version
        self._schemas = {version: self._parsed(columns)}
        self._write(self._checked(RowChanges(added=list(rows))))

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Types of the newest version, by column."""
        return self._schemas[self.version]

    @property
    def newest(self) -> Newest:
        """The newest update, with its commit time if that is sent."""
        return Newest(Position(self.epoch, self.seq), self._ts)

    @property
    def oldest(self) -> int:
        """Number of the oldest update in history. If history is empty, that of the next update."""
        return self.seq + 1 - len(self._updates)

    def apply(self, changes: RowChanges, *, ts: int | None = None) -> int:
        """Make one update, and return its number.

        Args:
            changes: At least one.
            ts: Commit time, in microseconds since 1970; None to send none.

        Raises:
            LocalProtocolError: A row to change is missing, or one to add exists. Nothing is changed.
            InvalidValue: A value does not fit its column. Nothing is changed.
            OversizedMessage: The update, or a changed row, exceeds the largest packet. Nothing is changed.
        """
        if not changes:
            raise LocalProtocolError(f"{self.name}: an update without changes")
        written = self._checked(changes)
        packet = self._update_packet(changes, ts)
        _check_size(packet, f"{self.name}: an update")
        self._write(written)
        self.seq, self._ts = self.seq + 1, ts
        self._updates[self.seq] = _Update(self.version, packet, len(changes))
        self._change_count += len(changes)
        while self._change_count > self._most_changes and len(self._updates) > 1:
            self._drop_oldest()
        return self.seq

    def set_columns(self, columns: Mapping[str, str]) -> int:
        """Begin a new version of the schema, and return it. Rows have NULL in new columns.

        Raises:
            LocalProtocolError: A key column would be removed. Nothing is changed.
            InvalidValue: A type is unknown, or a value does not fit its column's new type. Nothing is changed.
            OversizedMessage: A row would exceed the largest packet. Nothing is changed.
        """
        kinds = self._parsed(columns)
        rows: dict[Key, Row] = {key: {name: row.get(name) for name in columns} for key, row in self.rows.items()}
        for key, row in rows.items():
            self._check_row(key, row, kinds)
        self.version, self.rows = self.version + 1, rows
        self._schemas[self.version] = kinds
        self._forget_schemas()
        return self.version

    def begin_epoch(self, epoch: str) -> None:
        """Number updates from 1 again, in a greater source epoch. Rows stay; history is emptied."""
        self.epoch, self.seq, self._ts = epoch, 0, None
        self._updates.clear()
        self._change_count = 0
        self._forget_schemas()

    def release(self, seq: int) -> None:
        """Drop updates up to a number from history."""
        while self._updates and self.oldest <= seq:
            self._drop_oldest()

    def can_continue(self, seq: int) -> bool:
        """Return whether the update with a number is in history, or will be the next one."""
        return self.oldest <= seq <= self.seq + 1

    def update_version(self, seq: int) -> int:
        """Return the schema version of an update in history; for the next update, the newest version."""
        return self._updates[seq].version if seq <= self.seq else self.version

    def update(self, seq: int) -> Outgoing:
        """Return an update in history, as ``change`` or ``update``."""
        return self._updates[seq].packet

    def schema(self, version: int) -> Outgoing:
        """Return the ``schema`` packet of the newest version, or of one that an update in history has."""
        columns = {name: str(kind) for name, kind in self._schemas[version].items()}
        return Outgoing.of(Schema(self.name, version, self.keys, columns).to_packet())

    def snapshot(self, limits: PartLimits, new_id: Callable[[], Identifier]) -> Iterator[Outgoing]:
        """Return the parts of a snapshot of the current rows. Each part is encoded when it is taken."""
        return _parts(self._part(new_id()), list(self.rows.values()), self.columns, limits)

    def _part(self, id: Identifier) -> Snapshot:
        return Snapshot(self.name, Position(self.epoch, self.seq), self.version, id, 0, False, ())

    def _update_packet(self, changes: RowChanges, ts: int | None) -> Outgoing:
        head = self.name, Position(self.epoch, self.seq + 1), self.version
        removed = [Entry(self._key_values(key)) for key in changes.removed]
        modified = [_entry(row, self.columns, self._key_values(key)) for key, row in changes.modified]
        if len(changes) > 1:
            added = [_entry(row, self.columns) for row in changes.added]
            return Outgoing.of(Update(*head, removed, modified, added, ts).to_packet())
        op = "DELETE" if removed else "UPDATE" if modified else "INSERT"
        added = [_entry(row, self.columns, self._key_values(self._key(row))) for row in changes.added]
        (entry,) = removed + modified + added
        return Outgoing.of(Change(*head, op, entry, ts).to_packet())

    def _key_values(self, key: Key) -> Mapping[str, Any]:
        values, _ = write_row(dict(zip(self.keys, key, strict=True)) if self.keys else {}, self.columns)
        return values

    def _key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.keys)

    def _checked(self, changes: RowChanges) -> dict[Key, Row | None]:
        """Return the rows that the changes write, by key; None for a deleted one."""
        written: dict[Key, Row | None] = {}

        def current(key: Key) -> Row | None:
            return written[key] if key in written else self.rows.get(key)

        def take(key: Key) -> Row:
            row = current(key)
            if row is None or not self.keys:
                raise LocalProtocolError(f"{self.name}: no row has the key {key!r}")
            written[key] = None
            return row

        def put(row: Row) -> None:
            key = self._key(row) if self.keys else (next(self._numbers),)
            if row.keys() != self.columns.keys() or None in key or current(key) is not None:
                raise LocalProtocolError(f"{self.name}: a row is not whole, or its key {key!r} is NULL or there")
            self._check_row(key, row, self.columns)
            written[key] = row

        for key in changes.removed:
            take(key)
        for key, values in changes.modified:
            put({**take(key), **values})
        for row in changes.added:
            put(dict(row))
        return written

    def _check_row(self, key: Key, row: Row, columns: Mapping[str, ColumnType]) -> None:
        """Raise InvalidValue or OversizedMessage for a row that no snapshot can carry."""
        entry = _entry(row, columns)
        if _size(entry) > _MOST_BYTES // 4:  # texts may take more than is reckoned
            part = replace(self._part(Identifier(bytes(16))), rows=[entry])
            _check_size(Outgoing.of(part.to_packet()), f"{self.name}: the row with the key {key!r:.100}")

    def _write(self, rows: Mapping[Key, Row | None]) -> None:
        for key, row in rows.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row

    def _parsed(self, columns: Mapping[str, str]) -> dict[str, ColumnType]:
        if len(columns.keys() & set(self.keys)) < len(self.keys):
            raise LocalProtocolError(f"{self.name}: keys {', '.join(self.keys)} are not all columns, each once")
        return {name: parse_type(text) for name, text in columns.items()}

    def _drop_oldest(self) -> None:
        self._change_count -= self._updates.pop(self.oldest).changes
        self._forget_schemas()

    def _forget_schemas(self) -> None:
        """Forget schema versions that no update in history has."""
        first = next(iter(self._updates.values())).version if self._updates else self.version
        for version in [each for each in self._schemas if each < first]:
            del self._schemas[version]


def _entry(row: Row, columns: Mapping[str, ColumnType], key: Mapping[str, Any] | None = None) -> Entry:
    return Entry(key, *write_row(row, columns))


def _check_size(packet: Outgoing, what: str) -> None:
    if len(packet.body) > _MOST_BYTES:
        detail = f"{what} takes {len(packet.body)} bytes, {_MOST_BYTES} are allowed"
        raise OversizedMessage(detail, reason="too_large")


def _parts(
    head: Snapshot, rows: Sequence[Row], columns: Mapping[str, ColumnType], limits: PartLimits
) -> Iterator[Outgoing]:
    """Yield the parts of a snapshot: one if there are no rows. A part exceeds the size only if it is a single row."""
    at = 0
    for part in count():
        size, entries = 0, list[Entry]()
        while at < len(rows) and len(entries) < limits.rows:
            entry = _entry(rows[at], columns)
            size += _size(entry)
            if entries and size > limits.size:
                break
            entries.append(entry)
            at += 1
        yield Outgoing.of(replace(head, part=part, is_last=at == len(rows), rows=entries).to_packet())
        if at == len(rows):
            return


def _size(entry: Entry) -> int:
    """Return an estimate of a row's bytes, mostly too large; too small for many characters beyond U+FFFF."""
    return _values_size(entry.row or {}) + _values_size(dict.fromkeys(entry.nulls))


def _values_size(values: Mapping[str, object]) -> int:
    total = 0
    for name, value in values.items():
        total += len(encode_key(name)) + _VALUE_OVERHEAD
        if isinstance(value, Packet):
            total += _values_size(value.values)
        elif isinstance(value, str):
            total += 3 * len(value)
        elif isinstance(value, bytes):
            total += len(value)
    return total
