"""Python values of tengi's objects. Each type of the wire has one, so that a value read is written as it came.

===================  =========================  =========================
object               Python                     the writer also accepts
===================  =========================  =========================
Byte, Short, Integer `Byte`, `Short`, `Int`
Long, Double         int, float
Character, Float     `Char`, `Float`
String, byte[]       str, bytes                 bytearray, memoryview
Identifier           `Identifier`               uuid.UUID
enum, Enumerable     `EnumValue`, `EnumerableValue`
Packet, Message      `Packet`, `Message`        registered subclasses
===================  =========================  =========================

None, bool and collections have no object: `conf.errors.InvalidValue`.
"""

from __future__ import annotations

import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from silverfold.conf.errors import InvalidValue

if TYPE_CHECKING:
    from silverfold.connectors.tengi.protocol.decoder import Decoder
    from silverfold.connectors.tengi.protocol.encoder import Encoder

_SINGLE: Final = struct.Struct(">f")


class _Ranged(int):
    """An int of a fixed width. Raises InvalidValue if it does not fit."""

    _bits: ClassVar[int]

    def __new__(cls, value: int) -> Self:
        if not -1 << cls._bits - 1 <= value < 1 << cls._bits - 1:
            raise InvalidValue(f"{value} does not fit {cls._bits} bits", reason="out_of_range")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    __str__ = int.__repr__


class Byte(_Ranged):
    """A Byte: -128 to 127."""

    _bits = 8


class Short(_Ranged):
    """A Short: 16 bits, signed."""

    _bits = 16


class Int(_Ranged):
    """An Integer: 32 bits, signed."""

    _bits = 32


class Char(str):
    """A Character: one UTF-16 code unit."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        """Raise InvalidValue for anything else."""
        if len(value) != 1 or value > "\uffff":
            raise InvalidValue("a Character is one UTF-16 code unit", reason="out_of_range")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str(self)!r})"


class Float(float):
    """A Float: single precision."""

    def __new__(cls, value: float) -> Self:
        """Round the value. Raise InvalidValue if it is finite and beyond the range."""
        try:
            (rounded,) = _SINGLE.unpack(_SINGLE.pack(value))
        except OverflowError:
            raise InvalidValue(f"{value} exceeds single precision", reason="out_of_range") from None
        return super().__new__(cls, rounded)

    def __repr__(self) -> str:
        return f"Float({float(self)})"

    __str__ = float.__repr__


class Identifier(bytes):
    """16 bytes that name a connection or a message; as text, upper-case hex in the form 8-4-4-4-12. No secret."""

    __slots__ = ()

    def __new__(cls, octets: bytes) -> Self:
        """Raise InvalidValue for anything but 16 bytes."""
        if not isinstance(octets, bytes) or len(octets) != 16:  # type: ignore[redundant-expr]  # callers may be untyped
            raise InvalidValue(f"an Identifier has 16 bytes, unlike {octets!r}", reason="bad_identifier")
        return super().__new__(cls, octets)

    @classmethod
    def random(cls) -> Self:
        """Return a new random identifier, of the form of a UUID of version 4."""
        return cls(uuid.uuid4().bytes)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse its text form, in either letter case. Raises InvalidValue."""
        try:
            return cls(uuid.UUID(text).bytes)
        except ValueError as error:
            raise InvalidValue(f"{text!r} is no Identifier", reason="bad_identifier") from error

    def __str__(self) -> str:
        return str(uuid.UUID(bytes=bytes(self))).upper()

    def __repr__(self) -> str:
        return f"Identifier({self})"


@dataclass(frozen=True, slots=True)
class EnumValue:
    """A constant of an enum that was registered by names."""

    type_id: int
    name: str


@dataclass(frozen=True, slots=True)
class EnumerableValue:
    """A constant of an Enumerable that is registered by its names: an enum whose constants carry a number."""

    type_id: int
    flag: int


class Marshallable(ABC):
    """Base of user types that read and write their own fields. Register the class with a `registry.TypeRegistry`."""

    type_id: ClassVar[int]
    """Class type id: int16, agreed with the peer. tengi's own are negative."""

    @abstractmethod
    def marshall(self, encoder: Encoder) -> None:
        """Write the fields."""

    @classmethod
    @abstractmethod
    def unmarshall(cls, decoder: Decoder) -> Self:
        """Read the fields, all of them, and return the value."""


class Packet:
    """The general value object: a name, and values by key. Mutable while it is built.

    A subclass sets ``type_id``, is registered, and may write further fields. It is read without calling ``__init__``.
    Packets are equal if class, name and values are; the order of keys does not matter.
    """

    type_id: ClassVar[int] = -1000

    def __init__(self, name: str, values: Mapping[str, object] | None = None) -> None:
        self.name = name
        self.values: dict[str, Any] = dict(values or {})

    def set_value(self, key: str, value: object) -> Self:
        """Set a value, and return the packet."""
        self.values[key] = value
        return self

    def get_value(self, key: str, default: Any = None) -> Any:
        """Return a value; ``default`` if there is none."""
        return self.values.get(key, default)

    def marshall_fields(self, encoder: Encoder) -> None:
        """Write what a subclass adds behind the values."""

    def unmarshall_fields(self, decoder: Decoder) -> None:
        """Read back all that `marshall_fields` wrote."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Packet):
            return NotImplemented
        return type(self) is type(other) and self.name == other.name and self.values == other.values

    __hash__ = None  # type: ignore[assignment]  # mutable: the type of object's is a function

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.values!r})"


@dataclass(frozen=True, slots=True)
class Message:
    """The unit of exchange: an Identifier, and a body that is any object."""

    id: Identifier
    body: Any

    @classmethod
    def create(cls, body: object) -> Self:
        """Return a message with a new id."""
        return cls(Identifier.random(), body)


class Handshake(Packet):
    """First object on a connection, both ways. Readers ignore its name."""

    type_id = -201

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        super().__init__("Handshake", values)


@dataclass(frozen=True, slots=True)
class PollingRequest(Marshallable):
    """Body of a poll over HTTP."""

    type_id = -202

    def marshall(self, encoder: Encoder) -> None:
        """Write nothing."""

    @classmethod
    def unmarshall(cls, decoder: Decoder) -> Self:
        """Read nothing."""
        return cls()


@dataclass(frozen=True, slots=True)
class PollingResponse(Marshallable):
    """Body of the answer to a poll: the messages of the queue, in order."""

    type_id = -203

    messages: tuple[Message, ...] = ()

    def marshall(self, encoder: Encoder) -> None:
        """Write the messages."""
        encoder.write_int32(len(self.messages))
        for message in self.messages:
            encoder.write_object(message)

    @classmethod
    def unmarshall(cls, decoder: Decoder) -> Self:
        """Read the messages. Raises InvalidValue for another object."""
        count = decoder.read_count(SMALLEST_MESSAGE)
        return cls(tuple(decoder.read_message() for _ in range(count)))


SMALLEST_MESSAGE: Final = 22
"""Bytes of a Message with the shortest body."""
