"""Reference reader: parses landed notifications and snapshots one by one, to verify silver independently.

It shares only the wire codec and the settings with the build. JSON is parsed separately, by other means, and values are
typed one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Final, NoReturn

from silverfold.conf.errors import InvalidValue, RemoteProtocolError
from silverfold.connectors.common.key_span import EVERY_KEY, KeySpan
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.frame_access import notification_text, selected_rows
from silverfold.connectors.sqlitecloud.reference.values import (
    Number,
    Pairs,
    as_json,
    cell_value,
    check_key,
    column_type,
    sent_value,
)
from silverfold.connectors.verification import ReferenceChange

NUMBERS: Final = ("_position", "_ordinal")
"""The columns that identify a row in a table of messages."""

_OPERATIONS = ("INSERT", "UPDATE", "DELETE")
_SELECTED: Final = b"*/%"


@dataclass
class SqliteCloudReferenceReader:
    """A `connectors.verification.ReferenceReader` of one stream: a table's, or a channel's."""

    stream: str
    table: SqliteCloudTable
    options: SqliteCloudOptions
    _described: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns at the source; position and ordinal for messages."""
        return NUMBERS if self.table.only_adds else tuple(self._described.get("keys", self.table.keys))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the newest snapshot's table; sender and content for messages."""
        if self.table.is_channel:
            return ("sender", "payload")
        if self.table.log:
            return ("sender", "op", "key", "old_key", "columns")
        return tuple(column["name"] for column in self._described.get("columns", ()) if not column["hidden"])

    def control(self, frame: ControlFrame) -> None:
        """Read the description of the table."""
        if frame.stream == self.stream:
            self._described = json.loads(frame.body)

    def changes(
        self, epoch: int, frames: Iterable[tuple[int, bytes]], within: KeySpan = EVERY_KEY
    ) -> Iterable[ReferenceChange]:
        """Return the changes of a notification or a complete snapshot; see `ReferenceReader`."""
        selected: set[tuple[Any, ...]] = set()
        for position, body in frames:
            if body[:1] in _SELECTED:
                for change in self._snapshot_changes(position, body):
                    if change.key in selected:
                        raise InvalidValue("two rows of the snapshot have the same key", reason="duplicate_key")
                    if within.holds(change.key):
                        selected.add(change.key)
                    yield change
            else:
                yield from self._notification_changes(position, body)

    def _notification_changes(self, position: int, body: bytes) -> Iterator[ReferenceChange]:
        members = _parse(notification_text(body))
        if not isinstance(_first(members, "channel"), str):
            _refuse("no_channel")
        if self.table.log:
            return self._log_changes(position, members)
        return (
            self._message_changes(position, members)
            if self.table.is_channel
            else self._table_changes(position, members)
        )

    def _snapshot_changes(self, position: int, body: bytes) -> Iterator[ReferenceChange]:
        selected = selected_rows(body, max_frame_bytes=self.options.max_frame_bytes)
        is_other = selected.names is not None and list(selected.names) != list(self.columns)
        if selected.rows and (is_other or selected.width != len(self.columns)):
            raise RemoteProtocolError("a snapshot's rows are not as described", stream=self.stream)
        for cells in selected.rows:
            row = {
                name: self._keyed(name, cell, cell_value(name, self._kind(name), cell))
                for name, cell in zip(self.columns, cells, strict=True)
            }
            yield ReferenceChange("insert", position, tuple(row[name] for name in self.keys), row)

    def _message_changes(self, position: int, members: Pairs) -> Iterator[ReferenceChange]:
        if _word(members, "channel_type", "type") != "MESSAGE":
            _refuse("unknown_kind")
        row = {"sender": _as_text(_first(members, "sender")), "payload": _as_text(_first(members, "payload"))}
        yield ReferenceChange("insert", position, (position, 0), row)

    def _log_changes(self, position: int, members: Pairs) -> Iterator[ReferenceChange]:
        names, entries = _word(members, "sqlite_pk_name", "pk"), _first(members, "payload")
        if (
            _word(members, "channel_type", "type") != "TABLE"
            or not isinstance(names, list)
            or not isinstance(entries, list)
        ):
            _refuse("unknown_kind")
        if not names or not all(type(name) is str for name in names) or len({*names}) < len(names):
            _refuse("bad_key_names")
        for ordinal, entry in enumerate(entries):
            op, old_values, columns = _split_entry(entry)
            old = None if op == "INSERT" or old_values is None else dict(zip(names, old_values, strict=False))
            key = dict(columns) if op != "DELETE" else {}
            now = {name: key.get(name, (old or {}).get(name)) if name not in key else key[name] for name in names}
            for each in (now, *([] if old is None else [old])):
                if len(each) != len(names) or not all(type(value) in (str, Number) for value in each.values()):
                    _refuse("no_key")
            if old is not None and len(old_values or ()) != len(names):
                _refuse("key_arity")
            moved = op == "UPDATE" and old is not None and _numbers(old) != _numbers(now)
            row = {
                "sender": _as_text(_first(members, "sender")),
                "op": op.lower(),
                "key": as_json(Pairs(now.items())),
                "old_key": as_json(Pairs((old or {}).items())) if moved else None,
                "columns": None if op == "DELETE" else as_json(Pairs(columns)),
            }
            yield ReferenceChange("insert", position, (position, ordinal), row)

    def _table_changes(self, position: int, members: Pairs) -> Iterator[ReferenceChange]:
        if _word(members, "channel_type", "type") != "TABLE":
            _refuse("unknown_kind")
        names, entries = _word(members, "sqlite_pk_name", "pk"), _first(members, "payload")
        if not isinstance(names, list) or sorted(names) != sorted(self.keys) or not isinstance(entries, list):
            _refuse("other_keys")
        for entry in entries:
            yield from self._entry_changes(position, entry, names)

    def _entry_changes(self, position: int, entry: Any, names: Sequence[str]) -> Iterator[ReferenceChange]:
        op, old_values, columns = _split_entry(entry)
        if op == "INSERT":  # an INSERT has no old key, even if one is sent
            old_values = None
        if old_values is not None and (len(old_values) != len(names) or None in old_values):
            _refuse("no_key")
        old = None if old_values is None else dict(zip(names, old_values, strict=True))
        row = {} if op == "DELETE" else {name: self._typed(name, value) for name, value in columns if self._has(name)}
        old_key = None if old is None else tuple(self._typed(name, old[name]) for name in self.keys)
        if op == "DELETE":
            yield ReferenceChange("delete", position, old_key or _refuse("no_key"))
            return
        if op == "UPDATE" and old_key is not None:
            row = {**dict(zip(self.keys, old_key, strict=True)), **row}
        if any(row.get(name) is None for name in self.keys):
            _refuse("no_key")
        key = tuple(row[name] for name in self.keys)
        blank = dict.fromkeys(self.columns)
        if op == "INSERT":
            if self.options.insert_absent == "error" and row.keys() != blank.keys():
                _refuse("absent_column")
            yield ReferenceChange("insert", position, key, blank | row)
            return
        if self.options.update_columns == "full":
            row = blank | row
        moved = old_key is not None and old_key != key
        yield ReferenceChange("update", position, key, row, old_key=old_key if moved else None)
        if moved and row.keys() == blank.keys():  # even if the old row is already gone, in a snapshot
            yield ReferenceChange("insert", position, key, row, old_key=old_key)

    def _has(self, name: str) -> bool:
        """Return whether a column is stored. Raise InvalidValue for an unknown one."""
        hidden = {column["name"]: column["hidden"] for column in self._described.get("columns", ())}
        if name not in hidden:
            _refuse("unknown_column")
        return not hidden[name]

    def _typed(self, name: str, value: Any) -> Any:
        return self._keyed(name, value, sent_value(name, self._kind(name), value, self.options.blob))

    def _keyed(self, name: str, source_value: Any, value: Any) -> Any:
        """Return a value, normalized if in the key. Raise InvalidValue if another key would become equal."""
        if name not in self.keys:
            return value
        declared, wanted = self._declared(name), self.table.types.get(name)
        if not declared and not wanted and type(source_value) not in (str, NoneType):
            _refuse("unfit_value")
        is_mixed = wanted is not None and (not declared or column_type(declared, None) == "binary")
        check_key(name, self._kind(name), source_value, value, mixed=is_mixed)
        if self.table.key_collation == "nocase" and isinstance(value, str):
            return "".join(letter.lower() if letter.isascii() else letter for letter in value)
        return value

    def _declared(self, name: str) -> str:
        (declared,) = (column["type"] for column in self._described["columns"] if column["name"] == name)
        return str(declared)

    def _kind(self, name: str) -> str:
        return column_type(self._declared(name), self.table.types.get(name))


