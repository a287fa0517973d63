"""The feed's packets as typed values. A packet's name identifies its kind; unknown keys are ignored.

=============================  ====================================================================
from the receiver              `Subscribe`, `Ack`, `Ping`, `Pong`
from the source                `Schema`, `Snapshot`, `Change`, `Update`, `SourceError`, `Ping`, `Pong`
=============================  ====================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.tengi.protocol.feed.columns import whole
from silverfold.connectors.tengi.protocol.values import Byte, Identifier, Int, Packet

OPS: Final = ("INSERT", "UPDATE", "DELETE")
_MOST_TEXT: Final = 1_000
"""Characters of an error's text that are read. The text lands, and is logged and shown at each try."""
_EPOCH: Final = re.compile("[0-9]{20}", re.ASCII)


class Position(NamedTuple):
    """Number of an update in its source's order. Positions sort as their texts do."""

    epoch: str
    """The numbering: 20 digits, greater for a later one. Our source takes the microseconds since 1970."""
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.seq:019d}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse the text of a position. Raises InvalidValue, ``bad_position``."""
        epoch, _, seq = text.partition(":")
        if not (_EPOCH.fullmatch(epoch) and seq.isdecimal() and seq.isascii()):
            raise InvalidValue(f"{text!r} is no position", reason="bad_position")
        return cls(epoch, int(seq))


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of an update or a snapshot, as tengi values.

    Args:
        key: The key columns before the change; None if no key is sent, as in a snapshot.
        row: The columns sent that are not NULL; None for a deleted row.
        nulls: The columns sent that are NULL.
    """

    key: Mapping[str, Any] | None = None
    row: Mapping[str, Any] | None = None
    nulls: frozenset[str] = frozenset()

    def write_to(self, packet: Packet) -> Packet:
        """Set the entry's values in a packet, and return it."""
        if self.key is not None:
            packet.set_value("key", Packet("key", self.key))
        if self.row is not None:
            packet.set_value("row", Packet("row", self.row))
        if self.nulls:
            packet.set_value("nulls", Packet("nulls", dict.fromkeys(sorted(self.nulls), Byte(1))))
        return packet


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Asks for a table's changes after a position, or for all of it with ``from_seq`` -1."""

    table: str
    from_seq: int
    epoch: str | None = None

    def to_packet(self) -> Packet:
        """Return the packet."""
        packet = Packet("subscribe", {"table": self.table, "from": self.from_seq})
        return packet if self.epoch is None else packet.set_value("epoch", self.epoch)


@dataclass(frozen=True, slots=True)
class Schema:
    """Keys and columns of a table. Types are texts."""

    table: str
    version: int
    keys: tuple[str, ...]
    columns: Mapping[str, str]

    def to_packet(self) -> Packet:
        """Return the packet."""
        keys = Packet("keys", {str(number): name for number, name in enumerate(self.keys)})
        values = {"table": self.table, "version": Int(self.version), "keys": keys}
        return Packet("schema", {**values, "columns": Packet("columns", self.columns)})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A part of a table's state, as of a position."""

    table: str
    position: Position
    version: int
    id: Identifier
    part: int
    is_last: bool
    rows: Sequence[Entry]

    def to_packet(self) -> Packet:
        """Return the packet."""
        values = _common(self.table, self.position, self.version)
        part = {"id": self.id, "part": Int(self.part), "last": Byte(self.is_last)}
        return Packet("snapshot", {**values, **part, "rows": _entries("rows", self.rows)})


@dataclass(frozen=True, slots=True)
class Change:
    """An update of one row. ``ts`` is its commit at the source, in microseconds since 1970."""

    table: str
    position: Position
    version: int
    op: str
    entry: Entry
    ts: int | None = None

    def to_packet(self) -> Packet:
        """Return the packet."""
        values = {**_common(self.table, self.position, self.version), "op": self.op}
        packet = self.entry.write_to(Packet("change", values))
        return packet if self.ts is None else packet.set_value("ts", self.ts)


