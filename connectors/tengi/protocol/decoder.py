"""Reads values from tengi's bytes: field by field, or whole objects. The reverse is `encoder.Encoder`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from silverfold.conf.errors import InvalidValue, OversizedMessage, SilverfoldError, TruncatedMessage
from silverfold.connectors.tengi.protocol.compression import decode_bitset, decode_compressed
from silverfold.connectors.tengi.protocol.errors import UnknownType
from silverfold.connectors.tengi.protocol.limits import MAX_DEPTH, MAX_PACKET, SMALLEST_ENTRY
from silverfold.connectors.tengi.protocol.registry import BUILT_IN, TypeRegistry
from silverfold.connectors.tengi.protocol.strings import CHUNK, chunk_bounds, decode_units, join_pairs
from silverfold.connectors.tengi.protocol.values import Byte, Char, Float, Identifier, Int, Message, Packet, Short

_NUMBERS: Final[dict[bytes, tuple[struct.Struct, type[int] | None]]] = {
    b"\xff\xff": (struct.Struct(">xxb"), Byte),
    b"\xff\xfe": (struct.Struct(">xxh"), Short),
    b"\xff\xfc": (struct.Struct(">xxi"), Int),
    b"\xff\xfa": (struct.Struct(">xxq"), None),
    b"\xff\xf9": (struct.Struct(">xxd"), None),
}
"""Objects that hold one number, by their first bytes: layout, and the class unless it is Python's int or float."""

_T = TypeVar("_T")
_N = TypeVar("_N", bound=np.generic)
_Unpack: TypeAlias = Callable[[bytes, int], tuple[_T, ...]]

_INTEGERS: Final[list[_Unpack[int]]] = [struct.Struct(f">{code}").unpack_from for code in "bhHiq"]
_BYTE, _SHORT, _UNIT, _INT32, _INT64 = _INTEGERS
_FLOAT: Final[_Unpack[float]] = struct.Struct(">f").unpack_from
_DOUBLE: Final[_Unpack[float]] = struct.Struct(">d").unpack_from
_LENGTHS: Final = struct.Struct(">ii").unpack_from
_HEAD: Final = struct.Struct(">iiH").unpack_from


