"""Builds small schemas for tests, and converts decoded values to and from the JSON form of the golden files."""

from __future__ import annotations

import math
from typing import Any

from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.codec.values import SetValue
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema

HEADER = """
<composite name="messageHeader">
  <type name="blockLength" primitiveType="uint16"/>
  <type name="templateId" primitiveType="uint16"/>
  <type name="schemaId" primitiveType="uint16"/>
  <type name="version" primitiveType="uint16"/>
</composite>
<composite name="groupSizeEncoding">
  <type name="blockLength" primitiveType="uint16"/>
  <type name="numInGroup" primitiveType="uint16"/>
</composite>
<composite name="blob">
  <type name="length" primitiveType="uint8"/>
  <type name="varData" primitiveType="uint8" length="0"/>
</composite>
<composite name="text">
  <type name="length" primitiveType="uint16"/>
  <type name="varData" primitiveType="uint8" length="0" characterEncoding="UTF-8"/>
</composite>
"""


def schema_of(
    messages: str, types: str = "", *, version: int = 0, order: str = "littleEndian", header: str = HEADER
) -> Schema:
    """Return a schema with id 1, the usual header and dimensions, and data types ``blob`` and ``text``."""
    return load_schema(
        f'<s:messageSchema xmlns:s="http://fixprotocol.io/2016/sbe" id="1" version="{version}" byteOrder="{order}">'
        f"<types>{header}{types}</types>{messages}</s:messageSchema>".encode()
    )


def message_of(parts: str, types: str = "", **options: Any) -> Schema:
    """Return a schema with one message, ``M``, with template id 1."""
    return schema_of(f'<message name="M" id="1">{parts}</message>', types, **options)


def frame(body: str, *, block_length: int, version: int = 0, template: int = 1) -> bytes:
    """Return a little-endian message of schema 1: a header, then ``body`` in hex, spaces allowed."""
    header = b"".join(number.to_bytes(2, "little") for number in (block_length, template, 1, version))
    return header + bytes.fromhex(body)


def assert_reads_and_writes(schema: Schema, body: bytes, values: dict[str, Any], *, tolerant: bool = False) -> None:
    """Assert that a message decodes to these values without warnings, and encodes to the same bytes."""
    decoded = decode(schema, body)
    assert decoded.values == values
    assert decoded.consumed == len(body)
    assert decoded.warnings == ()
    assert encode(schema, decoded.message.name, decoded.values, tolerant=tolerant).hex() == body.hex()


def json_form(value: Any) -> Any:
    """Return decoded values in the golden files' form: bytes as ``{"hex"}``, sets as names, NaN as a string."""
    match value:
        case dict():
            return {name: json_form(element) for name, element in value.items()}
        case list():
            return [json_form(element) for element in value]
        case bytes():
            return {"hex": value.hex()}
        case SetValue():
            return value.names
        case float() if math.isnan(value):
            return "NaN"
        case _:
            return value


def from_json_form(value: Any) -> Any:
    """Return encodable values from the golden files' form."""
    match value:
        case {"hex": text}:
            return bytes.fromhex(text)
        case dict():
            return {name: from_json_form(element) for name, element in value.items()}
        case list():
            return [from_json_form(element) for element in value]
        case "NaN":
            return math.nan
        case _:
            return value
