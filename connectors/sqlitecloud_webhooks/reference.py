"""Reference reader: parses landed webhooks one by one, to verify silver independently.

It shares only the settings with the build. JSON is parsed separately, by other means, and values are typed one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from silverfold.conf.errors import InvalidValue
from silverfold.conf.names import caseless
from silverfold.connectors.common.key_span import EVERY_KEY, KeySpan
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sqlitecloud.reference.values import Number, Pairs, check_key, sent_value
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable
from silverfold.connectors.verification import ReferenceChange


@dataclass
class WebhookReferenceReader:
    """A `connectors.verification.ReferenceReader` of one table's stream."""

    stream: str
    table: WebhookTable
    options: WebhookOptions
    _columns: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._add_columns([*self.table.keys, *self.table.types])

    @property
    def keys(self) -> tuple[str, ...]:
        """The configured keys."""
        return self.table.keys

    @property
    def columns(self) -> tuple[str, ...]:
        """The configured columns, then those announced by control frames so far."""
        return tuple(self._columns.values())

    def control(self, frame: ControlFrame) -> None:
        """Add the columns that a control frame announces for the stream."""
        members = json.loads(frame.body)
        if members.get("stream", frame.stream) == self.stream:
            self._add_columns(name for name in members["columns"] if caseless(name) not in self.table.reserved_names)

    def _add_columns(self, names: Iterable[str]) -> None:
        for name in names:
            self._columns.setdefault(caseless(name), name)

    def changes(
        self, epoch: int, frames: Iterable[tuple[int, bytes]], within: KeySpan = EVERY_KEY
    ) -> Iterable[ReferenceChange]:
        """Return the changes of one webhook; see `connectors.verification.ReferenceReader.changes`."""
        return (change for position, body in frames for change in self._webhook_changes(position, _parse(body)))

    def _webhook_changes(self, position: int, members: dict[str, Any]) -> Iterator[ReferenceChange]:
        if f"{_text(members, 'database')}/{_text(members, 'table')}" != self.stream:
            _refuse("other_table")
        op, sent, values = _text(members, "type"), members.get("column"), members.get("data")
        if op not in ("insert", "update", "delete"):
            _refuse("unknown_op")
        if not isinstance(sent, list) or not sent or not isinstance(values, list):
            _refuse("bad_columns")
        names = [self._name(each) for each in sent]
        several = all(isinstance(each, list) for each in values) and values
        for row in values if several else [values]:
            yield self._change(position, op, names, row)

    def _change(self, position: int, op: str, names: Sequence[str], values: Sequence[Any]) -> ReferenceChange:
        if len(names) != len(values) or len(set(names)) < len(names):
            _refuse("data_arity")
        row = {
            name: self._typed(name, value)
            for name, value in zip(names, values, strict=True)
            if op != "delete" or name in self.keys
        }
        if any(row.get(name) is None for name in self.keys):
            _refuse("no_key")
        key = tuple(row[name] for name in self.keys)
        if op == "delete":
            return ReferenceChange("delete", position, key)
        is_complete = len(row) == len(self.columns)
        if op == "insert" and (is_complete or self.options.insert_absent == "null"):
            return ReferenceChange("insert", position, key, dict.fromkeys(self.columns) | row)
        if op == "insert" and self.options.insert_absent == "error":
            _refuse("absent_column")
        return ReferenceChange("update", position, key, row)

    def _typed(self, name: str, value: Any) -> Any:
        kind = self.table.types.get(name, "string")
        typed = sent_value(name, kind, value, self.options.blob)
        if name in self.keys:
            check_key(name, kind, value, typed, mixed=False)
        return typed

    def _name(self, sent: Any) -> str:
        found = self._columns.get(caseless(sent)) if isinstance(sent, str) else None
        return _refuse("unknown_column") if found is None else found


def _parse(body: bytes) -> dict[str, Any]:
    try:
        members = json.loads(
            body.decode(), object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=_refuse
        )
    except RecursionError as error:
        raise InvalidValue("nested too deep", reason="too_deep") from error
    except ValueError as error:
        raise InvalidValue(str(error), reason="invalid_json") from error
    if not isinstance(members, Pairs) or len(dict(members)) < len(members):
        _refuse("not_an_object")
    return dict(members)


def _text(members: dict[str, Any], name: str) -> str:
    found = members.get(name)
    return found if isinstance(found, str) and not isinstance(found, Number) else _refuse(f"no_{name}")


def _refuse(reason: str) -> NoReturn:
    raise InvalidValue("a webhook cannot be read", reason=reason)
