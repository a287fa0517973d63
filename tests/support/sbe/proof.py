"""Finds what a schema change breaks without comparing schemas: writes with one, reads with the other.

Knows none of the rules. Elements match by name, after `renamed`. Groups have two entries and no value is zero: a single
entry and zeros hide many breaks. Only what both sides know is written: no null, and no enum value or choice that the
reader lacks or that is deprecated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from silverfold.conf.errors import WireError
from silverfold.connectors.wire.sbe.codec.decode import Decoded, decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.codec.values import SetValue
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Body,
    Composite,
    Encoding,
    Enum,
    Field,
    Member,
    Message,
    Presence,
    Primitive,
    Scalar,
    Schema,
    Set,
)
from silverfold.connectors.wire.sbe.schema.primitives import FLOATS, has_limits

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Proof(NamedTuple):
    """Result of reading with one schema the messages written with another."""

    wrong: list[str]
    """Values known to both that differ, are missing, or are present although not written; and errors."""
    lost: list[str]
    """Elements that the reader no longer knows, or reports as missing: unknown templates, short blocks."""


def prove(writer: Schema, reader: Schema, renamed: Mapping[str, str]) -> Proof:
    """Write some messages of every template with one schema and read them with the other.

    Args:
        renamed: Writer's name → reader's name, for messages, elements, values and types.
    """
    proof = Proof([], [])
    for message in writer.messages.values():
        for variant in range(2):
            values = _Sample(reader, renamed, variant).body(message)
            body = encode(writer, message.name, values, tolerant=True)
            _read(_Reading(reader, renamed, proof), message, values, body)
    return proof


class _Sample:
    """Distinct values for a message: small numbers, or, for the second variant, the largest or most negative ones.

    The largest float is infinity, unless the schema has limits for it.
    """

    def __init__(self, reader: Schema, renamed: Mapping[str, str], variant: int) -> None:
        self._reader, self._renamed, self._variant = reader, renamed, variant
        self._count = 0

    def body(self, body: Body) -> dict[str, Any]:
        values = {field.name: self.value(field.encoding) for field in _on_wire(body.fields)}
        for group in body.groups:
            values[group.name] = [self.body(group), self.body(group)]
        for data in body.data:
            text = self._text(5)
            values[data.name] = text.encode() if data.charset is None else text
        return values

    def value(self, encoding: Encoding) -> Any:
        match encoding:
            case Scalar():
                return self._number(encoding)
            case Array():
                is_text = encoding.element.primitive is Primitive.CHAR
                numbers = [self._number(encoding.element) for _ in range(encoding.count)]
                return self._text(encoding.count) if is_text else numbers
            case Enum():
                names = self._known(encoding, encoding.values)
                return names[(self._variant + self._next()) % len(names)] if names else None
            case Set():
                return self._known(encoding, encoding.choices)
            case Composite():
                return {member.name: self.value(member.encoding) for member in _on_wire(encoding.members)}

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _text(self, length: int) -> str:
        start = self._next()
        return "".join(_LETTERS[(start + index) % len(_LETTERS)] for index in range(length))

    def _number(self, scalar: Scalar) -> float | str:
        number = self._next()
        if scalar.primitive is Primitive.CHAR:
            return "BS"[self._variant]
        if scalar.primitive in FLOATS:
            return math.inf if self._variant and not has_limits(scalar) else number + 0.5
        if self._variant:
            return int(scalar.minimum) + number if scalar.minimum < 0 else int(scalar.maximum) - number
        return max(int(scalar.minimum), 0) + number

    def _known(self, encoding: Enum | Set, names: Mapping[int, str]) -> list[str]:
        other = self._reader.encodings.get(self._renamed.get(encoding.name, encoding.name))
        known = set(_current(other)) if isinstance(other, Enum | Set) else set(names.values())
        return [name for name in _current(encoding) if self._renamed.get(name, name) in known]


def _current(encoding: Enum | Set) -> Iterator[str]:
    """Yield the names that are not deprecated."""
    for raw, name in (encoding.values if isinstance(encoding, Enum) else encoding.choices).items():
        if raw not in encoding.deprecated_values:
            yield name


def _on_wire(parts: tuple[Field, ...] | tuple[Member, ...]) -> list[Field | Member]:
    return [part for part in parts if part.presence is not Presence.CONSTANT]


class _Reading(NamedTuple):
    reader: Schema
    renamed: Mapping[str, str]
    proof: Proof

    def name(self, name: str) -> str:
        return self.renamed.get(name, name)


def _read(reading: _Reading, message: Message, written: dict[str, Any], body: bytes) -> None:
    target = reading.reader.templates.get(message.id)
    try:
        found = decode(reading.reader, body, text="replace")
    except WireError as error:
        (reading.proof.lost if target is None else reading.proof.wrong).append(str(error))
        return
    _note_short(reading, found)
    assert target is not None
    if target.name != reading.name(message.name):
        reading.proof.lost.append(f"{message.name} is read as {target.name}")
    _compare_bodies(reading, message.name, (message, written), (target, found.values))


def _note_short(reading: _Reading, found: Decoded) -> None:
    reading.proof.lost.extend(finding.element for finding in found.warnings if finding.reason == "short-block")


def _compare_bodies(
    reading: _Reading, path: str, written: tuple[Body, dict[str, Any]], found: tuple[Body, dict[str, Any]]
) -> None:
    (body, values), (other, others) = written, found
    known = {part.name: part for part in (*other.fields, *other.groups, *other.data)}
    for name in values:
        same = reading.name(name)
        if same in known:
            _compare(reading, f"{path}.{name}", (_part(body, name), values[name]), (known[same], others.get(same, ...)))
        else:
            reading.proof.lost.append(f"{path}.{name} is not known")
    sources = {reading.name(name) for name in values}
    constants = {field.name for field in other.fields if field.presence is Presence.CONSTANT}
    for name in others.keys() - sources - constants:
        reading.proof.wrong.append(f"{path}.{name} was not written")


def _part(body: Body, name: str) -> Any:
    return next(part for part in (*body.fields, *body.groups, *body.data) if part.name == name)


def _compare(reading: _Reading, path: str, written: tuple[Any, Any], found: tuple[Any, Any]) -> None:
    (part, value), (other, got) = written, found
    if got is ...:
        reading.proof.wrong.append(f"{path} is missing")
    elif isinstance(part, Body) and isinstance(other, Body):
        if len(value) != len(got):
            reading.proof.wrong.append(f"{path} has {len(got)} entries instead of {len(value)}")
        for entry, read in zip(value, got, strict=False):
            _compare_bodies(reading, path, (part, entry), (other, read))
    elif isinstance(value, dict) and isinstance(got, dict):
        _compare_members(reading, path, (part.encoding, value), (other.encoding, got))
    elif _comparable(reading, value) != _comparable(None, got):
        reading.proof.wrong.append(f"{path} is {got!r} instead of {value!r}")


def _compare_members(
    reading: _Reading, path: str, written: tuple[Composite, dict[str, Any]], found: tuple[Composite, dict[str, Any]]
) -> None:
    (composite, values), (other, others) = written, found
    known = {member.name: member for member in other.members}
    for name, value in values.items():
        same = reading.name(name)
        if same in known:
            _compare(reading, f"{path}.{name}", (composite.member(name), value), (known[same], others.get(same, ...)))
    constants = {member.name for member in other.members if member.presence is Presence.CONSTANT}
    for name in others.keys() - {reading.name(name) for name in values} - constants:
        reading.proof.wrong.append(f"{path}.{name} was not written")


def _comparable(reading: _Reading | None, value: Any) -> Any:
    """Return a value in comparable form: with the reader's names, and text and bytes alike."""
    if isinstance(value, SetValue):
        return value.names
    if isinstance(value, list):
        return sorted(_comparable(reading, each) for each in value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return reading.name(value) if reading is not None and isinstance(value, str) else value
