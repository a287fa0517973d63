"""Wire layouts of encodings, structures and groups, as values that are equal if the wire format is.

Names, descriptions and versions are left out. `meaning` adds the interpretation of the bytes.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias

from silverfold.connectors.wire.sbe.codec.skip import data_layout, known_data
from silverfold.connectors.wire.sbe.compare.findings import Profile
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Body,
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
from silverfold.connectors.wire.sbe.schema.text import DEFAULT_CHARSET, codec

_COUNTS = frozenset({"numGroups", "numVarDataFields"})


def profile_of(*schemas: Schema) -> Profile:
    """Return counted if the header and all dimensions in use count groups and data, else classic."""
    in_use = (structure for schema in schemas for structure in _structures(schema))
    return "counted" if all(structure.roles.keys() >= _COUNTS for structure in in_use) else "classic"


def _structures(schema: Schema) -> Iterator[Structure]:
    yield schema.header
    for message in schema.messages.values():
        for group in _groups(message):
            yield group.dimensions


def _groups(body: Body) -> Iterator[Group]:
    for group in body.groups:
        yield group
        yield from _groups(group)


def can_skip_group(group: Group, reader: Schema) -> bool:
    """Return whether readers of a schema find the end of a group that it lacks, given counted messages."""
    default = reader.default_dimensions
    if default is None or structure_layout(default, named=False) != structure_layout(group.dimensions, named=False):
        return False
    nested = all(can_skip_group(each, reader) for each in group.groups)
    return nested and all(can_skip_data(each, reader) for each in group.data)


def can_skip_data(data: Data, reader: Schema) -> bool:
    """Return whether readers of a schema find the end of data that it lacks: `codec.skip` decides alike."""
    return {data_layout(each) for each in known_data(reader)} == {data_layout(data)}


def is_misread_group(group: Group, reader: Schema) -> bool:
    """Return whether readers of a schema take a counted group that it lacks for one of another layout.

    They leave it over at the end of a message if they know of no layout.
    """
    default = reader.default_dimensions
    if default is None:
        return False
    if structure_layout(default, named=False) != structure_layout(group.dimensions, named=False):
        return True
    nested = any(is_misread_group(each, reader) for each in group.groups)
    return nested or any(is_misread_data(each, reader) for each in group.data)


def is_misread_data(data: Data, reader: Schema) -> bool:
    """Return the same for data: readers assume the one layout that all data of their schema share."""
    return len({data_layout(each) for each in known_data(reader)}) == 1 and not can_skip_data(data, reader)


Layout: TypeAlias = tuple[object, ...]

_IGNORED = frozenset({"file", "warnings", "plans", "version", "description", "semantic_version"})


def kind(encoding: Encoding) -> str:
    """Return the kind of an encoding: scalar, array, enum, set or composite."""
    return type(encoding).__name__.lower()


def shape(encoding: Encoding) -> Layout:
    """Return kind, primitive and count; for a composite only the kind."""
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
    """Return the complete layout, including members of composites."""
    if not isinstance(encoding, Composite):
        return shape(encoding)
    return "composite", encoding.size, *(member_layout(member) for member in encoding.members)


def member_layout(member: Member) -> Layout:
    """Return offset and layout of a member; for a constant its value."""
    if member.presence is Presence.CONSTANT:
        return "constant", _number(member.constant)
    return member.offset, layout(member.encoding)


def meaning(encoding: Encoding) -> Layout:
    """Return the layout with the interpretation of values: nulls, limits, charsets, names of values, constants."""
    match encoding:
        case Scalar():
            limits = (_number(encoding.null), _number(encoding.minimum), _number(encoding.maximum))
            return *shape(encoding), *limits, charset(encoding), _number(encoding.constant)
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
    """Return the canonical charset of text; empty for numbers."""
    primitive = encoding.element.primitive if isinstance(encoding, Array) else encoding.primitive
    return charset_name(encoding.charset or DEFAULT_CHARSET) if primitive is Primitive.CHAR else ""


def charset_name(name: str) -> str:
    """Return the canonical name for all aliases of a charset."""
    known = codec(name)
    return name.lower() if known is None else codecs.lookup(known).name


def structure_layout(structure: Structure, *, named: bool) -> Layout:
    """Return the layout of a header or of dimensions.

    Args:
        named: Include the names of all members, not only of those that SBE itself reads.
    """
    members = structure.composite.members
    names = (member.name if named or member.name in structure.roles else "" for member in members)
    return structure.size, *zip(names, map(member_layout, members), strict=True)


def group_layout(group: Group) -> Layout:
    """Return the complete layout of a group: dimensions, block, and the nested parts of an entry."""
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
    """Return whether two parts of schemas are equal in every attribute; for schemas, only the elements count."""
    if type(old) is not type(new):
        return False
    if isinstance(old, float):
        return _number(old) == _number(new)
    if isinstance(old, tuple):
        return len(old) == len(new) and all(map(same, old, new))
    if names := _names(old.__class__):
        return all(same(getattr(old, name), getattr(new, name)) for name in names)
    if isinstance(old, Mapping):
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    return bool(old == new)


@cache
def _names(part: type) -> tuple[str, ...]:
    """Return the compared attributes of a part of a schema; empty if the type is a plain value."""
    if not is_dataclass(part):
        return ()
    left_out = _IGNORED if issubclass(part, Schema) else frozenset()
    return tuple(each.name for each in fields(part) if each.compare and each.name not in left_out)


def _number(value: float | str | None) -> float | str | None:
    """Return a number in a form that is equal to itself, as NaN is not; anything else as it is."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
