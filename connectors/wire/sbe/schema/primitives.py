"""The eleven primitive types: widths, `struct` codes, default limits and nulls (SBE 1.0, section 2.4).

With a byte order in front, the codes are also numpy type codes.
"""

from __future__ import annotations

import math
import re
import struct
from typing import NamedTuple

from silverfold.connectors.wire.sbe.schema.model import Primitive, Scalar

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_FLOAT = struct.Struct("<f")
FLOAT_MAX = 3.4028234663852886e38
DOUBLE_MAX = 1.7976931348623157e308


class Traits(NamedTuple):
    """Defaults of a primitive. ``lowest`` and ``highest`` bound what its bytes can hold, apart from NaN and infinities;
    ``minimum`` and ``maximum`` are the default limits of the standard."""

    code: str
    size: int
    minimum: int | float
    maximum: int | float
    null: int | float
    lowest: int | float
    highest: int | float


def _signed(code: str, size: int) -> Traits:
    lowest = -(1 << (8 * size - 1))
    return Traits(code, size, lowest + 1, -lowest - 1, lowest, lowest, -lowest - 1)


def _unsigned(code: str, size: int) -> Traits:
    highest = (1 << (8 * size)) - 1
    return Traits(code, size, 0, highest - 1, highest, 0, highest)


TRAITS: dict[Primitive, Traits] = {
    Primitive.CHAR: Traits("c", 1, 0x20, 0x7E, 0, 0, 255),
    Primitive.INT8: _signed("b", 1),
    Primitive.UINT8: _unsigned("B", 1),
    Primitive.INT16: _signed("h", 2),
    Primitive.UINT16: _unsigned("H", 2),
    Primitive.INT32: _signed("i", 4),
    Primitive.UINT32: _unsigned("I", 4),
    Primitive.INT64: _signed("q", 8),
    Primitive.UINT64: _unsigned("Q", 8),
    Primitive.FLOAT: Traits("f", 4, -FLOAT_MAX, FLOAT_MAX, math.nan, -FLOAT_MAX, FLOAT_MAX),
    Primitive.DOUBLE: Traits("d", 8, -DOUBLE_MAX, DOUBLE_MAX, math.nan, -DOUBLE_MAX, DOUBLE_MAX),
}

FLOATS = frozenset({Primitive.FLOAT, Primitive.DOUBLE})
UNSIGNED = frozenset({Primitive.UINT8, Primitive.UINT16, Primitive.UINT32, Primitive.UINT64})
INTEGERS = UNSIGNED | {Primitive.INT8, Primitive.INT16, Primitive.INT32, Primitive.INT64}


def integer(text: str) -> int | None:
    """Parse a decimal integer; None if the text is not one."""
    return int(text) if _INTEGER.fullmatch(text) else None


def raw_value(text: str, primitive: Primitive) -> int | float | None:
    """Parse a value from a schema's text: a number, or the code of one ASCII character.

    None if the text is not a value of the primitive or does not fit its bytes.
    """
    if primitive is Primitive.CHAR:
        return ord(text) if len(text) == 1 and text.isascii() else None
    value = _real(text) if primitive in FLOATS else integer(text)
    if value is None or not fits(value, primitive):
        return None
    return value


def fits(value: float, primitive: Primitive) -> bool:
    """Return whether the bytes of a primitive can hold a number; floats may be rounded."""
    if primitive not in FLOATS:
        return TRAITS[primitive].lowest <= value <= TRAITS[primitive].highest
    try:
        struct.pack("<" + TRAITS[primitive].code, value)
    except OverflowError:
        return False
    return True


def stored_value(value: float, primitive: Primitive) -> int | float:
    """Return a number as it is read back from the wire: a 4-byte float is rounded, unlike the schema's text."""
    if primitive is not Primitive.FLOAT:
        return value
    return float(_FLOAT.unpack(_FLOAT.pack(value))[0])


def _real(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def has_limits(scalar: Scalar) -> bool:
    """Return whether limits apply: the default limits of floats would refuse infinities and NaN, which are values."""
    traits = TRAITS[scalar.primitive]
    return scalar.primitive not in FLOATS or (scalar.minimum, scalar.maximum) != (traits.minimum, traits.maximum)