class Decoder:
    """Reads fields one after another.

    All reads raise TruncatedMessage, ``truncated``, if the bytes end before the field does; try again with more bytes.
    Errors carry the offset of the field.

    Args:
        octets: The bytes.
        types: User types for `read_object`.
        at: Offset of the first field.
        limit: Most bytes that a length may announce.
        depth: Number of objects around the first field.
    """

    def __init__(
        self, octets: bytes, types: TypeRegistry = BUILT_IN, *, at: int = 0, limit: int = MAX_PACKET, depth: int = 0
    ) -> None:
        self._octets = octets
        self._types = types
        self._at = at
        self._limit = limit
        self._depth = depth
        self._simple = _NUMBERS
        self.needed = 0
        """End offset of the truncated field: it can be read once the bytes reach it."""

    @property
    def offset(self) -> int:
        """Offset of the next field."""
        return self._at

    @property
    def left(self) -> int:
        """Number of bytes not read yet."""
        return len(self._octets) - self._at

    def check_end(self) -> None:
        """Raise InvalidValue, ``trailing_bytes``, unless all bytes were read."""
        if self.left:
            detail = f"{self.left} bytes follow the last field"
            raise InvalidValue(detail, offset=self._at, reason="trailing_bytes")

    def read_byte(self) -> int:
        """Read -128 to 127."""
        return self._unpack(_BYTE, 1)

    def read_unsigned_byte(self) -> int:
        """Read 0 to 255."""
        return self._take(1)[0]

    def read_bytes(self, size: int) -> bytes:
        """Read raw bytes; their number is not on the wire.

        Raises:
            InvalidValue: ``bad_length``: the number is negative, which a user type may have read from a peer.
        """
        if size < 0:
            raise InvalidValue(f"the length {size} is negative", offset=self._at, reason="bad_length")
        return self._take(size)

    def read_short(self) -> int:
        """Read 16 bits, signed."""
        return self._unpack(_SHORT, 2)

    def read_char(self) -> Char:
        """Read one UTF-16 code unit."""
        return Char(chr(self._unpack(_UNIT, 2)))

    def read_int32(self) -> int:
        """Read 32 bits, signed."""
        return self._unpack(_INT32, 4)

    def read_compressed_int32(self) -> int:
        """Read 32 bits, signed, from one to five bytes."""
        return self._variable(decode_compressed, 32)

    def read_int64(self) -> int:
        """Read 64 bits, signed."""
        return self._unpack(_INT64, 8)

    def read_compressed_int64(self) -> int:
        """Read 64 bits, signed, from one to ten bytes."""
        return self._variable(decode_compressed, 64)

    def read_float(self) -> Float:
        """Read single precision."""
        return Float(self._unpack(_FLOAT, 4))

    def read_double(self) -> float:
        """Read double precision."""
        return self._unpack(_DOUBLE, 8)

    def read_boolean(self) -> bool:
        """Read a byte: 0 is False, all others are True."""
        return self._take(1) != b"\0"

    def read_bitset(self) -> list[bool] | None:
        """Read a bitset; None for null. An empty bitset is written as null."""
        return self._variable(decode_bitset)

    def read_short_array(self, count: int) -> npt.NDArray[np.int16]:
        """Read an array of 16-bit signed numbers. Its length is not on the wire; that holds for all arrays of numbers.

        The array is a new one, in the machine's byte order.

        Raises:
            InvalidValue: ``bad_length``: the count is negative.
            OversizedMessage: ``too_large``: the numbers would exceed the limit.
        """
        return self._read_numbers(count, np.int16)

    def read_int32_array(self, count: int) -> npt.NDArray[np.int32]:
        """Read an array of 32-bit signed numbers."""
        return self._read_numbers(count, np.int32)

    def read_int64_array(self, count: int) -> npt.NDArray[np.int64]:
        """Read an array of 64-bit signed numbers."""
        return self._read_numbers(count, np.int64)

    def read_float_array(self, count: int) -> npt.NDArray[np.float32]:
        """Read an array of single-precision numbers."""
        return self._read_numbers(count, np.float32)

    def read_double_array(self, count: int) -> npt.NDArray[np.float64]:
        """Read an array of double-precision numbers."""
        return self._read_numbers(count, np.float64)

    def _read_numbers(self, count: int, kind: type[_N]) -> npt.NDArray[_N]:
        size = np.dtype(kind).itemsize
        self._check_length(count, size, self._at)
        return np.frombuffer(self._take(count * size), np.dtype(kind).newbyteorder(">")).astype(kind)

    def read_identifier(self) -> Identifier:
        """Read the 16 bytes of an Identifier."""
        return Identifier(self._take(16))

    def read_count(self, smallest: int) -> int:
        """Read an int32 that counts items of at least ``smallest`` bytes each.

        Raises:
            InvalidValue: ``bad_length``: it is negative.
            OversizedMessage: ``too_large``: the items would exceed the limit.
        """
        at = self._at
        count = self.read_int32()
        self._check_length(count, smallest, at)
        return count

    def read_string(self) -> str:
        """Read a text. Lone surrogates are preserved.

        Raises:
            InvalidValue: ``bad_length``, ``bad_text`` or ``chunk_units``.
            OversizedMessage: ``too_large``: it would exceed the limit.
        """
        octets, at = self._octets, self._at
        try:
            size, again, length = _HEAD(octets, at)
        except struct.error:  # at the end of the bytes, or an empty one
            return self._read_long_string()
        if 0 < size == again == length <= len(octets) - at - 10:
            text = octets[at + 10 : at + 10 + size]
            if text.isascii() and size < CHUNK:
                self._at = at + 10 + size
                return text.decode()
        return self._read_long_string()

    def _read_long_string(self) -> str:
        start = self._at
        size, again = self._unpack_all(_LENGTHS, 8)
        if size != again:
            raise InvalidValue(f"the lengths {size} and {again} differ", offset=start, reason="bad_length")
        self._check_length(size, 1, start)
        chunks = []
        for first, last in chunk_bounds(size):
            at = self._at
            chunk = self._take(self._unpack(_UNIT, 2))
            chunks.append(decode_units(chunk, last - first, at))
        return join_pairs("".join(chunks))

    def read_nullable_object(self) -> Any:
        """Read an object or None. An object follows the byte 1; any other byte means None."""
        return self.read_object() if self.read_unsigned_byte() == 1 else None

    def read_message(self) -> Message:
        """Read an object that must be a Message. Raises InvalidValue, ``unexpected_object``."""
        at, found = self._at, self.read_object()
        if not isinstance(found, Message):
            detail = f"{type(found).__name__} instead of a Message"
            raise InvalidValue(detail, offset=at, reason="unexpected_object")
        return found

    def read_object(self) -> Any:
        """Read a value by the id of its type.

        Raises:
            UnknownType: ``unknown_type``: no type has the marshaller or class type id.
            InvalidValue: A length, text, constant or inner object is wrong; ``too_deep``: more than `limits.MAX_DEPTH`
                objects inside one another; ``user_type``: code of a user type raised another error.
            OversizedMessage: ``too_large``: a length exceeds the limit.
        """
        at = self._at
        marshaller_id = self.read_short()
        scalar = _SCALARS.get(marshaller_id)
        if scalar is not None:
            return scalar(self)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidValue(f"more than {MAX_DEPTH} objects in one another", offset=at, reason="too_deep")
        composite = _COMPOSITES.get(marshaller_id)
        if composite is not None:
            found = composite(self)
        elif marshaller_id in self._types.marshallers:
            found = self._call(self._types.marshallers[marshaller_id].read, at)
        else:
            raise _unknown(marshaller_id, at, "marshaller")
        self._depth -= 1
        return found

    def _read_array(self) -> bytes:
        return self.read_bytes(self.read_count(1))

    def _read_enum(self) -> Any:
        constants = self._registered(self._types.enums)
        at, name = self._at, self.read_string()
        return _constant(constants, name, at)

    def _read_enumerable(self) -> Any:
        constants = self._registered(self._types.enumerables)
        at, flag = self._at, self.read_int32()
        return _constant(constants, flag, at)

    def _read_message(self) -> Message:
        at, found = self._at, self.read_object()
        if type(found) is not Identifier:
            detail = f"a Message begins with {type(found).__name__}, not with an Identifier"
            raise InvalidValue(detail, offset=at, reason="unexpected_object")
        return Message(found, self.read_object())

    def _read_packet(self) -> Packet:
        kind = self._registered(self._types.packets)
        packet: Packet = kind.__new__(kind)
        packet.name = self.read_string()
        packet.values = self._read_entries(self.read_count(SMALLEST_ENTRY))
        if kind.unmarshall_fields is not Packet.unmarshall_fields:
            self._call(packet.unmarshall_fields, self._at)
        return packet

    def _read_entries(self, count: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        octets, simple = self._octets, self._simple
        for _ in range(count):
            key = self.read_string()
            at = self._at
            start = octets[at : at + 2]
            found = simple.get(start)
            if found is not None and at + found[0].size <= len(octets):  # half the time of a field read by methods
                layout, kind = found
                (number,) = layout.unpack_from(octets, at)
                values[key] = number if kind is None else int.__new__(kind, number)
                self._at = at + layout.size
            elif start == b"\xff\xf8" and simple:
                self._at = at + 2
                values[key] = self.read_string()
            else:
                values[key] = self.read_object()
        return values

    def _read_marshallable(self) -> Any:
        at = self._at
        return self._call(self._registered(self._types.marshallables).unmarshall, at)

    def _call(self, read: Callable[[Decoder], _T], at: int) -> _T:
        """Call a user type's code. Its errors mean that the bytes do not fit the type."""
        try:
            return read(self)
        except (SilverfoldError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a CancelledError would end the task that reads
            raise InvalidValue(f"a user type raised {error!r}", offset=at, reason="user_type") from error

    def _registered(self, known: dict[int, _T]) -> _T:
        at, type_id = self._at, self.read_short()
        if type_id not in known:
            raise _unknown(type_id, at, "class type")
        return known[type_id]

    def _check_length(self, count: int, smallest: int, at: int) -> None:
        if count < 0:
            raise InvalidValue(f"the length {count} is negative", offset=at, reason="bad_length")
        if count * smallest > self._limit:
            detail = f"{count} items are announced, {self._limit} bytes are allowed"
            raise OversizedMessage(detail, offset=at, reason="too_large")

    def _take(self, size: int) -> bytes:
        at = self._at
        end = at + size
        if end > len(self._octets):
            raise self._truncated(size)
        self._at = end
        return self._octets[at:end]

    def _unpack(self, unpack: _Unpack[_T], size: int) -> _T:
        return self._unpack_all(unpack, size)[0]

    def _unpack_all(self, unpack: _Unpack[_T], size: int) -> tuple[_T, ...]:
        try:
            found = unpack(self._octets, self._at)
        except struct.error:
            raise self._truncated(size) from None
        self._at += size
        return found

    def _variable(self, decode: Callable[..., tuple[_T, int]], *arguments: int) -> _T:
        try:
            found, self._at = decode(self._octets, self._at, *arguments)
        except TruncatedMessage:
            self.needed = len(self._octets) + 1
            raise
        return found

    def _truncated(self, size: int) -> TruncatedMessage:
        self.needed = self._at + size
        detail = f"{size} bytes are due, the bytes end after {max(self.left, 0)}"
        return TruncatedMessage(detail, offset=self._at, reason="truncated")


def _unknown(type_id: int, at: int, kind: str) -> UnknownType:
    return UnknownType(f"no type has the {kind} id {type_id}", type_id=type_id, offset=at)


def _constant(constants: dict[Any, Any], value: str | int, at: int) -> Any:
    if value not in constants:
        raise InvalidValue(f"the enum has no constant {value!r}", offset=at, reason="bad_constant")
    return constants[value]


_SCALARS: Final[dict[int, Callable[[Decoder], Any]]] = {
    -1: lambda decoder: Byte(decoder.read_byte()),
    -2: lambda decoder: Short(decoder.read_short()),
    -3: lambda decoder: decoder.read_char(),
    -4: lambda decoder: Int(decoder.read_int32()),
    -5: lambda decoder: decoder.read_float(),
    -6: lambda decoder: decoder.read_int64(),
    -7: lambda decoder: decoder.read_double(),
    -8: lambda decoder: decoder.read_string(),
    -9: Decoder._read_array,
    -10: Decoder._read_enum,
    -11: Decoder._read_enumerable,
    -101: lambda decoder: decoder.read_identifier(),
}
_COMPOSITES: Final[dict[int, Callable[[Decoder], Any]]] = {
    -102: Decoder._read_message,
    -103: Decoder._read_packet,
    -104: Decoder._read_marshallable,
}