def _parse(text: bytes) -> Pairs:
    try:
        members = json.loads(
            text.decode(), object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=_refuse
        )
    except (ValueError, RecursionError) as error:
        raise InvalidValue(str(error), reason="invalid_json") from error
    if not isinstance(members, Pairs):
        _refuse("not_an_object")
    return members


def _split_entry(entry: Any) -> tuple[Any, list[Any] | None, list[tuple[str, Any]]]:
    """Return the operation, old key and other members of an entry."""
    if not isinstance(entry, Pairs):
        _refuse("entry_not_an_object")
    rest = list(entry)
    op = _take(rest, "sqlite_type", lambda _: True) or _take(rest, "type", lambda _: True)
    old_key = _take(rest, "sqlite_pk_value", _is_list) or _take(rest, "pv", _is_list)
    if op is None or op[1] not in _OPERATIONS:
        _refuse("unknown_op")
    if (op[0], old_key and old_key[0]) == ("sqlite_type", "pv") and _has_operation(rest):
        _refuse("unknown_op")
    if len({name for name, _ in rest}) < len(rest):
        _refuse("duplicate_column")
    return op[1], old_key and old_key[1], rest


def _has_operation(rest: list[tuple[str, Any]]) -> bool:
    """Return whether the older word is an operation too: then the newer one may be a column."""
    return any(name == "type" and value in _OPERATIONS for name, value in rest)


def _take(members: list[tuple[str, Any]], name: str, fits: Any) -> tuple[str, Any] | None:
    found = next((member for member in members if member[0] == name and fits(member[1])), None)
    if found is not None:
        members.remove(found)
    return found


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _first(members: Pairs, name: str) -> Any:
    return next((value for each, value in members if each == name), None)


def _word(members: Pairs, newer: str, older: str) -> Any:
    return _first(members, newer if any(name == newer for name, _ in members) else older)


def _numbers(key: Mapping[str, Any]) -> list[Any]:
    """Return a key's values in comparable form: 1 and 1.0 are equal, 1 and "1" are not."""
    return [(int(v) if v.is_integral else float(v)) if isinstance(v, Number) else str(v) for v in key.values()]


def _as_text(value: Any) -> str | None:
    text = value if value is None or (isinstance(value, str) and not isinstance(value, Number)) else as_json(value)
    try:
        return text and text.encode().decode()
    except UnicodeEncodeError:
        return json.dumps(text)


def _refuse(reason: str) -> NoReturn:
    raise InvalidValue("a notification cannot be read", reason=reason)
