"""The official SBE tool as an oracle: its output for a message, and its known limits.

Its JSON is expected to equal our values converted by `in_its_form`. Differences beyond form are masked, each with its
reason: see `MASKS`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from silverfold.connectors.wire.sbe.codec.decode import Decoded
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Body,
    Composite,
    Data,
    Encoding,
    Enum,
    Field,
    Presence,
    Primitive,
    Scalar,
    Set,
)

ARTIFACT = "uk.co.real-logic:sbe-tool:1.38.1"
"""The tool that printed the golden files; fetched by `tests/interop/pom.xml`."""

ROOM = 512
"""Zero bytes appended to a message for the tool. It reads at the offset of constant enums, and of fields that are newer
than the message, although there may be no bytes."""

MASKS = {
    "newer-field": "prints bytes of the next part, or a null value, for a field that is newer than the message",
    "newer-member": "never asks how old a composite's member is, and prints the bytes at its place",
    "constant-beyond-ascii": "keeps one byte of a constant that is one character, however many it takes",
    "beyond-ascii": "ends the text of a char array at the first byte that is not ASCII, whatever its charset",
}
"""Peculiarities of the tool, by mask. Where one applies, the output is not compared."""

TAKEN_BY_IT = {
    "E01 include from bytes": "includes are an option of its parser, off unless asked for; then the element is ignored",
    "E02 id too large": "takes any number for the id",
    "E02 version does not fit": "never compares the version with the width of the header's member",
    "E03 byte order": "takes any other text for little-endian",
    "E05 char count of groups": "has no counts in its header",
    "E05 double count of groups": "has no counts in its header",
    "E05 int16 count of groups": "has no counts in its header",
    "E08 too deep": "sets no limit to nesting",
    "E08 too deep, last first": "sets no limit to nesting",
    "E09 constant list": "does not look at the length of a constant that is a number",
    "E09 value reference on a variable": "ignores the valueRef of a field that is not constant",
    "E10 constant enum as a member": "gives it no value",
    "E11 null": "reads a nullValue beyond its primitive's range when a type does not use it",
    "E11 text beyond its charset": "puts question marks for what the charset lacks",
    "E12 too many values": "sets no limit to the size of composites",
    "E15 negative bit": "checks the upper bound only",
    "E21 signed count of data": "has no counts in its dimensions",
    "E22 data before its length": "places data by the offset of varData, even over the length",
    "E23 deprecated choice": "compares sinceVersion with the schema's version, not deprecated",
    "E25 message id": "accepts ids that no header of sixteen bits can hold",
    "E26 empty name": "warns of a name that is a space",
    "E27 array of length 0": "gives the field no bytes",
    "E27 data composite": "gives the field the bytes of the length only",
}
"""Test schemas that break a rule, by test name, and why the tool still accepts them."""

REFUSED_BY_IT = {
    "no package": "wants a package on the root",
    "enum of a wide integer": "knows six primitives as encodingType of an enum, others as named types only",
    "data member of another name": "wants the bytes of data to be called varData",
    "wide block length": "wants a maxValue on a blockLength of four bytes in dimensions",
}
"""Schemas that we accept, and why the tool does not. Drawn schemas for the tool avoid all of these."""


class Masked:
    """Equal to anything: masks a value that the tool cannot judge."""

    def __init__(self, mask: str) -> None:
        self.reason = MASKS[mask]

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<masked: the tool {self.reason}>"


class _Float32:
    """A number compared as a four-byte float, regardless of its printed digits."""

    def __init__(self, number: float) -> None:
        self._bytes = struct.pack("f", number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and struct.pack("f", other) == self._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __repr__(self) -> str:
        return f"{struct.unpack('f', self._bytes)[0]!r}f"


class _Either:
    """Bytes in hex; or as ASCII text, if the schema declares chars without a charset."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def __eq__(self, other: object) -> bool:
        return other in self._texts

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return " or ".join(map(repr, self._texts))


def in_its_form(decoded: Decoded) -> dict[str, Any]:
    """Return decoded values in the tool's form, masked where it cannot judge."""
    return _body(decoded.message, decoded.values)


def lacks_a_group(body: Body, version: int) -> bool:
    """Return whether a group is absent only because all of its members are newer than the message.

    That is our own rule: a group without a sinceVersion is as old as its oldest member. The tool reads dimensions there
    and misreads the rest, so such a message cannot be compared at all.
    """
    return any(_as_old_as_its_members(group) > version or lacks_a_group(group, version) for group in body.groups)


def _as_old_as_its_members(body: Body) -> int:
    return min(_ages(body), default=0)


def _ages(body: Body) -> Iterator[int]:
    for member in (*body.fields, *body.groups, *body.data):
        yield member.since_version


def _body(body: Body, values: Mapping[str, Any]) -> dict[str, Any]:
    shown = {field.name: _field(field, values) for field in body.fields}
    for group in body.groups:
        shown[group.name] = [_body(group, entry) for entry in values.get(group.name, [])]
    return shown | {data.name: _data(data, values.get(data.name)) for data in body.data}


def _field(field: Field, values: Mapping[str, Any]) -> Any:
    if field.name not in values:
        return Masked("newer-field")
    return _value(field.encoding, values[field.name], field.presence)


def _value(encoding: Encoding, value: Any, presence: Presence) -> Any:
    match encoding:
        case Composite():
            return {
                member.name: _value(member.encoding, value[member.name], member.presence)
                if member.name in value
                else Masked("newer-member")
                for member in encoding.members
            }
        case Set():
            return {name: bool(value.raw >> bit & 1) for bit, name in encoding.choices.items()}
        case Enum():
            return value if value in encoding.values.values() else "null"
        case Array():
            return _constant(encoding, value) if presence is Presence.CONSTANT else _array(encoding, value)
        case Scalar():
            return _scalar(encoding, value)


def _constant(array: Array, text: str) -> Any:
    return text.ljust(array.count, "\0") if text.isascii() else Masked("constant-beyond-ascii")


def _array(array: Array, value: Any) -> Any:
    if array.element.primitive is Primitive.CHAR:
        text = value or ""
        return text if text.isascii() else Masked("beyond-ascii")
    return [_scalar(array.element, number) for number in value or [None] * array.count]


def _scalar(scalar: Scalar, value: Any) -> Any:
    """Return a number as the tool prints it: null values as on the wire, 64-bit integers as Java's signed longs."""
    if value is None:
        value = chr(int(scalar.null)) if scalar.primitive is Primitive.CHAR else scalar.null
    if isinstance(value, int) and scalar.primitive is Primitive.UINT64:
        return value - (1 << 64) if value >> 63 else value
    if not isinstance(value, float):
        return value
    if math.isnan(value) or math.isinf(value):
        return {math.inf: "1/0", -math.inf: "-1/0"}.get(value, "0/0")
    return _Float32(value) if scalar.primitive is Primitive.FLOAT else value


def _data(data: Data, value: Any) -> Any:
    if not value:
        return ""
    if data.charset is not None:
        return value
    return _Either(value.hex(), value.decode("ascii", "replace"))