@dataclass(frozen=True, slots=True)
class Update:
    """An update of several rows, in the order removed, modified, added."""

    table: str
    position: Position
    version: int
    removed: Sequence[Entry] = ()
    modified: Sequence[Entry] = ()
    added: Sequence[Entry] = ()
    ts: int | None = None

    def to_packet(self) -> Packet:
        """Return the packet."""
        packet = Packet("update", _common(self.table, self.position, self.version))
        if self.ts is not None:
            packet.set_value("ts", self.ts)
        for name, entries in (("removed", self.removed), ("modified", self.modified), ("added", self.added)):
            if entries:
                packet.set_value(name, _entries(name, entries))
        return packet


@dataclass(frozen=True, slots=True)
class Ack:
    """Everything up to a position is committed."""

    table: str
    position: Position

    def to_packet(self) -> Packet:
        """Return the packet."""
        return Packet("ack", {"table": self.table, "epoch": self.position.epoch, "seq": self.position.seq})


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a `Pong` with the same number."""

    seq: int

    def to_packet(self) -> Packet:
        """Return the packet."""
        return Packet("ping", {"seq": self.seq})


class Newest(NamedTuple):
    """The newest update of a table at its source. ``ts`` is as in `Change`."""

    position: Position
    ts: int | None = None

    def to_packet(self) -> Packet:
        """Return the packet."""
        packet = Packet("newest", {"epoch": self.position.epoch, "seq": self.position.seq})
        return packet if self.ts is None else packet.set_value("ts", self.ts)


@dataclass(frozen=True, slots=True)
class Pong:
    """Answers a `Ping`.

    Args:
        newest: Newest updates of tables subscribed on the connection; none from a source that does not report them.
    """

    seq: int
    newest: Mapping[str, Newest] = field(default_factory=dict)

    def to_packet(self) -> Packet:
        """Return the packet."""
        packet = Packet("pong", {"seq": self.seq})
        newest = {name: each.to_packet() for name, each in self.newest.items()}
        return packet.set_value("newest", Packet("newest", newest)) if newest else packet


@dataclass(frozen=True, slots=True)
class SourceError:
    """The source refuses. Codes: 1 unknown table, 2 not understood, 3 not allowed; with any other, try again later."""

    code: int
    text: str
    table: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether asking again is of no use."""
        return self.code in (1, 2, 3)

    def to_packet(self) -> Packet:
        """Return the packet."""
        packet = Packet("error", {"code": Int(self.code), "text": self.text})
        return packet if self.table is None else packet.set_value("table", self.table)


FeedPacket: TypeAlias = Subscribe | Schema | Snapshot | Change | Update | Ack | Ping | Pong | SourceError


def read_packet(body: object) -> FeedPacket:
    """Return the body of a message as a typed value.

    Raises:
        InvalidValue: ``unknown_packet``: it is no packet of a feed; ``missing_field``, ``wrong_type``, ``bad_position``
            or ``bad_op``, with the field as ``element``.
    """
    if not isinstance(body, Packet) or body.name not in _READERS:
        shown = f"packet {body.name[:40]!r}" if isinstance(body, Packet) else type(body).__name__
        raise InvalidValue(f"{shown} is no packet of a feed", reason="unknown_packet")
    return _READERS[body.name](_Fields(body.values))


