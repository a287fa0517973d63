"""Changes in one record's JSON object: its layout, and what each layout means.

A whole row updates all columns, and replaces the row there was. It is an insert only if its sender calls it one: a late
or repeated row must not be counted as an insert over a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, NoReturn

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.hstreamdb.decoder.kinds import DeclaredColumn, columns_of
from silverfold.connectors.hstreamdb.decoder.values import FIRST_MICROS, LAST_MICROS, NOT_SENT
from silverfold.connectors.hstreamdb.options import HStreamTable

_WRAPPED: Final = {"schema", "payload"}
_ENVELOPE_OPS: Final = ("c", "u", "d", "r", "t", "m")
_OPS: Final = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}


class Change(NamedTuple):
    """One change, typed.

    Args:
        cells: Values of the columns sent, with the key; of a delete the key alone.
        source_time: Microseconds since 1970.
    """

    op: str
    cells: Mapping[str, Any]
    source_time: int | None = None


@dataclass(frozen=True)
class RecordReader:
    """Reads the changes in objects, for one table. Picklable."""

    table: HStreamTable

    @cached_property
    def columns(self) -> tuple[DeclaredColumn, ...]:
        """The table's columns."""
        return columns_of(self.table)

    @property
    def reads_columns(self) -> bool:
        """Whether records of the layouts ``unwrapped`` and ``row`` may be read many at once."""
        return self.table.layout in ("auto", "unwrapped", "row")

    @cached_property
    def layout_members(self) -> frozenset[str]:
        """Names of members that other layouts have: an object with one is read alone, unless ``unwrapped``."""
        return frozenset({"op", "payload", self.table.operation_member})

    def changes(self, found: Any) -> Sequence[Change]:
        """Return the changes in a record: one; none for a message of Debezium; a delete and the row if its key changes.

        Args:
            found: Its JSON; any, as received.

        Raises:
            InvalidValue: ``reason`` is one of `DeclaredColumn.value`, or ``not_object``, ``bad_value``,
                ``missing_key``, ``null_key``, ``key_mismatch``, ``unknown_op``, ``unsupported_op`` or
                ``partial_key_move``. ``element`` is the column, if one is at fault.
        """
        if isinstance(found, Mapping) and found.keys() == _WRAPPED and self.table.layout not in ("row", "operation"):
            found = found["payload"]
        if not isinstance(found, Mapping):
            _refuse("not_object", "a record is a JSON object")
        match self.layout(found):
            case "unwrapped":
                return [self._unwrapped(found)]
            case "envelope":
                return list(self._envelope(found))
            case "operation":
                return list(self._operation(found))
        return [self._upsert(found)]

    def layout(self, found: Mapping[str, Any]) -> str:
        """Return the layout of an object: the one set, or the first of the four whose members it has."""
        if self.table.layout != "auto":
            return self.table.layout
        if isinstance(found.get("key"), Mapping) and "value" in found:
            return "unwrapped"
        if _is_one_of(found.get("op"), _ENVELOPE_OPS) and ("before" in found or "after" in found):
            return "envelope"
        return "row" if _operation_named(found.get(self.table.operation_member)) is None else "operation"

    def _unwrapped(self, found: Mapping[str, Any]) -> Change:
        key = self._key(found.get("key"))
        if found.get("value", ...) is None:
            return Change("delete", key)
        return self._upsert(found.get("value"), key)

    def _envelope(self, found: Mapping[str, Any]) -> Iterator[Change]:
        op, time = found.get("op"), _source_time(found.get("source"))
        if op == "m":
            return
        if op == "t":
            _refuse("unsupported_op", "a truncate names no rows")
        if op == "d":
            yield Change("delete", self._key(found.get("before")), time)
        elif _is_one_of(op, _ENVELOPE_OPS):
            change = self._upsert(found.get("after"))._replace(source_time=time)
            if op == "c" and self.is_whole(change.cells):
                change = change._replace(op="insert")
            yield from self._moved(self._old_key(found.get("before")) if op == "u" else None, change)
        else:
            _refuse("unknown_op", f"{op!r:.40} is none of {', '.join(_ENVELOPE_OPS)}")

    def _operation(self, found: Mapping[str, Any]) -> Iterator[Change]:
        word = found.get(self.table.operation_member)
        op = _operation_named(word)
        if op is None:
            _refuse("unknown_op", f"{word!r:.40} is none of {', '.join(_OPS)}")
        is_flat = self.table.operation_form == "flat"
        row = (
            {name: found[name] for name in found if name != self.table.operation_member}
            if is_flat
            else found.get("row")
        )
        named = None if is_flat or "key" not in found else self._key(found["key"])
        if op == "delete":
            yield Change("delete", self._key(row) if named is None else named)
            return
        change = self._upsert(row, named)._replace(op=op)
        yield from self._moved(self._old_key(None if is_flat else found.get("old_key")), change)

    def _upsert(self, row: Any, key: Mapping[str, Any] | None = None) -> Change:
        """Return the change that sets the columns sent. The row has the key, unless it is given."""
        if not isinstance(row, Mapping):
            _refuse("bad_value", "a row is a JSON object")
        sent = {
            column.name: column.value(row[column.name])
            for column in self.columns
            if column.name in row and row[column.name] != NOT_SENT
        }
        if key is None:
            self._check_key(sent)
            return Change("update", sent)
        if not self.table.trust_key:
            for name, value in key.items():
                if sent.get(name, value) != value:
                    _refuse("key_mismatch", "key and row disagree", name)
        return Change("update", {**sent, **key})

    def is_whole(self, cells: Mapping[str, Any]) -> bool:
        """Return whether all columns were sent."""
        return len(cells) == len(self.table.columns)

    def _moved(self, old: Mapping[str, Any] | None, change: Change) -> Iterator[Change]:
        """Yield a change, and if its key changes, the delete of the old one. Both have one place in the order."""
        if old is not None and any(change.cells[name] != value for name, value in old.items()):
            if not self.is_whole(change.cells):
                _refuse("partial_key_move", "a row whose key changes is not whole")
            yield Change("delete", old, change.source_time)
        yield change

    def _key(self, found: Any) -> dict[str, Any]:
        found = found if isinstance(found, Mapping) else {}
        key = {column.name: column.value(found[column.name]) for column in self._key_columns if column.name in found}
        self._check_key(key)
        return key

    def _old_key(self, found: Any) -> dict[str, Any] | None:
        """Return the key of a row before its change; None if not all of it was sent."""
        if not isinstance(found, Mapping) or any(found.get(name) is None for name in self.table.keys):
            return None
        return self._key(found)

    def _check_key(self, cells: Mapping[str, Any]) -> None:
        for name in self.table.keys:
            if name not in cells:
                _refuse("missing_key", "a key column is missing", name)
            if cells[name] is None:
                _refuse("null_key", "a key column is null", name)

    @cached_property
    def _key_columns(self) -> list[DeclaredColumn]:
        return [column for name in self.table.keys for column in self.columns if column.name == name]


def _is_one_of(word: Any, words: Sequence[str]) -> bool:
    return isinstance(word, str) and word in words


def _operation_named(word: Any) -> str | None:
    """Return the operation that a word names in any letter case, of ASCII alone: a dotless i is no I."""
    return _OPS.get(word.upper()) if isinstance(word, str) and word.isascii() else None


def _source_time(source: Any) -> int | None:
    """Return the time of ``source.ts_ms`` in microseconds; None if there is none, or none that Spark can show."""
    ts_ms = source.get("ts_ms") if isinstance(source, Mapping) else None
    if type(ts_ms) is int and FIRST_MICROS <= 1000 * ts_ms <= LAST_MICROS:
        return 1000 * ts_ms
    return None


def _refuse(reason: str, detail: str, column: str = "") -> NoReturn:
    raise InvalidValue(detail, reason=reason, element=column)
