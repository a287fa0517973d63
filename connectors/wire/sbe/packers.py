"""Converts values to what `struct` packs: one function per encoding, built once (the reverse of `blocks`).

Values that would be read back differently are refused: out of range, null in required fields, unlisted. With
``tolerant``, every value is written that a reader accepts and the bytes can hold.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from conf.errors import InvalidValue
from connectors.wire.sbe.blocks import null_test
from connectors.wire.sbe.model import Array, ByteOrder, Enum, Primitive, Scalar, Set
from connectors.wire.sbe.primitives import FLOATS, TRAITS, fits, held
from connectors.wire.sbe.text import DEFAULT_CHARSET, codec, encoded_text
from connectors.wire.sbe.values import Fault, SetValue

Put: TypeAlias = Callable[[Any], Any]


class PutOptions(NamedTuple):
    """How values are checked."""

    order: ByteOrder
    version: int
    """Newer elements are left out."""
    tolerant: bool = False


def refuse(reason: str, detail: str) -> Fault:
    """Return the fault for a value that cannot be written."""
    return Fault(InvalidValue, reason, detail, 0)


def scalar_put(scalar: Scalar, options: PutOptions, *, optional: bool, ranged: bool = True) -> Put:
    """Return the packer for a number or character. With ``ranged`` False, the schema's limits are not checked."""
    if scalar.primitive is Primitive.CHAR:
        return _char_put(scalar, options, optional=optional)
    convert = _real if scalar.primitive in FLOATS else _whole
    ranged = ranged and not options.tolerant and _has_limits(scalar)
    lowest, highest = held(scalar.minimum, scalar.primitive), held(scalar.maximum, scalar.primitive)
    is_null = null_test(scalar) if optional and not options.tolerant else None

    def put(value: Any) -> Any:
        if value is None and optional:
            return scalar.null
        number = convert(value, scalar.primitive)
        if is_null is not None and is_null(number):
            raise refuse("range", f"{value!r} is the null value; null is written as None")
        if ranged and not lowest <= number <= highest:
            raise refuse("range", f"{value!r} is not from {scalar.minimum} to {scalar.maximum}")
        return number

    return put


def _has_limits(scalar: Scalar) -> bool:
    """Return whether limits apply: the default limits of floats would refuse infinities and NaN, which are values."""
    traits = TRAITS[scalar.primitive]
    return scalar.primitive not in FLOATS or (scalar.minimum, scalar.maximum) != (traits.minimum, traits.maximum)


def _whole(value: Any, primitive: Primitive) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise _not_a(value, str(primitive)) from None
    if isinstance(value, bool):
        raise _not_a(value, str(primitive))
    if not fits(number, primitive):
        raise refuse("range", f"{value!r} does not fit {primitive}")
    return number


def _real(value: Any, primitive: Primitive) -> float:
    if isinstance(value, bool | str | bytes):
        raise _not_a(value, str(primitive))
    try:
        number = float(value)
    except OverflowError:
        raise refuse("range", f"{value!r} does not fit {primitive}") from None
    except (TypeError, ValueError):
        raise _not_a(value, str(primitive)) from None
    if not fits(number, primitive):
        raise refuse("range", f"{value!r} does not fit {primitive}")
    return held(number, primitive)


def _not_a(value: Any, what: str) -> Fault:
    if value is None:
        return refuse("null-in-required", "null where a value is required")
    return refuse("type", f"{value!r} is not {what}")


def _char_put(scalar: Scalar, options: PutOptions, *, optional: bool) -> Put:
    encode = _text_put(scalar.charset or DEFAULT_CHARSET, 1)
    null = int(scalar.null)

    def put(value: Any) -> bytes:
        if value is None and optional:
            return bytes([null])
        (raw,) = encode(value).ljust(1, b"\0")
        if not options.tolerant and (raw == null or not scalar.minimum <= raw <= scalar.maximum):
            raise refuse("range", f"{value!r} is null or not a printable character")
        return bytes([raw])

    return put


