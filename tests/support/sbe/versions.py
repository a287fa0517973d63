"""Reduces message values and schema XML to an older version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from silverfold.connectors.wire.sbe.schema.model import Body, Composite, Encoding, Enum, Presence, Primitive

_Ages = Mapping[str, int]


def known_at(body: Body, values: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return the values of a message that exist in a version, by the effective sinceVersion of each element."""
    known = {
        field.name: _members_at(field.encoding, values[field.name], version)
        for field in body.fields
        if field.since_version <= version
    }
    for group in body.groups:
        if group.since_version <= version:
            known[group.name] = [known_at(group, entry, version) for entry in values[group.name]]
    return known | {data.name: values[data.name] for data in body.data if data.since_version <= version}


def _members_at(encoding: Encoding, value: Any, version: int) -> Any:
    if not isinstance(encoding, Composite):
        return value
    return {
        member.name: _members_at(member.encoding, value[member.name], version)
        for member in encoding.members
        if member.since_version <= version
    }


def as_shown_by(older: Body, newer: Body, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of a newer schema as an older one decodes them: enum values unknown to it are raw."""
    shown = {}
    for field in older.fields:
        new = newer.field(field.name)
        value = values[field.name]
        shown[field.name] = value if new.presence is Presence.CONSTANT else _shown(field.encoding, new.encoding, value)
    for group in older.groups:
        new_group = newer.group(group.name)
        shown[group.name] = [as_shown_by(group, new_group, entry) for entry in values[group.name]]
    return shown | {data.name: values[data.name] for data in older.data}


def _shown(older: Encoding, newer: Encoding, value: Any) -> Any:
    if isinstance(older, Composite) and isinstance(newer, Composite):
        return {
            member.name: _shown(member.encoding, newer.member(member.name).encoding, value[member.name])
            for member in older.members
        }
    if not (isinstance(older, Enum) and isinstance(newer, Enum)) or value is None or value in older.values.values():
        return value
    raw = newer.raw(value)
    return chr(raw) if newer.encoding.primitive is Primitive.CHAR else raw


def cut_down(xml: bytes, version: int) -> bytes:
    """Return the schema as of an older version: its number changed, and all newer elements removed.

    Elements lose their namespace, since the writer would put prefixes in places where no publisher does.
    """
    root = ElementTree.fromstring(xml)
    for element in root.iter():
        element.tag = _tag(element)
    definitions = [definition for types in root if _tag(types) == "types" for definition in types]
    ages = {definition.get("name", ""): _own(definition) for definition in definitions}
    root.set("version", str(version))
    _drop_newer(root, version, ages)
    return ElementTree.tostring(root)


def _drop_newer(element: ElementTree.Element, version: int, ages: _Ages) -> None:
    for child in list(element):
        if _age(child, ages) > version:
            element.remove(child)
        else:
            if int(child.get("deprecated", 0)) > version:
                del child.attrib["deprecated"]
            _drop_newer(child, version, ages)


def _age(element: ElementTree.Element, ages: _Ages) -> int:
    """Return the effective sinceVersion: the type's counts too; a group without one is as old as its oldest part."""
    if _tag(element) == "group" and element.get("sinceVersion") is None:
        return min((_age(part, ages) for part in element), default=0)
    return max(_own(element), ages.get(element.get("type", ""), 0))


def _own(element: ElementTree.Element) -> int:
    return int(element.get("sinceVersion", 0))


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
