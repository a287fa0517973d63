"""Reads blocks: the fixed-size part of a message, of a group's entry, or a composite.

A block is compiled once per acting version to one `struct` that skips the gaps, and a list of fixes for the fields
that are more than a plain number. Absent fields have no key, nulls are None, constants come without bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from connectors.wire.sbe.model import (
    Array,
    Buffer,
    ByteOrder,
    Composite,
    Encoding,
    Enum,
    Field,
    Member,
    Presence,
    Primitive,
    Scalar,
    Set,
)
from connectors.wire.sbe.primitives import FLOATS, TRAITS
from connectors.wire.sbe.text import DEFAULT_CHARSET, TextMode, fixed_text_reader
from connectors.wire.sbe.values import Fault, SetValue

_Fix: TypeAlias = Callable[[Any], Any]


class BlockOptions(NamedTuple):
    """What the reader of a block depends on beside its fields."""

    order: ByteOrder
    version: int
    """Acting version: fields that are newer are absent."""
    text: TextMode = "strict"


class _Slot(NamedTuple):
    name: str
    offset: int
    end: int
    code: str
    fix: _Fix | None


class BlockReader:
    """Reads the fields that are present, given how much of the block there is."""

    __slots__ = ("_fixes", "_names", "_offsets", "_template", "_unpack", "size")

    def __init__(self, slots: Sequence[_Slot], template: dict[str, Any], order: ByteOrder) -> None:
        layout = struct.Struct(order + _format(slots))
        self.size = layout.size
        """Bytes needed: the end of the last field."""
        self._unpack = layout.unpack_from
        self._names = tuple(slot.name for slot in slots)
        self._fixes = tuple((slot.name, slot.fix) for slot in slots if slot.fix is not None)
        self._offsets = {slot.name: slot.offset for slot in slots}
        self._template = template if len(template) > len(slots) else None

    def read(self, body: Buffer, offset: int) -> dict[str, Any]:
        """Return the values of the block at ``offset``, which must have ``size`` bytes; `Fault` for invalid text."""
        if self._template is None:
            values = dict(zip(self._names, self._unpack(body, offset), strict=True))
        else:
            values = self._template.copy()
            values.update(zip(self._names, self._unpack(body, offset), strict=True))
        name = ""
        try:
            for name, fix in self._fixes:
                values[name] = fix(values[name])
        except Fault as fault:
            fault.offset += offset + self._offsets[name]
            fault.path.append(name)
            raise
        return values


class BlockPlan:
    """The readers of one block at one acting version, by how much of the block is on the wire."""

    def __init__(self, parts: Sequence[Field | Member], options: BlockOptions, *, nullable: bool = False) -> None:
        """Compile ``parts``; with ``nullable`` the first one on the wire may be null (the null of a composite)."""
        self._order = options.order
        self._slots: list[_Slot] = []
        self._template: dict[str, Any] = {}
        for part in parts:
            if part.since_version > options.version:
                nullable = nullable and part.presence is Presence.CONSTANT
                continue
            self._template[part.name] = part.constant
            if part.presence is not Presence.CONSTANT:
                self._slots.append(_slot(part, options, nullable=nullable))
                nullable = False
        self.full = self._reader(len(self._slots))
        self._partial: dict[int, BlockReader] = {}

    def reader(self, wire_block_length: int) -> BlockReader:
        """Return the reader for a block of this length on the wire: fields that end beyond it are absent."""
        if wire_block_length >= self.full.size:
            return self.full
        count = sum(slot.end <= wire_block_length for slot in self._slots)
        if count not in self._partial:
            self._partial[count] = self._reader(count)
        return self._partial[count]

    def _reader(self, count: int) -> BlockReader:
        missing = {slot.name for slot in self._slots[count:]}
        template = {name: value for name, value in self._template.items() if name not in missing}
        return BlockReader(self._slots[:count], template, self._order)


def _format(slots: Sequence[_Slot]) -> str:
    parts, cursor = [], 0
    for slot in slots:
        if slot.offset > cursor:
            parts.append(f"{slot.offset - cursor}x")
        parts.append(slot.code)
        cursor = slot.end
    return "".join(parts)


def _slot(part: Field | Member, options: BlockOptions, *, nullable: bool) -> _Slot:
    encoding = part.encoding
    optional = nullable or part.presence is Presence.OPTIONAL
    fix = _fix(encoding, options, optional=optional)
    return _Slot(part.name, part.offset, part.offset + encoding.size, slot_code(encoding), fix)


def slot_code(encoding: Encoding) -> str:
    """Return the `struct` code of an encoding: its primitive's, or plain bytes for what has parts."""
    match encoding:
        case Scalar():
            return TRAITS[encoding.primitive].code
        case Enum() | Set():
            return TRAITS[encoding.encoding.primitive].code
        case _:
            return f"{encoding.size}s"


