"""Describes elements of a schema in a few words."""

from __future__ import annotations

from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Composite,
    Data,
    Encoding,
    Field,
    Group,
    Member,
    Presence,
    Scalar,
    Structure,
)


def encoding_text(encoding: Encoding) -> str:
    """Return a type's name and its kind, such as ``Tag (char[8])``."""
    text = _kind_text(encoding)
    return text if text == encoding.name else f"{encoding.name} ({text})"


def _kind_text(encoding: Encoding) -> str:
    match encoding:
        case Scalar():
            return encoding.primitive.value
        case Array():
            return f"{encoding.element.primitive.value}[{encoding.count}]"
        case Composite():
            return f"composite of {encoding.size} bytes"
        case _:
            return f"{type(encoding).__name__.lower()} over {encoding.encoding.primitive.value}"


def field_text(field: Field) -> str:
    """Return type, offset, presence and version of a field."""
    if field.presence is Presence.CONSTANT:
        return f"constant {field.constant!r}{_since(field.since_version)}"
    optional = "optional " if field.presence is Presence.OPTIONAL else ""
    return f"{optional}{encoding_text(field.encoding)} at {field.offset}{_since(field.since_version)}"


def group_text(group: Group) -> str:
    """Return the size of a group's entries."""
    return f"group with entries of {group.block_length} bytes{_since(group.since_version)}"


def data_text(data: Data) -> str:
    """Return the charset of data, or ``bytes``, and the layout of their length."""
    content = "bytes" if data.charset is None else data.charset
    return f"{content} after a {length_text(data)}{_since(data.since_version)}"


def length_text(data: Data) -> str:
    """Return the type and offset of a length, and its distance from the bytes."""
    offset = f" at {data.length.offset}" if data.length.offset else ""
    gap = data.data_offset - data.length.offset - data.length.size
    return f"{data.length.primitive.value} length{offset}{f', {gap} bytes apart' if gap else ''}"


def composite_text(composite: Composite) -> str:
    """Return the members of a composite, each with its offset, and its size."""
    return f"{', '.join(map(_member_text, composite.members))}; {composite.size} bytes"


def _member_text(member: Member) -> str:
    if member.presence is Presence.CONSTANT:
        return f"{member.name} = {member.constant!r}"
    return f"{member.name} {_kind_text(member.encoding)} at {member.offset}"


def structure_text(structure: Structure) -> str:
    """Return the layout of a header or of dimensions."""
    return composite_text(structure.composite)


def range_text(minimum: float, maximum: float) -> str:
    """Return limits."""
    return f"{minimum} to {maximum}"


def _since(version: int) -> str:
    return f", since {version}" if version else ""
