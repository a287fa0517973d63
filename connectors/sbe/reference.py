"""Reference reader: decodes landed messages into changes one by one, in pure Python, to verify silver.

Shares only the schema, the settings and the semantics of operations with the code that builds silver. It uses neither
the columnar decoder nor the column layout, so that an error in one is detected by the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, NamedTuple

from silverfold.conf.errors import InvalidValue
from silverfold.conf.names import caseless
from silverfold.connectors.common.key_span import EVERY_KEY, KeySpan
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sbe.options import SENT, SbeTable
from silverfold.connectors.sbe.protocol.operations import (
    DELETE,
    INSERT,
    UPDATE,
    Op,
    operations,
    unknown,
    unlisted,
    unnamed,
)
from silverfold.connectors.verification import ReferenceChange
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Body,
    Composite,
    Encoding,
    Enum,
    Field,
    Member,
    Message,
    Presence,
    Primitive,
    Scalar,
    Schema,
    Set,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = {"second": 0, "millisecond": 3, "microsecond": 6, "nanosecond": 9}
_MOST_DIGITS = 38


def entry_value(body: Body, values: dict[str, Any], table: SbeTable, path: str) -> dict[str, Any]:
    """Return an entry as it appears in an array of entries: all of its elements, None for missing ones.

    Args:
        path: Path of the entry, for errors.

    Raises:
        InvalidValue: ``time-range``: a time is outside the years 1 to 9999.
    """
    names = [element.name for part in (body.fields, body.groups, body.data) for element in part]
    return {name: element_value(body, name, values, table, path) for name in names}


def element_value(body: Body, name: str, values: dict[str, Any], table: SbeTable, path: str) -> Any:
    """Return a field, group or data of decoded values; None if null or absent. Raises as `entry_value`."""
    value = values.get(name)
    field = next((field for field in body.fields if field.name == name), None)
    group = next((group for group in body.groups if group.name == name), None)
    if value is None:
        return None
    if field is not None:
        return _part(field, value, table, f"{path}.{name}")
    if group is None:
        return value
    return [entry_value(group, entry, table, f"{path}.{name}[{number}]") for number, entry in enumerate(value)]


def _part(part: Field | Member, value: Any, table: SbeTable, path: str) -> Any:
    if value is None:
        return None
    encoding = part.encoding
    if isinstance(encoding, Composite):
        return _composite(part, encoding, value, table, path)
    if isinstance(encoding, Enum):
        return str(value)
    if isinstance(encoding, Set):
        return value.names if table.sets == "names" else _number(encoding.encoding.primitive, value.raw)
    if isinstance(encoding, Array):
        return [_number(encoding.element.primitive, n) for n in value] if isinstance(value, list) else value
    unit = _unit(part, encoding, table.time_unit) if table.timestamps else None
    return _number(encoding.primitive, value) if unit is None else _moment(value, unit, path)


def _unit(part: Field | Member, scalar: Scalar, unstated: str) -> int | None:
    """Return the number of fractional second digits of a time; None for a plain number."""
    if not isinstance(part, Field) or part.presence is Presence.CONSTANT or scalar.primitive in _NOT_WHOLE:
        return None
    is_unix = part.epoch.lower() == "unix"
    unit = part.time_unit if part.time_unit_declared else unstated
    return _DIGITS.get(unit.lower()) if is_unix and _is_time(part, scalar) else None


def _composite(part: Field | Member, composite: Composite, value: dict[str, Any], table: SbeTable, path: str) -> Any:
    exact = _integer_and_constant(part, composite)
    if exact is not None:
        (first, second), constant = exact, exact[1].constant
        if table.decimals and (first.name, second.name) == ("mantissa", "exponent") and isinstance(constant, int):
            if -_MOST_DIGITS <= constant <= 0:
                mantissa = value.get("mantissa")
                return None if mantissa is None else Decimal(mantissa).scaleb(constant)
        elif table.timestamps and (first.name, second.name) == ("time", "unit") and _is_time(part, composite):
            digits = constant if constant in _DIGITS.values() else _DIGITS.get(str(constant))
            if isinstance(digits, int):
                ticks = value.get("time")
                return None if ticks is None else _moment(ticks, digits, path)
    return {
        member.name: _part(member, value.get(member.name), table, f"{path}.{member.name}")
        for member in composite.members
    }


def _integer_and_constant(part: Field | Member, composite: Composite) -> tuple[Member, Member] | None:
    """Return the members of a composite of an integer and a constant; None for any other composite."""
    if len(composite.members) != 2:
        return None
    first, second = composite.members
    whole = isinstance(first.encoding, Scalar) and first.encoding.primitive not in _NOT_WHOLE
    on_wire = first.presence is not Presence.CONSTANT and first.since_version <= part.since_version
    return (first, second) if whole and on_wire and second.presence is Presence.CONSTANT else None


_NOT_WHOLE = (Primitive.CHAR, Primitive.FLOAT, Primitive.DOUBLE)


def _is_time(part: Field | Member, encoding: Encoding) -> bool:
    semantic_type = part.semantic_type if isinstance(part, Field) else encoding.remarks.semantic_type
    return (semantic_type or encoding.name).lower() == "utctimestamp"


def _moment(ticks: int, digits: int, path: str) -> datetime:
    """Return the moment, rounded down to microseconds."""
    scale: int = 10 ** abs(6 - digits)
    try:
        return _EPOCH + timedelta(microseconds=ticks * scale if digits < 6 else ticks // scale)
    except OverflowError as error:
        detail = f"{ticks} is a time that a timestamp cannot hold"
        raise InvalidValue(detail, reason="time-range", element=path) from error


def _number(primitive: Primitive, value: Any) -> Any:
    if value is None:
        return None
    if primitive is Primitive.UINT64:
        return Decimal(value)
    if primitive is Primitive.FLOAT:
        return struct.unpack("<f", struct.pack("<f", value))[0]  # a constant may have more digits than a float holds
    return value


NUMBERS: Final = ("_position", "_ordinal")
"""Columns that identify a row of a table without keys."""


class _Column(NamedTuple):
    name: str
    level: int
    body: Body
    element: str


@dataclass
class SbeReferenceReader:
    """A `connectors.verification.ReferenceReader` of one template's stream."""

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
        """Return the changes of one message; see `connectors.verification.ReferenceReader.changes`."""
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
        levels, taken = [inner], {caseless(column.name) for column in inner}
        for level in range(last - 1, -1, -1):
            levels.insert(0, self._enclosing(level, bodies[level], taken))
            taken |= {caseless(column.name) for column in levels[0]}
        return [column for columns in levels for column in columns if self._wanted(column, last)]

    def _elements(self, body: Body) -> list[str]:
        groups = body.groups if self.table.groups == "arrays" else ()
        return [each.name for part in (body.fields, groups, body.data) for each in part]

    def _enclosing(self, level: int, body: Body, taken: set[str]) -> list[_Column]:
        above = body.name
        names = [each.name for part in (body.fields, body.data) for each in part]
        return [_Column(f"{above}_{n}" if caseless(n) in taken else n, level, body, n) for n in names]

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