def _fix(encoding: Encoding, options: BlockOptions, *, optional: bool) -> _Fix | None:
    """Return the function from what `struct` unpacks to the value; None when they are the same."""
    match encoding:
        case Scalar():
            return _scalar_fix(encoding, options, optional=optional)
        case Array():
            text = encoding.element.primitive is Primitive.CHAR
            return (_text_fix if text else _list_fix)(encoding, options, optional=optional)
        case Enum():
            return _names(encoding).__getitem__
        case Set():
            choices = encoding.choices
            return lambda raw: SetValue(raw, choices)
        case Composite():
            return _composite_fix(encoding, options, optional=optional)


def _scalar_fix(scalar: Scalar, options: BlockOptions, *, optional: bool) -> _Fix | None:
    if scalar.primitive is not Primitive.CHAR:
        return _null_fix(scalar) if optional else None
    read = fixed_text_reader(scalar.charset or DEFAULT_CHARSET, options.text)
    null = bytes([int(scalar.null)])
    return (lambda raw: None if raw == null else read(raw)) if optional else read


def _null_fix(scalar: Scalar) -> _Fix:
    is_null = null_test(scalar)
    return lambda raw: None if is_null(raw) else raw


def null_test(scalar: Scalar) -> Callable[[Any], bool]:
    """Return the test for the null value of a number: any NaN, unless a float declares another value."""
    null = scalar.null
    if scalar.primitive in FLOATS:
        if math.isnan(null):
            return math.isnan
        null = rounded(null, scalar.primitive)
    return lambda raw: bool(raw == null)


def rounded(value: float, primitive: Primitive) -> float:
    """Return a float as the primitive's bytes can hold it."""
    layout = struct.Struct("<" + TRAITS[primitive].code)
    return float(layout.unpack(layout.pack(value))[0])


def _text_fix(array: Array, options: BlockOptions, *, optional: bool) -> _Fix:
    read = fixed_text_reader(array.charset or DEFAULT_CHARSET, options.text)
    null = int(array.element.null)
    return (lambda raw: None if raw[0] == null else read(raw)) if optional else read


def _list_fix(array: Array, options: BlockOptions, *, optional: bool) -> _Fix:
    unpack = struct.Struct(f"{options.order}{array.count}{TRAITS[array.element.primitive].code}").unpack
    if not optional:
        return lambda raw: list(unpack(raw))
    fix = _null_fix(array.element)

    def read(raw: bytes) -> list[Any] | None:
        values = [fix(element) for element in unpack(raw)]
        return None if values.count(None) == len(values) else values

    return read


def _composite_fix(composite: Composite, options: BlockOptions, *, optional: bool) -> _Fix:
    reader = BlockPlan(composite.members, options, nullable=optional).full
    return lambda raw: reader.read(raw, 0)


class _Names(dict[Any, "str | None"]):
    """Wire value of an enum → its name, None for null; an unknown value stays what it is."""

    def __missing__(self, raw: Any) -> Any:
        return raw.decode("latin-1") if isinstance(raw, bytes) else raw


def _names(enum: Enum) -> _Names:
    known: dict[int, str | None] = {**enum.values, enum.null: None}
    if enum.encoding.primitive is Primitive.CHAR:
        return _Names({bytes([raw]): name for raw, name in known.items()})
    return _Names(known)