class _Fields:
    """Values of a packet, by key and type."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def value(self, key: str, wanted: type) -> Any:
        if key not in self.values:
            raise InvalidValue("the field is missing", reason="missing_field", element=key)
        found = self.values[key]
        if not isinstance(found, wanted):
            raise InvalidValue(f"{type(found).__name__} is the wrong type", reason="wrong_type", element=key)
        return found

    def text(self, key: str) -> str:
        return str(self.value(key, str))

    def number(self, key: str, bits: int = 64) -> int:
        return whole(self.value(key, object), bits, key)

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self.values else None

    def optional_number(self, key: str) -> int | None:
        return self.number(key) if key in self.values else None

    def items(self, key: str, *, required: bool = False) -> list[Any]:
        if key not in self.values and not required:
            return []
        found = self.value(key, Packet).values
        try:
            return [found[str(number)] for number in range(len(found))]
        except KeyError as error:
            raise InvalidValue(f"no item {error}", reason="missing_field", element=key) from None

    def entries(self, key: str, *, required: bool = False) -> tuple[Entry, ...]:
        items = _Fields(dict(enumerate(self.items(key, required=required))))  # type: ignore[arg-type]  # named by index
        return tuple(_Fields(items.value(number, Packet).values).entry() for number in items.values)

    def entry(self) -> Entry:
        key, row = (dict(self.value(name, Packet).values) if name in self.values else None for name in ("key", "row"))
        nulls = self.value("nulls", Packet).values if "nulls" in self.values else ()
        return Entry(key, row, frozenset(nulls))

    def position(self) -> Position:
        epoch, seq = self.text("epoch"), self.number("seq")
        if not _EPOCH.fullmatch(epoch) or seq < 0:
            raise InvalidValue("an epoch has 20 digits, a seq is not negative", reason="bad_position", element="epoch")
        return Position(epoch, seq)


def _schema(fields: _Fields) -> Schema:
    keys, columns = fields.items("keys", required=True), fields.value("columns", Packet).values
    if not all(isinstance(each, str) for each in (*keys, *columns.values())):
        raise InvalidValue("names and types are texts", reason="wrong_type", element="columns")
    return Schema(fields.text("table"), fields.number("version", 32), tuple(keys), columns)


def _snapshot(fields: _Fields) -> Snapshot:
    return Snapshot(
        fields.text("table"),
        fields.position(),
        fields.number("version", 32),
        fields.value("id", Identifier),
        fields.number("part", 32),
        fields.number("last") != 0,
        fields.entries("rows", required=True),
    )


def _change(fields: _Fields) -> Change:
    op = fields.text("op")
    if op not in OPS:
        raise InvalidValue(f"{op[:40]!r} is no operation", reason="bad_op", element="op")
    fields.value("key", Packet)
    table, position, version = fields.text("table"), fields.position(), fields.number("version", 32)
    return Change(table, position, version, op, fields.entry(), fields.optional_number("ts"))


def _update(fields: _Fields) -> Update:
    table, position, version = fields.text("table"), fields.position(), fields.number("version", 32)
    removed, modified, added = (fields.entries(name) for name in ("removed", "modified", "added"))
    return Update(table, position, version, removed, modified, added, fields.optional_number("ts"))


def _pong(fields: _Fields) -> Pong:
    found = _Fields(fields.value("newest", Packet).values if "newest" in fields.values else {})
    tables = {name: _Fields(found.value(name, Packet).values) for name in found.values}
    newest = {name: Newest(each.position(), each.optional_number("ts")) for name, each in tables.items()}
    return Pong(fields.number("seq"), newest)


_READERS: Final[dict[str, Callable[[_Fields], FeedPacket]]] = {
    "subscribe": lambda each: Subscribe(each.text("table"), each.number("from"), each.optional_text("epoch")),
    "schema": _schema,
    "snapshot": _snapshot,
    "change": _change,
    "update": _update,
    "ack": lambda each: Ack(each.text("table"), each.position()),
    "ping": lambda each: Ping(each.number("seq")),
    "pong": _pong,
    "error": lambda each: SourceError(
        each.number("code", 32), each.text("text")[:_MOST_TEXT], each.optional_text("table")
    ),
}


def _common(table: str, position: Position, version: int) -> dict[str, Any]:
    return {"table": table, "epoch": position.epoch, "seq": position.seq, "version": Int(version)}


def _entries(name: str, entries: Iterable[Entry]) -> Packet:
    return Packet(name, {str(number): each.write_to(Packet("entry")) for number, each in enumerate(entries)})
