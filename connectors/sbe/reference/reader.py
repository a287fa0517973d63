"""Reference reader: decodes landed messages into changes one by one, in pure Python, to verify silver.

Shares only the schema, the settings and the semantics of operations with the code that builds silver. It uses neither
the columnar decoder nor the column layout, so that an error in one is detected by the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from conf.names import folded
from connectors.base import ControlFrame, ReferenceChange
from connectors.common.key_span import EVERY_KEY, KeySpan
from connectors.sbe.protocol.operations import DELETE, INSERT, UPDATE, Op, operations, unknown, unlisted, unnamed
from connectors.sbe.options import SENT, SbeTable
from connectors.sbe.reference.values import element_value, entry_value
from connectors.wire.sbe.codec.decode import decode
from connectors.wire.sbe.schema.model import Body, Enum, Message, Schema

NUMBERS: Final = ("_position", "_ordinal")
"""Columns that identify a row of a table without keys."""


class _Column(NamedTuple):
    name: str
    level: int
    body: Body
    element: str


@dataclass
class SbeReferenceReader:
    """A `connectors.base.ReferenceReader` of one template's stream."""

    schema: Schema
    message: Message
    table: SbeTable

    @property
    def keys(self) -> tuple[str, ...]:
        """The table's keys; without keys, position and ordinal of the row."""
        return self.table.keys or NUMBERS

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns according to the settings' schema, whatever has landed."""
        return (*(column.name for column in self._columns), *((SENT,) if self._lists_sent else ()))

    @property
    def _lists_sent(self) -> bool:
        return self.table.absent == "listed"

    def control(self, frame: ControlFrame) -> None:
        """Ignore control frames: no state is needed to read a data frame."""

    def changes(
        self, epoch: int, frames: Iterable[tuple[int, bytes]], within: KeySpan = EVERY_KEY
    ) -> Iterable[ReferenceChange]:
        """Return the changes of one message; see `connectors.base.ReferenceReader.changes`."""
        return (change for position, body in frames for change in self._of_message(position, body))

    def _of_message(self, position: int, body: bytes) -> Iterator[ReferenceChange]:
        values = decode(self.schema, body, text=self.table.text).values
        if self.table.timestamps:
            entry_value(self.message, values, self.table, self.message.name)  # a bad time anywhere fails the message
        for ordinal, levels in enumerate(_entries([values], self.table.path)):
            row = {
                column.name: element_value(
                    column.body, column.element, levels[column.level], self.table, column.body.name
                )
                for column in self._columns
                if column.element in levels[column.level]
            }
            for name, names in self._names.items():
                if name not in self.table.keys and row.get(name) not in (None, *names):
                    raise unknown(self.message.name, name, row[name])
            if self._lists_sent:
                row[SENT] = list(row)
            if not self.table.keys:
                yield ReferenceChange(INSERT, position, (position, ordinal), row)
                continue
            op = self._operation(row)
            for name, names in self._names.items():
                if name in self.table.keys and row.get(name) not in (None, *names):
                    raise unnamed(self.message.name, name, row[name])
            key = tuple(row.get(name) for name in self.table.keys)
            yield ReferenceChange(op, position, key, {} if op == DELETE else row)

    def _operation(self, row: dict[str, Any]) -> Op:
        name = self.table.operation
        if not name:
            return UPDATE
        found = self._operations.get(row.get(name) or "")
        if found is None:
            raise unlisted(self.message.name, name, row.get(name))
        return found

    @cached_property
    def _operations(self) -> dict[str, Op]:
        return dict(operations(self.table, self._names_of(self.table.operation)))

    @cached_property
    def _names(self) -> dict[str, tuple[str, ...]]:
        """Value names of each enum column whose values must all be known."""
        every = self.table.unknown_values == "error"
        checked = [column.name for column in self._columns] if every else self.table.keys
        return {name: names for name in checked if (names := self._names_of(name))}

    def _names_of(self, name: str) -> tuple[str, ...]:
        (column,) = (column for column in self._columns if column.name == name)
        field = next((field for field in column.body.fields if field.name == column.element), None)
        encoding = None if field is None else field.encoding
        return tuple(encoding.values.values()) if isinstance(encoding, Enum) else ()

    @cached_property
    def _columns(self) -> list[_Column]:
        """The wanted columns, outermost level first. Inner levels take names first; outer columns are renamed."""
        bodies: list[Body] = [self.message]
        for name in self.table.path:
            bodies.append(bodies[-1].group(name))
        last = len(bodies) - 1
        inner = [_Column(name, last, bodies[-1], name) for name in self._elements(bodies[-1])]
        levels, taken = [inner], {folded(column.name) for column in inner}
        for level in range(last - 1, -1, -1):
            levels.insert(0, self._enclosing(level, bodies[level], taken))
            taken |= {folded(column.name) for column in levels[0]}
        return [column for columns in levels for column in columns if self._wanted(column, last)]

    def _elements(self, body: Body) -> list[str]:
        groups = body.groups if self.table.groups == "arrays" else ()
        return [each.name for part in (body.fields, groups, body.data) for each in part]

    def _enclosing(self, level: int, body: Body, taken: set[str]) -> list[_Column]:
        above = body.name
        names = [each.name for part in (body.fields, body.data) for each in part]
        return [_Column(f"{above}_{n}" if folded(n) in taken else n, level, body, n) for n in names]

    def _wanted(self, column: _Column, last: int) -> bool:
        if column.level == last:
            return True
        if self.table.with_ is not None:
            return column.name in self.table.with_
        return any(field.name == column.element for field in column.body.fields)


def _entries(levels: list[dict[str, Any]], path: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield, for each entry at the end of the path, the values of all its levels, the message first."""
    if not path:
        yield levels
        return
    for entry in levels[-1].get(path[0]) or ():
        yield from _entries([*levels, entry], path[1:])
