"""Converts values to what `struct` packs: one function per encoding, built once (the reverse of `blocks`).

Values that would be read back differently are refused: out of range, null in required fields, unlisted. With
``tolerant``, every value is written that a reader returns and the bytes can hold.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.wire.sbe.codec.blocks import null_test
from silverfold.connectors.wire.sbe.codec.values import Fault, SetValue
from silverfold.connectors.wire.sbe.schema.model import Array, ByteOrder, Enum, Primitive, Scalar, Set
from silverfold.connectors.wire.sbe.schema.primitives import FLOATS, TRAITS, fits, has_limits, stored_value
from silverfold.connectors.wire.sbe.schema.text import DEFAULT_CHARSET, codec, encoded_text

Packer: TypeAlias = Callable[[Any], Any]


class PackOptions(NamedTuple):
    """How values are checked."""

    order: ByteOrder
    version: int
    """Newer elements are left out."""
    tolerant: bool = False


def value_fault(reason: str, detail: str) -> Fault:
    """Return the fault for a value that cannot be written."""
    return Fault(InvalidValue, reason, detail, 0)


def scalar_packer(scalar: Scalar, options: PackOptions, *, optional: bool, check_range: bool = True) -> Packer:
    """Return the packer for a number or character. With ``check_range`` False, the schema's limits are not checked."""
    if scalar.primitive is Primitive.CHAR:
        return _char_packer(scalar, options, optional=optional)
    convert = _convert_float if scalar.primitive in FLOATS else _convert_integer
    check_range = check_range and not options.tolerant and has_limits(scalar)
    lowest, highest = stored_value(scalar.minimum, scalar.primitive), stored_value(scalar.maximum, scalar.primitive)
    is_null = null_test(scalar) if optional and not options.tolerant else None

    def pack(value: Any) -> Any:
        if value is None and optional:
            return scalar.null
        number = convert(value, scalar.primitive)
        if is_null is not None and is_null(number):
            raise value_fault("range", f"{value!r} is the null value; null is written as None")
        if check_range and not lowest <= number <= highest:
            raise value_fault("range", f"{value!r} is not from {scalar.minimum} to {scalar.maximum}")
        return number

    return pack


def _convert_integer(value: Any, primitive: Primitive) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise _type_fault(value, str(primitive)) from None
    if isinstance(value, bool):
        raise _type_fault(value, str(primitive))
    if not fits(number, primitive):
        raise value_fault("range", f"{value!r} does not fit {primitive}")
    return number


def _convert_float(value: Any, primitive: Primitive) -> float:
    if isinstance(value, bool | str | bytes):
        raise _type_fault(value, str(primitive))
    try:
        number = float(value)
    except OverflowError:
        raise value_fault("range", f"{value!r} does not fit {primitive}") from None
    except (TypeError, ValueError):
        raise _type_fault(value, str(primitive)) from None
    if not fits(number, primitive):
        raise value_fault("range", f"{value!r} does not fit {primitive}")
    return stored_value(number, primitive)


def _type_fault(value: Any, what: str) -> Fault:
    if value is None:
        return value_fault("null-in-required", "null where a value is required")
    return value_fault("type", f"{value!r} is not {what}")


def _char_packer(scalar: Scalar, options: PackOptions, *, optional: bool) -> Packer:
    encode = _text_encoder(scalar.charset or DEFAULT_CHARSET, 1)
    null = int(scalar.null)

    def pack(value: Any) -> bytes:
        if value is None and optional:
            return bytes([null])
        (raw,) = encode(value).ljust(1, b"\0")
        if not options.tolerant and (raw == null or not scalar.minimum <= raw <= scalar.maximum):
            raise value_fault("range", f"{value!r} is null or not a printable character")
        return bytes([raw])

    return pack


def text_packer(array: Array, options: PackOptions, *, optional: bool) -> Packer:
    """Return the packer for a char array: text of at most its length, padded with NUL."""
    encode = _text_encoder(array.charset or DEFAULT_CHARSET, array.count)
    null = bytes([int(array.element.null)])

    def pack(value: Any) -> bytes:
        if value is None and optional:
            return null + bytes(array.count - 1)
        raw = encode(value).ljust(array.count, b"\0")
        if optional and not options.tolerant and raw[:1] == null:
            raise value_fault("range", f"{value!r} would be read as null; null is written as None")
        return raw

    return pack


