"""Reference reader: reads landed packets row by row, to verify silver independently of the decoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.common.key_span import EVERY_KEY, KeySpan
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.tengi.options import ROW_NUMBER, TengiOptions, TengiTable
from silverfold.connectors.tengi.protocol.feed.columns import ColumnType, parse_type, whole
from silverfold.connectors.tengi.protocol.frame_access import read_frame
from silverfold.connectors.tengi.protocol.values import Packet
from silverfold.connectors.tengi.reference.values import read_value
from silverfold.connectors.verification import ReferenceChange


@dataclass(frozen=True)
class _Schema:
    position: int
    version: int
    keys: tuple[str, ...]
    columns: Mapping[str, ColumnType]


class TengiReferenceReader:
    """A `connectors.verification.ReferenceReader` of one table's stream."""

    def __init__(self, stream: str, table: TengiTable, options: TengiOptions) -> None:
        self._stream, self._options = stream, options
        declared = {name: parse_type(text) for name, text in table.columns.items()}
        self._declared = _Schema(-1, 0, table.keys, declared) if declared else None
        self._own_keys = table.keys
        self._schemas: list[_Schema] = []

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of the settings, or else of the newest schema, or else the rows' numbers."""
        return self._own_keys or (self._schemas[-1].keys or ROW_NUMBER if self._schemas else ())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the settings, or else of the newest schema."""
        newest = self._declared or (self._schemas[-1] if self._schemas else None)
        return () if newest is None else tuple(newest.columns)

    def control(self, frame: ControlFrame) -> None:
        """Take a control frame. It is ignored if it is another stream's, or unreadable but for types."""
        if frame.stream != self._stream:
            return
        try:
            packet = read_frame(frame.body, limit=self._options.max_packet)
            kinds = {name: _type_of(text) for name, text in sorted(_values(packet.get_value("columns")).items())}
            keys = _values(packet.get_value("keys"))
            names = tuple(keys[str(at)] for at in range(len(keys)))
            version = whole(packet.get_value("version"), 32)
        except (WireError, KeyError, TypeError):
            return
        self._schemas.append(_Schema(frame.frame_seq, version, names, kinds))

    def changes(
        self, epoch: int, frames: Iterable[tuple[int, bytes]], within: KeySpan = EVERY_KEY
    ) -> Iterator[ReferenceChange]:
        """Yield the changes of frames; see `connectors.verification.ReferenceReader.changes`."""
        for position, body in frames:
            yield from self.packet_changes(read_frame(body, limit=self._options.max_packet), position)

    def packet_changes(self, packet: Packet, position: int) -> Iterator[ReferenceChange]:
        """Yield the changes of one packet. Raises InvalidValue."""
        whole, newest = self._schema_of(packet.get_value("version"), position)
        source_keys = self._schemas[-1].keys if self._schemas else ()
        for number, (op, entry) in enumerate(_operations(packet)):
            if self._own_keys or source_keys:
                yield self._change(op, entry, whole, newest, position)
            elif op == "INSERT":
                row = self._sent(entry, whole, newest)
                yield self._of("insert", position, row, _row_number(packet, number))
            else:
                raise InvalidValue("a table without keys takes inserts only", reason="unfit")

    def _schema_of(self, version: object, position: int) -> tuple[_Schema, _Schema]:
        """Return the schema of a frame's rows, and the newest schema that landed before the frame."""
        if self._declared is not None:
            return self._declared, self._declared
        before = [each for each in self._schemas if each.position < position]
        number = whole(version, 32, "version")
        for each in reversed(before):
            if each.version == number:
                return each, before[-1]
        raise InvalidValue(f"no schema of version {number}", reason="unfit")

    def _change(
        self, op: object, entry: Mapping[str, Any], whole: _Schema, newest: _Schema, position: int
    ) -> ReferenceChange:
        if op == "DELETE":
            return ReferenceChange("delete", position, self._old_key(entry, newest))
        if op == "INSERT":
            sent = self._sent(entry, whole, newest)
            return self._of("insert", position, sent, [sent[name] for name in self.keys])
        if op != "UPDATE":
            raise InvalidValue(f"{op!r:.40} is no operation", reason="unfit")
        row, before = self._row(entry, newest), self._old_key(entry, newest)
        sent = {name: value for name, value in row.items() if name in newest.columns}
        after = [sent.get(name, old) for name, old in zip(self.keys, before, strict=True)]
        return self._of("update", position, sent, after, before)

    def _sent(self, entry: Mapping[str, Any], whole: _Schema, newest: _Schema) -> dict[str, Any]:
        """Return the cells of a whole row, in the newest columns."""
        row = self._row(entry, newest)
        if whole.columns.keys() - row.keys():
            raise InvalidValue("a whole row lacks columns", reason="unfit")
        return {name: row.get(name) for name in newest.columns}

    def _of(
        self,
        op: Literal["insert", "update"],
        position: int,
        sent: Mapping[str, Any],
        key: Iterable[Any],
        before: tuple[Any, ...] | None = None,
    ) -> ReferenceChange:
        now = tuple(key)
        if None in now:
            raise InvalidValue("a key is NULL", reason="unfit")
        row = {**dict(zip(self.keys, now, strict=True)), **sent}
        return ReferenceChange(op, position, now, row, old_key=before if before != now else None)

    def _old_key(self, entry: Mapping[str, Any], newest: _Schema) -> tuple[Any, ...]:
        key = _values(entry.get("key"))
        if not set(self.keys) <= key.keys():
            raise InvalidValue("a key lacks columns", reason="unfit")
        return tuple([read_value(newest.columns[name], key[name]) for name in self.keys])

    def _row(self, entry: Mapping[str, Any], newest: _Schema) -> dict[str, Any]:
        """Return the cells sent, including those of unknown columns."""
        nulls = _values(entry["nulls"]) if "nulls" in entry else None
        row = {} if nulls is not None and "row" not in entry else dict(_values(entry.get("row")))
        nulls = nulls or {}
        if row.keys() & nulls.keys():
            raise InvalidValue("a column has a value and is NULL", reason="unfit")
        for name in row.keys() & newest.columns.keys():
            row[name] = read_value(newest.columns[name], row[name])
        return row | dict.fromkeys(nulls)


