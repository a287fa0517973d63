"""Random edits of an SBE schema's XML, for properties that hold for any two schemas.

Most edits give valid XML, and many give incompatible evolution. Callers discard schemas that do not load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as ET

import hypothesis.strategies as st

TYPES = ["uint8", "uint16", "int16", "uint32", "int32", "uint64", "double", "Tag", "Px", "Pair", "Seven", "Limited"]
PRIMITIVES = ["uint8", "int8", "uint16", "int16", "uint32", "int32"]
LENGTHS = ["uint8", "uint16"]
MEMBERS = ("field", "group", "data")


@dataclass
class Edited:
    """A schema being edited."""

    root: ET.Element
    draw: Callable[[st.SearchStrategy[Any]], Any]
    renamed: dict[str, str] = field(default_factory=dict)
    fresh: int = 0

    def pick(self, elements: Sequence[ET.Element]) -> ET.Element | None:
        return self.draw(st.sampled_from(elements)) if elements else None

    def all(self, *tags: str) -> list[ET.Element]:
        return [element for element in self.root.iter() if element.tag in tags]

    def name(self) -> str:
        self.fresh += 1
        return f"fresh{self.fresh}"

    def parent(self, child: ET.Element) -> ET.Element:
        return next(element for element in self.root.iter() if child in list(element))


def edit(base: str, draw: Callable[[st.SearchStrategy[Any]], Any], count: int) -> tuple[str, dict[str, str]]:
    """Return the schema after some edits, as version 2, and the renames: old name → new name."""
    root = ET.fromstring(base)
    root.set("version", "2")
    edited = Edited(root, draw)
    for _ in range(count):
        draw(st.sampled_from(EDITS))(edited)
    return ET.tostring(root, encoding="unicode"), edited.renamed


def _remove(edited: Edited) -> None:
    element = edited.pick(edited.all(*MEMBERS, "validValue", "choice", "message"))
    if element is not None:
        edited.parent(element).remove(element)


def _new_member(edited: Edited, kind: str) -> ET.Element:
    name = edited.name()
    element = ET.Element(kind, name=name, id=str(100 + edited.fresh))
    since = edited.draw(st.sampled_from(["", "1", "2", "2", "2"]))
    if since:
        element.set("sinceVersion", since)
    if kind == "field":
        element.set("type", edited.draw(st.sampled_from(TYPES)))
    elif kind == "data":
        element.set("type", edited.draw(st.sampled_from(["varText", "varBytes"])))
    else:
        child = ET.SubElement(element, "field", name=edited.name(), id="1", type=edited.draw(st.sampled_from(TYPES)))
        if edited.draw(st.booleans()):
            child.set("sinceVersion", "2")
    return element


def _insert(edited: Edited) -> None:
    body = edited.pick(edited.all("message", "group"))
    if body is None:
        return
    kind = edited.draw(st.sampled_from(MEMBERS))
    kinds = [child.tag for child in body]
    first = next((place for place, tag in enumerate(kinds) if MEMBERS.index(tag) >= MEMBERS.index(kind)), len(kinds))
    last = next((place for place, tag in enumerate(kinds) if MEMBERS.index(tag) > MEMBERS.index(kind)), len(kinds))
    at_end = edited.draw(st.booleans())
    body.insert(last if at_end else edited.draw(st.integers(first, last)), _new_member(edited, kind))


def _swap(edited: Edited) -> None:
    one = edited.pick(edited.all(*MEMBERS))
    if one is not None:
        parent = edited.parent(one)
        other = edited.pick([child for child in parent if child.tag == one.tag])
        places = list(parent)
        here, there = places.index(one), places.index(other)
        parent[here], parent[there] = other, one


def _rename(edited: Edited) -> None:
    element = edited.pick(edited.all(*MEMBERS, "message", "validValue", "choice"))
    if element is not None and not element.get("name", "").startswith(("fresh", "renamed")):
        name = f"renamed{element.get('name')}"
        edited.renamed[element.get("name", "")] = name
        element.set("name", name)


def _version(edited: Edited) -> None:
    element = edited.pick(edited.all(*MEMBERS, "message", "type", "validValue", "choice", "composite"))
    if element is not None:
        attribute = edited.draw(st.sampled_from(["sinceVersion", "sinceVersion", "deprecated"]))
        element.set(attribute, edited.draw(st.sampled_from(["1", "2"])))


def _retype(edited: Edited) -> None:
    element = edited.pick([each for each in edited.all("field") if each.get("type") not in {"Side", "Level", "Flags"}])
    if element is not None:
        element.set("type", edited.draw(st.sampled_from(TYPES)))


def _place(edited: Edited) -> None:
    element = edited.pick(edited.all("field", "message", "group"))
    if element is not None:
        name = "offset" if element.tag == "field" else "blockLength"
        element.set(name, str(edited.draw(st.integers(0, 40))))


def _presence(edited: Edited) -> None:
    element = edited.pick(edited.all("field"))
    if element is not None:
        element.set("presence", edited.draw(st.sampled_from(["optional", "required"])))


def _define(edited: Edited) -> None:
    """Change the definition of a widely used encoding."""
    element = edited.pick(edited.all("type", "enum", "set"))
    if element is None:
        return
    match element.tag:
        case "enum" | "set":
            element.set("encodingType", edited.draw(st.sampled_from(["uint8", "uint16", "char"])))
        case _ if element.get("name") in {"length", "numInGroup", "blockLength"}:
            element.set("primitiveType", edited.draw(st.sampled_from(LENGTHS)))
        case _:
            name, values = edited.draw(st.sampled_from(_DEFINITIONS))
            element.set(name, edited.draw(st.sampled_from(values)))


_DEFINITIONS: list[tuple[str, list[str]]] = [
    ("primitiveType", PRIMITIVES),
    ("length", ["1", "2", "8", "9"]),
    ("nullValue", ["0"]),
    ("characterEncoding", ["UTF-8", "US-ASCII", "ISO-8859-1"]),
    ("maxValue", ["60", "90"]),
    ("description", ["new"]),
]


def _member(edited: Edited) -> None:
    """Add, remove or move a member of a composite."""
    composite = edited.pick([each for each in edited.all("composite") if each.get("name") in {"Px", "Pair"}])
    if composite is None:
        return
    match edited.draw(st.sampled_from(["add", "remove", "move"])):
        case "add":
            member = ET.Element("type", name=edited.name(), primitiveType=edited.draw(st.sampled_from(PRIMITIVES)))
            if edited.draw(st.booleans()):
                member.set("sinceVersion", "2")
            composite.insert(edited.draw(st.integers(0, len(composite))), member)
        case "remove" if len(composite) > 1:
            composite.remove(edited.draw(st.sampled_from(list(composite))))
        case _ if len(composite):
            edited.draw(st.sampled_from(list(composite))).set("offset", str(edited.draw(st.integers(0, 16))))


def _value(edited: Edited) -> None:
    """Add a value to an enum or a choice to a set, or renumber one."""
    parent = edited.pick(edited.all("enum", "set"))
    if parent is None:
        return
    tag = "validValue" if parent.tag == "enum" else "choice"
    number = edited.draw(
        st.sampled_from(["B", "S", "X"] if parent.get("encodingType") == "char" else ["0", "1", "2", "5"])
    )
    known = edited.pick(list(parent))
    if known is not None and edited.draw(st.booleans()):
        known.text = number
        return
    element = ET.SubElement(parent, tag, name=edited.name())
    element.text = number
    if edited.draw(st.booleans()):
        element.set("sinceVersion", "2")


EDITS = [
    _remove,
    _insert,
    _insert,
    _insert,
    _swap,
    _rename,
    _version,
    _retype,
    _place,
    _presence,
    _define,
    _member,
    _value,
]