def text_put(array: Array, options: PutOptions, *, optional: bool) -> Put:
    """Return the packer for a char array: text of at most its length, padded with NUL."""
    encode = _text_put(array.charset or DEFAULT_CHARSET, array.count)
    null = bytes([int(array.element.null)])

    def put(value: Any) -> bytes:
        if value is None and optional:
            return null + bytes(array.count - 1)
        raw = encode(value).ljust(array.count, b"\0")
        if optional and not options.tolerant and raw[:1] == null:
            raise refuse("range", f"{value!r} would be read as null; null is written as None")
        return raw

    return put


def _text_put(charset: str, limit: int) -> Callable[[Any], bytes]:
    name = codec(charset)

    def put(value: Any) -> bytes:
        raw = encoded(value, charset, name)
        if len(raw) > limit:
            raise refuse("length-max", f"{value!r} takes {len(raw)} bytes, there is room for {limit}")
        if isinstance(value, str) and "\0" in value:
            raise refuse("range", f"{value!r} would be cut at its NUL")
        return raw

    return put


def encoded(value: Any, charset: str, name: str | None) -> bytes:
    """Encode text in its charset; bytes are returned as they are."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise _not_a(value, "text")
    if name is None:
        raise refuse("charset", f"charset {charset} is not known")
    try:
        return encoded_text(value, charset, name)
    except UnicodeError:
        raise refuse("charset", f"{value!r} cannot be written in {charset}") from None


def list_put(array: Array, options: PutOptions, *, optional: bool) -> Put:
    """Return the packer for an array of numbers: exactly as many as in the schema, null elements as None."""
    ranged = array.element.primitive is not Primitive.UINT8
    put_one = scalar_put(array.element, options, optional=optional, ranged=ranged)
    pack = struct.Struct(f"{options.order}{array.count}{TRAITS[array.element.primitive].code}").pack

    def put(value: Any) -> bytes:
        if value is None and optional:
            value = [None] * array.count
        if not isinstance(value, Iterable) or isinstance(value, str):
            raise _not_a(value, "a list of numbers")
        numbers = [put_one(number) for number in value]
        if len(numbers) != array.count:
            raise refuse("range", f"{len(numbers)} numbers, the array has {array.count}")
        return pack(*numbers)

    return put


def enum_put(enum: Enum, options: PutOptions, *, optional: bool) -> Put:
    """Return the packer for an enum: takes a name, or a raw value if it is listed or ``tolerant`` is set."""
    by_name = {name: raw for raw, name in enum.values.items()}
    char = enum.encoding.primitive is Primitive.CHAR

    def put(value: Any) -> Any:
        if value is None and (optional or options.tolerant):
            raw = enum.null
        elif isinstance(value, str) and value in by_name:
            raw = by_name[value]
        else:
            raw = _raw_enum(value, enum, options)
        return bytes([raw]) if char else raw

    return put


def _raw_enum(value: Any, enum: Enum, options: PutOptions) -> int:
    primitive = enum.encoding.primitive
    if isinstance(value, str) and not (primitive is Primitive.CHAR and len(value) == 1 and ord(value) <= 255):
        raise refuse("unknown-value", f"{value!r} is not a value of {enum.name}")
    raw = ord(value) if isinstance(value, str) else _whole(value, primitive)
    if raw not in enum.values and not options.tolerant:
        raise refuse("unknown-value", f"{value!r} is not a value of {enum.name}")
    return raw


def set_put(encoding: Set, options: PutOptions) -> Put:
    """Return the packer for a set: takes a `SetValue`, names, or the integer.

    Only a SetValue may have unknown bits, unless ``tolerant`` is set.
    """
    bits = {name: 1 << bit for bit, name in encoding.choices.items()}
    known = sum(1 << bit for bit in encoding.choices)

    def put(value: Any) -> int:
        if isinstance(value, SetValue):
            return _whole(value.raw, encoding.encoding.primitive)
        if isinstance(value, Iterable) and not isinstance(value, str | bytes):
            return _named_bits(value, bits, encoding)
        raw = _whole(value, encoding.encoding.primitive)
        if raw & ~known and not options.tolerant:
            raise refuse("unknown-value", f"{raw:#x} has bits that are no choices of {encoding.name}")
        return raw

    return put


def _named_bits(names: Iterable[Any], bits: dict[str, int], encoding: Set) -> int:
    raw = 0
    for name in names:
        if name not in bits:
            raise refuse("unknown-value", f"{name!r} is not a choice of {encoding.name}")
        raw |= bits[name]
    return raw
