"""What an encoding, a structure or a group is on the wire, as values that compare equal when the wire is.

Names, descriptions and versions are left out. `meaning` adds what the bytes stand for.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias

from connectors.wire.sbe.model import (
    Array,
    Composite,
    Data,
    Encoding,
    Enum,
    Field,
    Group,
    Member,
    Presence,
    Primitive,
    Scalar,
    Schema,
    Set,
    Structure,
)
from connectors.wire.sbe.text import DEFAULT_CHARSET, codec

Layout: TypeAlias = tuple[object, ...]

_ASIDE = frozenset({"file", "warnings", "plans", "version", "description", "semantic_version"})


def kind(encoding: Encoding) -> str:
    """Return what sort of encoding it is: scalar, array, enum, set or composite."""
    return type(encoding).__name__.lower()


def shape(encoding: Encoding) -> Layout:
    """Return kind, primitive and count; of a composite the kind alone."""
    match encoding:
        case Scalar():
            return "scalar", encoding.primitive
        case Array():
            return "array", encoding.element.primitive, encoding.count
        case Composite():
            return ("composite",)
        case _:
            return kind(encoding), encoding.encoding.primitive


def layout(encoding: Encoding) -> Layout:
    """Return the whole layout, members of composites included."""
    if not isinstance(encoding, Composite):
        return shape(encoding)
    return "composite", encoding.size, *(member_layout(member) for member in encoding.members)


def member_layout(member: Member) -> Layout:
    """Return where a member lies and how it is laid out; a constant is its value."""
    if member.presence is Presence.CONSTANT:
        return "constant", member.constant
    return member.offset, layout(member.encoding)


def meaning(encoding: Encoding) -> Layout:
    """Return the layout and all that values mean: nulls, limits, charsets, names of values, constants."""
    match encoding:
        case Scalar():
            limits = (_number(encoding.null), _number(encoding.minimum), _number(encoding.maximum))
            return *shape(encoding), *limits, charset(encoding), encoding.constant
        case Array():
            return *shape(encoding), meaning(encoding.element), charset(encoding), encoding.constant
        case Enum():
            return *shape(encoding), encoding.null, tuple(sorted(encoding.values.items()))
        case Set():
            return *shape(encoding), tuple(sorted(encoding.choices.items()))
        case Composite():
            members = ((each.name, each.offset, each.presence, meaning(each.encoding)) for each in encoding.members)
            return "composite", encoding.size, *members


def charset(encoding: Scalar | Array) -> str:
    """Return the charset of text by one name for all its aliases; empty for numbers."""
    primitive = encoding.element.primitive if isinstance(encoding, Array) else encoding.primitive
    return charset_name(encoding.charset or DEFAULT_CHARSET) if primitive is Primitive.CHAR else ""


def charset_name(name: str) -> str:
    """Return one name for all aliases of a charset."""
    known = codec(name)
    return name.lower() if known is None else codecs.lookup(known).name


def structure_layout(structure: Structure, *, named: bool) -> Layout:
    """Return the layout of a header or of dimensions.

    Args:
        named: Every member's name counts, not only those that SBE itself reads.
    """
    members = structure.composite.members
    names = (member.name if named or member.name in structure.roles else "" for member in members)
    return structure.size, *zip(names, map(member_layout, members), strict=True)


def data_layout(data: Data) -> Layout:
    """Return where length and bytes lie, and how long the length is."""
    return data.length.primitive, data.length.offset, data.length.constant, data.data_offset


def group_layout(group: Group) -> Layout:
    """Return the whole layout of a group: dimensions, block, and all that follows in an entry."""
    return (
        structure_layout(group.dimensions, named=False),
        group.block_length,
        tuple((field.offset, layout(field.encoding)) for field in wire_fields(group.fields)),
        tuple(map(group_layout, group.groups)),
        tuple(map(data_layout, group.data)),
    )


def wire_fields(fields: tuple[Field, ...]) -> list[Field]:
    """Return the fields that have bytes."""
    return [field for field in fields if field.presence is not Presence.CONSTANT]


def same(old: Any, new: Any) -> bool:
    """Tell whether two parts of schemas are equal in all they say; of whole schemas, the elements alone."""
    if type(old) is not type(new):
        return False
    if isinstance(old, float):
        return bool(_number(old) == _number(new))
    if isinstance(old, tuple):
        return len(old) == len(new) and all(map(same, old, new))
    if names := _names(old.__class__):
        return all(same(getattr(old, name), getattr(new, name)) for name in names)
    if isinstance(old, Mapping):
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    return bool(old == new)


@cache
def _names(part: type) -> tuple[str, ...]:
    """Return the names of what a part of a schema says; none when it is no part but a value."""
    if not is_dataclass(part):
        return ()
    left_out = _ASIDE if issubclass(part, Schema) else frozenset()
    return tuple(each.name for each in fields(part) if each.name not in left_out)


def _number(value: float) -> float | str:
    return "NaN" if math.isnan(value) else value