def _type_of(text: str) -> ColumnType:
    """Return a column's type; ``void`` for one that silver does not have."""
    try:
        return parse_type(text)
    except InvalidValue:
        return ColumnType("void")


def _values(found: Any) -> dict[str, Any]:
    if type(found) is not Packet:
        raise InvalidValue(f"{type(found).__name__} is no Packet", reason="unfit")
    return found.values


def _row_number(packet: Packet, number: int) -> tuple[int, int]:
    part = packet.get_value("part", 0) if packet.name == "snapshot" else 0
    return whole(packet.get_value("seq"), 64, "seq"), whole(part, 32, "part") * 2**32 + number


def _operations(packet: Packet) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the operation and the entry of each row."""
    match packet.name:
        case "change":
            yield packet.get_value("op"), packet.values
        case "snapshot":
            for entry in _entries(packet.get_value("rows")):
                yield "INSERT", entry
        case "update":
            for op, group in (("DELETE", "removed"), ("UPDATE", "modified"), ("INSERT", "added")):
                for entry in _entries(packet.get_value(group)):
                    yield op, entry
        case _:
            raise InvalidValue(f"{packet.name!r:.80} has no changes", reason="unfit")


def _entries(found: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a group, by their number."""
    entries = {} if found is None else _values(found)
    if entries.keys() != set(map(str, range(len(entries)))):
        raise InvalidValue("the entries are not numbered from 0", reason="unfit")
    for number in range(len(entries)):
        yield _values(entries[str(number)])
