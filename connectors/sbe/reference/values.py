"""Converts values of single messages to the Python form of silver's values, for `connectors.sbe.reference.reader`."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from conf.errors import InvalidValue
from connectors.sbe.options import SbeTable
from connectors.wire.sbe.schema.model import (
    Array,
    Body,
    Composite,
    Encoding,
    Enum,
    Field,
    Member,
    Presence,
    Primitive,
    Scalar,
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
    unit = _unit(part, encoding) if table.timestamps else None
    return _number(encoding.primitive, value) if unit is None else _moment(value, unit, path)


def _unit(part: Field | Member, scalar: Scalar) -> int | None:
    """Return the number of fractional second digits of a time; None for a plain number."""
    if not isinstance(part, Field) or part.presence is Presence.CONSTANT or scalar.primitive in _NOT_WHOLE:
        return None
    is_unix = part.epoch.lower() == "unix"
    return _DIGITS.get(part.time_unit.lower()) if is_unix and _is_time(part, scalar) else None


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
