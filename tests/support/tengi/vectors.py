"""Golden vectors of tengi: recorded bytes, and the values in their notation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from silverfold.connectors.tengi.protocol import (
    Byte,
    Char,
    Decoder,
    Encoder,
    EnumerableValue,
    EnumValue,
    Float,
    Handshake,
    Identifier,
    Int,
    Marshallable,
    Marshaller,
    Message,
    Packet,
    PollingRequest,
    PollingResponse,
    Short,
    TypeRegistry,
    accepts_class,
)

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "tengi" / "vectors.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Row(Marshallable):
    """The vectors' marshallable 12."""

    type_id: ClassVar[int] = 12

    id: int
    name: str
    v: Any
    bits: tuple[bool, ...]

    def marshall(self, encoder: Encoder) -> None:
        encoder.write_compressed_int32(self.id)
        encoder.write_string(self.name)
        encoder.write_nullable_object(self.v)
        encoder.write_bitset(self.bits)

    @classmethod
    def unmarshall(cls, decoder: Decoder) -> Self:
        return cls(
            decoder.read_compressed_int32(),
            decoder.read_string(),
            decoder.read_nullable_object(),
            tuple(decoder.read_bitset() or ()),
        )


class SubPacket(Packet):
    """The vectors' packet subclass 13."""

    type_id = 13

    def __init__(self, name: str, extra: int) -> None:
        super().__init__(name)
        self.extra = extra

    def marshall_fields(self, encoder: Encoder) -> None:
        encoder.write_int32(self.extra)

    def unmarshall_fields(self, decoder: Decoder) -> None:
        self.extra = decoder.read_int32()


@dataclass(frozen=True)
class Point:
    """The vectors' user type."""

    x: int
    y: int


def read_point(decoder: Decoder) -> Point:
    return Point(decoder.read_int32(), decoder.read_int32())


def write_point(encoder: Encoder, point: Point) -> None:
    encoder.write_int32(point.x)
    encoder.write_int32(point.y)


TYPES = TypeRegistry(
    Row,
    SubPacket,
    enums={10: ["INSERT", "UPDATE", "DELETE"]},
    enumerables={11: {"A": 7, "B": -2}},
    marshallers=[Marshaller(100, accepts_class(Point), read_point, write_point)],
)


def value_of(notation: dict[str, Any] | None) -> Any:
    """The value that a vector's notation denotes."""
    if notation is None:
        return None
    ((kind, given),) = notation.items()
    return READ[kind](given)


def _packet(given: dict[str, Any]) -> Packet:
    values = {key: value_of(value) for key, value in given["values"]}
    if given["type_id"] == SubPacket.type_id:
        return SubPacket(given["name"], given["extra"][0][1])
    return Handshake(values) if given["type_id"] == Handshake.type_id else Packet(given["name"], values)


def _marshallable(given: dict[str, Any]) -> Marshallable:
    fields = [value for _, value in given["fields"]]
    if given["type_id"] == PollingRequest.type_id:
        return PollingRequest()
    if given["type_id"] == PollingResponse.type_id:
        return PollingResponse(tuple(value_of(each) for each in fields[1:]))
    number, name, nullable, bits = fields
    return Row(number, name, value_of(nullable), tuple(map(bool, bits)))


READ: dict[str, Callable[[Any], Any]] = {
    "byte": Byte,
    "short": Short,
    "int": Int,
    "long": int,
    "char": lambda unit: Char(chr(unit)),
    "float": lambda text: Float(float(text)),
    "double": float,
    "string": str,
    "bytes": bytes.fromhex,
    "identifier": Identifier.parse,
    "enum": lambda given: EnumValue(given["type_id"], given["name"]),
    "enumerable": lambda given: EnumerableValue(given["type_id"], given["flag"]),
    "marshallable": _marshallable,
    "packet": _packet,
    "message": lambda given: Message(Identifier.parse(given["id"]), value_of(given["body"])),
    "user": lambda given: Point(*(value for _, value in given["fields"])),
}


def written(value: object, types: TypeRegistry = TYPES) -> bytes:
    """A value as an object."""
    encoder = Encoder(types)
    encoder.write_object(value)
    return encoder.to_bytes()
