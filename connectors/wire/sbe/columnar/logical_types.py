"""Columns of logical types: decimals and timestamps from composites and numbers, if enabled in the options.

A Spark timestamp has microseconds, in the years 1 to 9999: Python and others support none beyond. An Arrow timestamp
has the unit of the wire, in 64 bits. A message with any other time is an error; the time would be lost silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.wire.sbe.columnar.blocks import Blocks
from silverfold.connectors.wire.sbe.columnar.byte_arrays import Bools
from silverfold.connectors.wire.sbe.columnar.numeric import Number, array_of
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from silverfold.connectors.wire.sbe.schema.model import (
    Body,
    ByteOrder,
    Composite,
    Field,
    Member,
    Presence,
    Primitive,
    Scalar,
)
from silverfold.connectors.wire.sbe.schema.primitives import INTEGERS, TRAITS

_DIGITS: Final = 38
"""Digits of the widest decimal."""
_MICROSECOND: Final = 6
_YEARS: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The first and the last microsecond of the years 1 to 9999, since 1970."""
_64_BITS: Final = (-(1 << 63), (1 << 63) - 1)


class Unit(NamedTuple):
    """A unit of time."""

    name: str
    """Arrow's name."""
    digits: int
    """Decimal places of a second."""


_UNITS: Final[Mapping[int | str, Unit]] = {
    key: unit
    for name, unit in {
        "second": Unit("s", 0),
        "millisecond": Unit("ms", 3),
        "microsecond": Unit("us", 6),
        "nanosecond": Unit("ns", 9),
    }.items()
    for key in (name, unit.digits)
}


class Decimal:
    """A mantissa with a constant exponent, as one decimal."""

    def __init__(self, mantissa: Number, digits: int, exponent: int) -> None:
        self.type = pa.decimal128(max(digits, -exponent), -exponent)
        self._mantissa = mantissa

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """See `Column.make`."""
        values, absent = self._mantissa.values(blocks, missing)
        return array_of(values, self.type, absent)


