"""Writes blocks: values by name into the fixed-size part of a message, an entry or a composite.

The reverse of `connectors.wire.sbe.codec.blocks`: fields are written at their offsets, gaps are zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from silverfold.connectors.wire.sbe.codec.blocks import slot_code
from silverfold.connectors.wire.sbe.codec.packers import (
    Packer,
    PackOptions,
    enum_packer,
    list_packer,
    scalar_packer,
    set_packer,
    text_packer,
    value_fault,
)
from silverfold.connectors.wire.sbe.codec.values import Fault
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
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

_MISSING = object()


class _Slot(NamedTuple):
    name: str
    pack: Packer
    optional: bool
    zero: Any
    """Zero, as `struct` expects it: for members of a null composite; no byte for a composite of constants."""


class BlockWriter:
    """Writes the fields that exist in one version.

    Args:
        length: Length of the block in bytes.
        nullable: The block is a composite that is null if its first member on the wire is.
        lenient: Missing values are zero: for optional header members.
    """

    def __init__(
        self,
        parts: Sequence[Field | Member],
        options: PackOptions,
        length: int,
        *,
        nullable: bool = False,
        lenient: bool = False,
    ) -> None:
        present = [part for part in parts if part.since_version <= options.version]
        wire = [part for part in present if part.presence is not Presence.CONSTANT]
        first = next((part for part in parts if part.presence is not Presence.CONSTANT), None)
        self._slots = [_slot(part, options, nullable=nullable and part is first) for part in wire]
        self._constants = {part.name: part.constant for part in present if part.presence is Presence.CONSTANT}
        self._names = {part.name for part in parts}
        self.takes_null = bool(self._slots) and wire[0] is first and self._slots[0].optional
        """None may be written for the whole block: its first member on the wire can be null."""
        self._lenient = lenient
        self._pack = struct.Struct(options.order + _format(wire, length)).pack

    def write(self, values: Mapping[str, Any], *, others: frozenset[str] = frozenset()) -> bytes:
        """Return the block. ``others`` names other parts of the message, which ``values`` may contain."""
        for name in values:
            if name not in self._names and name not in others:
                raise value_fault("unknown-name", f"there is nothing called {name!r} here")
        for name, constant in self._constants.items():
            if values.get(name, constant) != constant:
                raise value_fault("constant", f"{name} is always {constant!r}, not {values[name]!r}")
        return self._pack(*self._pack_values(values))

    def write_null(self) -> bytes:
        """Return the block of a null composite: its first member null, all others zero."""
        if not self.takes_null:
            raise value_fault("null-in-required", "null where a value is required")
        first, *others = self._slots
        return self._pack(first.pack(None), *(slot.zero for slot in others))

    def _pack_values(self, values: Mapping[str, Any]) -> list[Any]:
        slots = self._slots
        null = self.takes_null and values.get(slots[0].name, _MISSING) is None
        raws = []
        for slot in slots:
            value = values.get(slot.name, _MISSING)
            try:
                raws.append(self._pack_absent(slot, null=null) if value is _MISSING else slot.pack(value))
            except Fault as fault:
                fault.path.append(slot.name)
                raise
        return raws

    def _pack_absent(self, slot: _Slot, *, null: bool) -> Any:
        if self._lenient or slot.zero == b"" or (null and slot is not self._slots[0]):
            return slot.zero
        if slot.optional:
            return slot.pack(None)
        raise value_fault("missing", "a required value is missing")


def _format(wire: Sequence[Field | Member], length: int) -> str:
    parts, cursor = [], 0
    for part in wire:
        parts.append(f"{part.offset - cursor}x{slot_code(part.encoding)}")
        cursor = part.offset + part.encoding.size
    return f"{''.join(parts)}{length - cursor}x"


def _slot(part: Field | Member, options: PackOptions, *, nullable: bool) -> _Slot:
    optional = nullable or part.presence is Presence.OPTIONAL
    pack, optional = _packer(part.encoding, options, optional=optional)
    zero: Any = 0
    if slot_code(part.encoding)[-1] in "sc":
        zero = bytes(part.encoding.size)
    return _Slot(part.name, pack, optional, zero)


def _packer(encoding: Encoding, options: PackOptions, *, optional: bool) -> tuple[Packer, bool]:
    """Return the packer for an encoding, and whether it takes None."""
    match encoding:
        case Scalar():
            return scalar_packer(encoding, options, optional=optional), optional
        case Array():
            text = encoding.element.primitive is Primitive.CHAR
            return (text_packer if text else list_packer)(encoding, options, optional=optional), optional
        case Enum():
            return enum_packer(encoding, options, optional=optional), optional
        case Set():
            return set_packer(encoding, options), False
        case Composite():
            return _composite_packer(encoding, options, optional=optional)


def _composite_packer(
    composite: Composite, options: PackOptions, *, optional: bool
) -> tuple[Callable[[Any], bytes], bool]:
    writer = BlockWriter(composite.members, options, composite.size, nullable=optional)

    def pack(value: Any) -> bytes:
        if value is None:
            return writer.write_null()
        if not isinstance(value, Mapping):
            raise value_fault("type", f"{value!r} is not a mapping of the members of {composite.name}")
        return writer.write(value)

    return pack, writer.takes_null