def _text_encoder(charset: str, limit: int) -> Callable[[Any], bytes]:
    name = codec(charset)

    def pack(value: Any) -> bytes:
        raw = encode_text(value, charset, name)
        if len(raw) > limit:
            raise value_fault("length-max", f"{value!r} takes {len(raw)} bytes, there is room for {limit}")
        if isinstance(value, str) and "\0" in value:
            raise value_fault("range", f"{value!r} would be cut at its NUL")
        return raw

    return pack


def encode_text(value: Any, charset: str, name: str | None) -> bytes:
    """Encode text in its charset; bytes are returned as they are."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise _type_fault(value, "text")
    if name is None:
        raise value_fault("charset", f"charset {charset} is not known")
    try:
        return encoded_text(value, charset, name)
    except UnicodeError:
        raise value_fault("charset", f"{value!r} cannot be written in {charset}") from None


def list_packer(array: Array, options: PackOptions, *, optional: bool) -> Packer:
    """Return the packer for an array of numbers: exactly as many as in the schema, null elements as None."""
    check_range = array.element.primitive is not Primitive.UINT8
    pack_number = scalar_packer(array.element, options, optional=optional, check_range=check_range)
    pack_array = struct.Struct(f"{options.order}{array.count}{TRAITS[array.element.primitive].code}").pack

    def pack(value: Any) -> bytes:
        if value is None and optional:
            value = [None] * array.count
        if not isinstance(value, Iterable) or isinstance(value, str):
            raise _type_fault(value, "a list of numbers")
        numbers = [pack_number(number) for number in value]
        if len(numbers) != array.count:
            raise value_fault("range", f"{len(numbers)} numbers, the array has {array.count}")
        return pack_array(*numbers)

    return pack


def enum_packer(enum: Enum, options: PackOptions, *, optional: bool) -> Packer:
    """Return the packer for an enum: takes a name, or a raw value if it is listed or ``tolerant`` is set."""
    by_name = {name: raw for raw, name in enum.values.items()}
    char = enum.encoding.primitive is Primitive.CHAR

    def pack(value: Any) -> Any:
        if value is None and (optional or options.tolerant):
            raw = enum.null
        elif isinstance(value, str) and value in by_name:
            raw = by_name[value]
        else:
            raw = _raw_enum(value, enum, options)
        return bytes([raw]) if char else raw

    return pack


def _raw_enum(value: Any, enum: Enum, options: PackOptions) -> int:
    primitive = enum.encoding.primitive
    if isinstance(value, str) and not (primitive is Primitive.CHAR and len(value) == 1 and ord(value) <= 255):
        raise value_fault("unknown-value", f"{value!r} is not a value of {enum.name}")
    raw = ord(value) if isinstance(value, str) else _convert_integer(value, primitive)
    if raw not in enum.values and not options.tolerant:
        raise value_fault("unknown-value", f"{value!r} is not a value of {enum.name}")
    return raw


def set_packer(encoding: Set, options: PackOptions) -> Packer:
    """Return the packer for a set: takes a `SetValue`, names, or the integer.

    Only a SetValue may have unknown bits, unless ``tolerant`` is set.
    """
    bits = {name: 1 << bit for bit, name in encoding.choices.items()}
    known = sum(1 << bit for bit in encoding.choices)

    def pack(value: Any) -> int:
        if isinstance(value, SetValue):
            return _convert_integer(value.raw, encoding.encoding.primitive)
        if isinstance(value, Iterable) and not isinstance(value, str | bytes):
            return _named_bits(value, bits, encoding)
        raw = _convert_integer(value, encoding.encoding.primitive)
        if raw & ~known and not options.tolerant:
            raise value_fault("unknown-value", f"{raw:#x} has bits that are no choices of {encoding.name}")
        return raw

    return pack


def _named_bits(names: Iterable[Any], bits: dict[str, int], encoding: Set) -> int:
    raw = 0
    for name in names:
        if name not in bits:
            raise value_fault("unknown-value", f"{name!r} is not a choice of {encoding.name}")
        raw |= bits[name]
    return raw
