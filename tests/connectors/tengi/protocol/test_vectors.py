"""Bytes recorded from the Java implementation: written alike, and read back; shorter ones ask for more."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from silverfold.conf.errors import InvalidValue, TruncatedMessage, WireError
from silverfold.connectors.tengi.protocol import Decoder, Encoder, EnumValue, Float
from tests.support.tengi.vectors import TYPES, VECTORS, value_of, written

FIELDS = {
    "raw_bytes": ("bytes", bytes.fromhex),
    "char": ("char", chr),
    "float": ("float", float),
    "double": ("double", float),
    "nullable": ("nullable_object", value_of),
}
PATTERNS = {
    "ones": lambda _: True,
    "zeros": lambda _: False,
    "alt": lambda i: i % 2 == 0,
    "mod3": lambda i: i % 3 == 0,
    "quadratic": lambda i: (i * i + 1) % 5 < 2,
}
UNWRITABLE = {
    "Boolean true": True,
    "null": None,
    "boolean[]": [True],
    "ArrayList": [],
    "int[]": (1,),
    "HashMap": {},
    "BigDecimal": 1j,
    "java.util.Date": range(1),
    "java.util.UUID": object(),
    "Enum unregistered": EnumValue(99, "A"),
}


def field(name: str, value: Any) -> bytes:
    encoder = Encoder(TYPES)
    getattr(encoder, f"write_{name}")(value)
    return encoder.to_bytes()


def read_field(name: str, octets: bytes, *arguments: Any) -> Any:
    decoder = Decoder(octets, TYPES)
    found = getattr(decoder, f"read_{name}")(*arguments)
    decoder.check_end()
    return found


@pytest.mark.parametrize("width", [32, 64])
def test_compressed_integers(width: int) -> None:
    name = f"compressed_int{width}"
    for vector in VECTORS[name]:
        octets = bytes.fromhex(vector["hex"])
        assert field(name, vector["value"]) == octets
        assert read_field(name, octets) == vector["value"]
        for end in range(len(octets)):
            with pytest.raises(TruncatedMessage):
                read_field(name, octets[:end])


@pytest.mark.parametrize("vector", VECTORS["primitives"], ids=lambda each: f"{each['op']} {each['value']}")
def test_primitive_fields(vector: dict[str, Any]) -> None:
    name, convert = FIELDS.get(vector["op"], (vector["op"], lambda value: value))
    value = convert(vector["value"])
    if "rejected" in vector:
        with pytest.raises(InvalidValue):
            field(name, value)
        return
    octets = bytes.fromhex(vector["hex"])
    assert field(name, value) == octets
    found = read_field(name, octets, *([len(octets)] if name == "bytes" else []))
    assert repr(found) == repr(Float(value) if name == "float" else value) or found == value
    for end in range(len(octets)):
        with pytest.raises(TruncatedMessage):
            read_field(name, octets[:end], *([len(octets)] if name == "bytes" else []))


@pytest.mark.parametrize("vector", VECTORS["strings"], ids=lambda each: each["hex"][:24])
def test_strings(vector: dict[str, Any]) -> None:
    octets = bytes.fromhex(vector["hex"])
    text = bytes.fromhex(vector["utf16be"]).decode("utf-16-be", "surrogatepass")
    assert field("string", text) == field("string", vector["value"]) == octets
    assert read_field("string", octets) == text
    for end in range(len(octets)):
        with pytest.raises(TruncatedMessage):
            read_field("string", octets[:end])


@pytest.mark.parametrize(
    "vector", VECTORS["long_strings"]["vectors"], ids=lambda each: f"{each['kind']}-{each['units']}"
)
def test_long_strings(vector: dict[str, Any]) -> None:
    units = range(vector["units"])
    text = "".join(chr(0x61 + i % 26) if vector["kind"] == "ascii" else "b" if i % 2 else "\u20ac" for i in units)
    octets = field("string", text)
    assert len(octets) == vector["total_bytes"]
    assert hashlib.sha256(octets).hexdigest() == vector["sha256"]
    assert read_field("string", octets) == text


def test_bitsets() -> None:
    for vector in VECTORS["bitsets"]["vectors"]:
        is_null = vector["pattern"] == "null"
        values = None if is_null else [PATTERNS[vector["pattern"]](i) for i in range(vector["length"])]
        octets = bytes.fromhex(vector["hex"])
        assert field("bitset", values) == octets, vector
        assert read_field("bitset", octets) == (values or None)


@pytest.mark.parametrize("vector", VECTORS["bitset_malformed"], ids=lambda each: each["hex"])
def test_malformed_bitsets(vector: dict[str, Any]) -> None:
    octets = bytes.fromhex(vector["hex"])
    if vector["result"] == "error":
        with pytest.raises(InvalidValue, match="bad_bitset"):
            read_field("bitset", octets)
    else:
        slots = vector.get("slots")
        assert read_field("bitset", octets) == (None if slots is None else [False] * slots)


@pytest.mark.parametrize("vector", VECTORS["objects"], ids=lambda each: each["name"])
def test_objects(vector: dict[str, Any]) -> None:
    if "rejected" in vector:
        with pytest.raises(WireError):
            written(UNWRITABLE[vector["name"]])
        return
    octets, value = bytes.fromhex(vector["hex"]), value_of(vector["value"])
    assert written(value) == octets
    found = read_field("object", octets)
    assert found == value
    assert type(found) is type(value)
    assert written(found) == octets
    for end in range(len(octets)):
        with pytest.raises(TruncatedMessage):
            read_field("object", octets[:end])
