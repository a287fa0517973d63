"""Writes values as tengi's bytes: field by field, or whole objects. Big endian. The reverse is `decoder.Decoder`."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.tengi.protocol.compression import encode_bitset, encode_compressed
from silverfold.connectors.tengi.protocol.errors import UnknownType
from silverfold.connectors.tengi.protocol.limits import MAX_DEPTH
from silverfold.connectors.tengi.protocol.registry import BUILT_IN, TypeRegistry
from silverfold.connectors.tengi.protocol.strings import encode_key, encode_string
from silverfold.connectors.tengi.protocol.values import (
    Byte,
    Char,
    EnumerableValue,
    EnumValue,
    Float,
    Identifier,
    Int,
    Marshallable,
    Message,
    Packet,
    Short,
)

_CHAR: Final = struct.Struct(">hH").pack
_LENGTH: Final = struct.Struct(">hi").pack
_IDS: Final = struct.Struct(">hh").pack

_BYTE, _UNSIGNED, _SHORT, _UNIT, _INT32, _INT64, _FLOAT, _DOUBLE = (
    struct.Struct(f">{code}").pack for code in "bBhHiqfd"
)


def _octets(value: bytes | bytearray | memoryview) -> bytes:
    octets = bytes(value)
    return _LENGTH(-9, len(octets)) + octets


_SCALARS: Final[dict[type, Callable[[Any], bytes]]] = {
    Byte: partial(struct.Struct(">hb").pack, -1),
    Short: partial(struct.Struct(">hh").pack, -2),
    Char: lambda value: _CHAR(-3, ord(value)),
    Int: partial(struct.Struct(">hi").pack, -4),
    Float: partial(struct.Struct(">hf").pack, -5),
    int: partial(struct.Struct(">hq").pack, -6),
    float: partial(struct.Struct(">hd").pack, -7),
    str: lambda value: b"\xff\xf8" + encode_string(value),
    bytes: _octets,
    bytearray: _octets,
    memoryview: _octets,
    Identifier: lambda value: b"\xff\x9b" + value,
    uuid.UUID: lambda value: b"\xff\x9b" + value.bytes,
}
"""Encoders of whole objects that hold no others. Most go to struct directly: no Python code runs."""

AnyNumbers: TypeAlias = npt.NDArray[np.number[Any]] | Sequence[float]
"""An array to write. Sequences go through struct, in an eighth of the time that numpy takes; arrays through numpy."""

_CODES: Final[Mapping[type[np.number[Any]], str]] = {
    np.int16: "h",
    np.int32: "i",
    np.int64: "q",
    np.float32: "f",
    np.float64: "d",
}
"""Codes of struct, which checks what it packs."""


class Encoder:
    """Writes fields one after another; `to_bytes` returns them.

    A value that does not fit its field raises InvalidValue. It writes nothing, and neither does the object that it is
    part of; what was written before stays, and writing can go on.

    Args:
        types: User types for `write_object`.
    """

    def __init__(self, types: TypeRegistry = BUILT_IN) -> None:
        self._types = types
        self._out = bytearray()
        self._depth = 0

    def to_bytes(self) -> bytes:
        """Return the bytes written so far."""
        return bytes(self._out)

    def write_byte(self, value: int) -> None:
        """Write -128 to 127."""
        self._pack(_BYTE, value)

    def write_unsigned_byte(self, value: int) -> None:
        """Write 0 to 255."""
        self._pack(_UNSIGNED, value)

    def write_bytes(self, value: bytes | bytearray | memoryview) -> None:
        """Write raw bytes, without their number."""
        self._out += value

    def write_short(self, value: int) -> None:
        """Write 16 bits, signed."""
        self._pack(_SHORT, value)

    def write_char(self, value: str) -> None:
        """Write one UTF-16 code unit."""
        self._pack(_UNIT, ord(Char(value)))

    def write_int32(self, value: int) -> None:
        """Write 32 bits, signed."""
        self._pack(_INT32, value)

    def write_compressed_int32(self, value: int) -> None:
        """Write 32 bits, signed, in one to five bytes."""
        self._out += encode_compressed(value, 32)

    def write_int64(self, value: int) -> None:
        """Write 64 bits, signed."""
        self._pack(_INT64, value)

    def write_compressed_int64(self, value: int) -> None:
        """Write 64 bits, signed, in one to ten bytes."""
        self._out += encode_compressed(value, 64)

    def write_float(self, value: float) -> None:
        """Write single precision."""
        self._pack(_FLOAT, value)

    def write_double(self, value: float) -> None:
        """Write double precision."""
        self._pack(_DOUBLE, value)

    def write_boolean(self, value: bool) -> None:
        """Write one byte: 1 or 0."""
        self._out.append(1 if value else 0)

    def write_bitset(self, values: Sequence[bool] | None) -> None:
        """Write a bitset. None and an empty one are written alike, and read as None."""
        self._out += encode_bitset(values)

    def write_short_array(self, values: AnyNumbers) -> None:
        """Write 16-bit signed numbers without their count; that holds for all arrays of numbers."""
        self._write_numbers(values, np.int16)

    def write_int32_array(self, values: AnyNumbers) -> None:
        """Write numbers of 32 bits, signed."""
        self._write_numbers(values, np.int32)

    def write_int64_array(self, values: AnyNumbers) -> None:
        """Write numbers of 64 bits, signed."""
        self._write_numbers(values, np.int64)

    def write_float_array(self, values: AnyNumbers) -> None:
        """Write numbers in single precision."""
        self._write_numbers(values, np.float32)

    def write_double_array(self, values: AnyNumbers) -> None:
        """Write numbers in double precision."""
        self._write_numbers(values, np.float64)

    def write_string(self, value: str) -> None:
        """Write a text. Lone surrogates are written as they are."""
        self._out += encode_string(value)

    def write_identifier(self, value: Identifier | uuid.UUID) -> None:
        """Write the 16 bytes of an Identifier."""
        self._out += Identifier(value.bytes if isinstance(value, uuid.UUID) else value)

    def write_nullable_object(self, value: object) -> None:
        """Write 0 for None, else 1 and the object."""
        self.write_boolean(value is not None)
        if value is None:
            return
        try:
            self.write_object(value)
        except BaseException:
            del self._out[-1:]
            raise

    def write_object(self, value: object) -> None:
        """Write a value with the id of its type.

        Raises:
            InvalidValue: ``no_marshaller``: None, bool, a collection, or another value that no marshaller accepts;
                ``too_deep``: more than `limits.MAX_DEPTH` objects inside one another.
            UnknownType: Its class, or its enum, is not registered.
        """
        scalar = _SCALARS.get(type(value))
        if scalar is not None:
            self._pack(scalar, value)
            return
        begin = len(self._out)
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise InvalidValue(f"more than {MAX_DEPTH} objects in one another", reason="too_deep")
            self._write_composite(value)
        except BaseException:
            del self._out[begin:]
            raise
        finally:
            self._depth -= 1

    def _write_composite(self, value: object) -> None:
        match value:
            case Packet():
                self._write_packet(value)
            case Message():
                self._out += b"\xff\x9a\xff\x9b"
                self.write_identifier(value.id)
                self.write_object(value.body)
            case Marshallable():
                self._out += _IDS(-104, _registered(value, self._types.marshallables))
                value.marshall(self)
            case EnumValue() | EnumerableValue() | Enum():
                self._write_enum(value)
            case _:
                marshaller = None if value is None else self._types.find_marshaller(value)
                if marshaller is None:
                    detail = f"tengi has no object for {type(value).__name__}"
                    raise InvalidValue(detail, reason="no_marshaller")
                self.write_short(marshaller.marshaller_id)
                marshaller.write(self, value)

    def _write_packet(self, packet: Packet) -> None:
        out = self._out
        out += _IDS(-103, _registered(packet, self._types.packets))
        try:
            out += encode_key(packet.name)
            out += _INT32(len(packet.values))
            for key, value in packet.values.items():
                out += encode_key(key)
                scalar = _SCALARS.get(type(value))
                if scalar is not None:
                    out += scalar(value)
                else:
                    self.write_object(value)
        except (struct.error, TypeError, AttributeError) as error:
            texts: tuple[object, ...] = (packet.name, *packet.values)
            strange = [each for each in texts if not isinstance(each, str)]
            if not strange and not isinstance(error, struct.error):
                raise  # a user type's own
            detail = f"its name and its keys are texts, unlike {strange[0]!r}" if strange else error
            raise InvalidValue(f"packet {packet.name!r}: {detail}", reason="out_of_range") from error
        packet.marshall_fields(self)

    def _write_enum(self, value: EnumValue | EnumerableValue | Enum) -> None:
        types, kind = self._types, type(value)
        if isinstance(value, EnumerableValue):
            self._write_enumerable(value.type_id, value.flag)
        elif isinstance(value, EnumValue):
            self._write_constant(value.type_id, value.name)
        elif kind in types.enumerable_ids:
            self._write_enumerable(types.enumerable_ids[kind], value.value)
        elif kind in types.enum_ids:
            self._write_constant(types.enum_ids[kind], value.name)
        else:
            raise UnknownType(f"enum {kind.__name__} is not registered")

    def _write_constant(self, type_id: int, name: str) -> None:
        _check_constant(self._types.enums, type_id, name)
        self._out += _IDS(-10, type_id) + encode_string(name)

    def _write_enumerable(self, type_id: int, flag: int) -> None:
        _check_constant(self._types.enumerables, type_id, flag)
        self._out += _IDS(-11, type_id) + _INT32(flag)

    def _write_numbers(self, values: AnyNumbers, kind: type[np.number[Any]]) -> None:
        try:
            if isinstance(values, np.ndarray):
                self._out += _array_bytes(values, np.dtype(kind).newbyteorder(">"))
            else:
                self._out += struct.pack(f">{len(values)}{_CODES[kind]}", *values)
        except (struct.error, ValueError, TypeError, ArithmeticError) as error:
            raise InvalidValue(f"an array for {np.dtype(kind)}: {error}", reason="out_of_range") from error

    def _pack(self, pack: Callable[[Any], bytes], value: Any) -> None:
        try:
            self._out += pack(value)
        except (struct.error, OverflowError) as error:
            raise InvalidValue(f"{value!r}: {error}", reason="out_of_range") from error


def _array_bytes(array: npt.NDArray[Any], wanted: np.dtype[Any]) -> bytes:
    """Return an array's numbers in another type. Raises ValueError or FloatingPointError if a number would change."""
    if array.ndim != 1 or array.dtype.kind not in ("iu" if wanted.kind == "i" else "iuf"):
        raise ValueError(f"{array.ndim} dimensions of {array.dtype}")
    if wanted.kind == "i" and array.size and not np.can_cast(array.dtype, wanted):
        least, most, limits = int(array.min()), int(array.max()), np.iinfo(wanted)
        if least < limits.min or most > limits.max:
            raise ValueError(f"values from {least} to {most}")
    with np.errstate(over="raise"):
        return array.astype(wanted).tobytes()


def _registered(value: Packet | Marshallable, known: Any) -> int:
    type_id = getattr(type(value), "type_id", 0)
    if known.get(type_id) is not type(value):
        raise UnknownType(f"{type(value).__name__} is not registered", type_id=type_id)
    return type_id


def _check_constant(enums: dict[int, Any], type_id: int, constant: str | int) -> None:
    if type_id not in enums:
        raise UnknownType(f"no enum has the class type id {type_id}", type_id=type_id)
    if constant not in enums[type_id]:
        raise InvalidValue(f"enum {type_id} has no constant {constant!r}", reason="bad_constant")
