"""Columns of what composites and numbers stand for: decimals and timestamps, where the options ask for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.wire.sbe.columnar.blocks import Blocks
from connectors.wire.sbe.columnar.numeric import Number, array_of, either
from connectors.wire.sbe.columnar.octets import Bools
from connectors.wire.sbe.columnar.options import ColumnOptions
from connectors.wire.sbe.model import ByteOrder, Composite, Field, Member, Presence, Primitive, Scalar
from connectors.wire.sbe.primitives import INTEGERS, TRAITS

_DIGITS = 38
"""Of the widest decimal."""
_UNITS: Mapping[int | str, tuple[str, int]] = {
    0: ("s", 0), 3: ("ms", 3), 6: ("us", 6), 9: ("ns", 9),
    "second": ("s", 0), "millisecond": ("ms", 3), "microsecond": ("us", 6), "nanosecond": ("ns", 9),
}  # fmt: skip
_MICROSECOND = 6
_LAST = (1 << 63) - 1


class Decimal:
    """A mantissa with a constant exponent, as one number."""

    def __init__(self, mantissa: Number, digits: int, exponent: int) -> None:
        self.type = pa.decimal128(max(digits, -exponent), -exponent)
        self._mantissa = mantissa

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """Return the column."""
        values, _, absent = self._mantissa.values(blocks, missing)
        return array_of(values, self.type, absent)


class Timestamp:
    """A time since 1970 in a unit that the schema knows. What a timestamp cannot hold is NULL."""

    def __init__(self, time: Number, unit: tuple[str, int], options: ColumnOptions) -> None:
        name, self._exponent = unit
        self._target = _MICROSECOND if options.types == "spark" else self._exponent
        self.type = pa.timestamp("us" if options.types == "spark" else name, "UTC")
        self._time = time

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """Return the column; nanoseconds that Spark cannot hold are cut off."""
        values, _, absent = self._time.values(blocks, missing)
        scale = 10 ** abs(self._target - self._exponent)
        beyond = _beyond(values, _LAST // (scale if self._target > self._exponent else 1))
        ticks = values.astype(np.int64)
        ticks = ticks * scale if self._target > self._exponent else ticks // scale
        if beyond is not None:
            absent = either(beyond, absent)
        return array_of(ticks, self.type, absent)


def _beyond(values: npt.NDArray[np.int64], highest: int) -> Bools | None:
    """Tell which integers cannot be held, None when all can."""
    found: Bools = values > highest
    if values.dtype.kind == "i":
        found |= values < -highest
    return found if found.any() else None


def meant_number(part: Field | Member, number: Number, options: ColumnOptions) -> Timestamp | None:
    """Return the column of what a number stands for, None when it is just a number."""
    if not options.timestamps or not isinstance(part, Field) or not isinstance(part.encoding, Scalar):
        return None
    unit = _UNITS.get(part.time_unit.lower())
    if not _is_utc_timestamp(part) or part.epoch.lower() != "unix" or part.encoding.primitive not in INTEGERS:
        return None
    return None if unit is None else Timestamp(number, unit, options)


def meant_composite(
    part: Field | Member, offset: int, order: ByteOrder, options: ColumnOptions, *, optional: bool
) -> Decimal | Timestamp | None:
    """Return the column of what a composite stands for, None when it is just a composite."""
    composite = part.encoding
    assert isinstance(composite, Composite)
    if len(composite.members) != 2:
        return None
    first, second = composite.members
    scalar = first.encoding
    if not isinstance(scalar, Scalar) or scalar.primitive not in INTEGERS or second.presence is not Presence.CONSTANT:
        return None
    if first.presence is Presence.CONSTANT or first.since_version > part.since_version:
        return None
    number = Number(
        scalar, offset + first.offset, order, options, optional=optional or first.presence is Presence.OPTIONAL
    )
    match first.name, second.name, second.constant:
        case "mantissa", "exponent", int(exponent) if options.decimals and -_DIGITS <= exponent <= 0:
            return Decimal(number, _digits(scalar.primitive), exponent)
        case "time", "unit", int(unit) if options.timestamps and unit in _UNITS and _is_utc_timestamp(part):
            return Timestamp(number, _UNITS[unit], options)
    return None


def _digits(primitive: Primitive) -> int:
    traits = TRAITS[primitive]
    return max(len(str(abs(int(traits.lowest)))), len(str(int(traits.highest))))


def _is_utc_timestamp(part: Field | Member) -> bool:
    """Tell whether a field says that it is a point in time, or its type is named so."""
    semantic = part.semantic_type if isinstance(part, Field) else None
    return (semantic or part.encoding.name).lower() == "utctimestamp"