class Timestamp:
    """A time since 1970 in a unit defined by the schema. Messages with a time out of range are marked as bad."""

    def __init__(self, time: Number, unit: Unit, options: ColumnOptions) -> None:
        self.type = pa.timestamp("us" if options.types == "spark" else unit.name, "UTC")
        self._time = time
        self._range = range_of(unit, options)
        self._scale = 10 ** abs(_MICROSECOND - unit.digits) if options.types == "spark" else 1
        self._is_finer = unit.digits > _MICROSECOND

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """Return the column; for Spark, nanoseconds are rounded down to microseconds."""
        values, absent = self._time.values(blocks, missing)
        beyond = (values < self._range.start) | (values >= self._range.stop)
        if absent is not None:
            beyond &= ~absent
        if beyond.any():
            blocks.reject(np.flatnonzero(beyond))
        if self._is_finer:
            wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
            return array_of(wide // self._scale, self.type, absent)
        return array_of(values.astype(np.int64) * self._scale, self.type, absent)


def logical_number(part: Field | Member, number: Number, options: ColumnOptions) -> Timestamp | None:
    """Return the column of a number with a logical type; None if it is just a number."""
    unit = unit_of_number(part, options)
    return None if unit is None else Timestamp(number, unit, options)


def logical_composite(
    part: Field | Member, offset: int, order: ByteOrder, options: ColumnOptions, *, optional: bool
) -> Decimal | Timestamp | None:
    """Return the column of a composite with a logical type; None if it is just a composite."""
    members = number_and_constant(part)
    if members is None:
        return None
    first, second = members
    scalar = first.encoding
    assert isinstance(scalar, Scalar)
    number = Number(
        scalar, offset + first.offset, order, options, optional=optional or first.presence is Presence.OPTIONAL
    )
    match first.name, second.name, second.constant:
        case "mantissa", "exponent", int(exponent) if options.decimals and -_DIGITS <= exponent <= 0:
            return Decimal(number, _digits(scalar.primitive), exponent)
    unit = unit_of_composite(part, options)
    return None if unit is None else Timestamp(number, unit, options)


def check_times(body: Body, values: Mapping[str, Any], options: ColumnOptions, path: str) -> None:
    """Check that a timestamp can hold each time in the values of a message or of a group's entry.

    Args:
        path: Path of the message or entry, for the error.

    Raises:
        InvalidValue: ``time-range``.
    """
    for field in body.fields:
        _check_part(field, values.get(field.name), options, f"{path}.{field.name}")
    for group in body.groups:
        for number, entry in enumerate(values.get(group.name) or ()):
            check_times(group, entry, options, f"{path}.{group.name}[{number}]")


def _check_part(part: Field | Member, value: Any, options: ColumnOptions, path: str) -> None:
    unit = unit_of_number(part, options)
    if isinstance(part.encoding, Composite) and value is not None:
        unit = unit_of_composite(part, options)
        for member in part.encoding.members:
            _check_part(member, value.get(member.name), options, f"{path}.{member.name}")
        value = value.get("time")
    if unit is not None and value is not None and value not in range_of(unit, options):
        raise InvalidValue(f"{value} is a time that a timestamp cannot hold", reason="time-range", element=path)


def range_of(unit: Unit, options: ColumnOptions) -> range:
    """Return the range of numbers in a unit that a timestamp can hold."""
    if options.types != "spark":
        return range(_64_BITS[0], _64_BITS[1] + 1)
    first, last = _YEARS
    if unit.digits > _MICROSECOND:
        scale = 10 ** (unit.digits - _MICROSECOND)
        return range(first * scale, (last + 1) * scale)
    scale = 10 ** (_MICROSECOND - unit.digits)
    return range(first // scale, last // scale + 1)


def unit_of_number(part: Field | Member, options: ColumnOptions) -> Unit | None:
    """Return the unit of a field that is a time; None if it is just a number."""
    if not options.timestamps or not isinstance(part, Field) or part.presence is Presence.CONSTANT:
        return None
    is_integer = isinstance(part.encoding, Scalar) and part.encoding.primitive in INTEGERS
    is_time = is_integer and _is_utc_timestamp(part) and part.epoch.lower() == "unix"
    unit = part.time_unit if part.time_unit_declared else options.time_unit
    return _UNITS.get(unit.lower()) if is_time else None


def unit_of_composite(part: Field | Member, options: ColumnOptions) -> Unit | None:
    """Return the unit of a composite that is a time, a number with a constant unit; None for any other."""
    members = number_and_constant(part)
    if members is None or not options.timestamps or not _is_utc_timestamp(part):
        return None
    first, second = members
    has_time_names = (first.name, second.name) == ("time", "unit")
    return _UNITS.get(second.constant) if has_time_names and isinstance(second.constant, int) else None


def number_and_constant(part: Field | Member) -> tuple[Member, Member] | None:
    """Return the members of a composite that consists of an integer and a constant; None for any other."""
    composite = part.encoding
    if not isinstance(composite, Composite) or len(composite.members) != 2:
        return None
    first, second = composite.members
    is_number = isinstance(first.encoding, Scalar) and first.encoding.primitive in INTEGERS
    is_sent = first.presence is not Presence.CONSTANT and first.since_version <= part.since_version
    return (first, second) if is_number and is_sent and second.presence is Presence.CONSTANT else None


def _is_utc_timestamp(part: Field | Member) -> bool:
    """Return whether the semantic type of a field or its type, or else the type's name, is UTCTimestamp."""
    own = part.semantic_type if isinstance(part, Field) else None
    return (own or part.encoding.remarks.semantic_type or part.encoding.name).lower() == "utctimestamp"


def _digits(primitive: Primitive) -> int:
    traits = TRAITS[primitive]
    return max(len(str(abs(int(traits.lowest)))), len(str(int(traits.highest))))
