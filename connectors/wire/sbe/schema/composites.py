"""Resolves composites: consecutive members, at their declared offsets (SBE 1.0, section 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from silverfold.connectors.wire.sbe.schema.document import MAX_DEPTH, Element
from silverfold.connectors.wire.sbe.schema.model import Array, Composite, Encoding, Enum, Member, Presence, Scalar, Set
from silverfold.connectors.wire.sbe.schema.simple import presence_of, remarks_of

if TYPE_CHECKING:  # circular: members may be named encodings
    from silverfold.connectors.wire.sbe.schema.encodings import Encodings

_MAX_PARTS = 4096
"""Most values in one composite, nested ones included: composites that refer to composites grow exponentially."""
_MEMBERS = frozenset({"type", "enum", "set", "composite", "ref"})


def resolve_composite(element: Element, encodings: Encodings) -> Composite | None:
    """Return the layout of a ``composite`` element; members that cannot be resolved are left out."""
    members = _members(element, encodings)
    if max((_depth(member.encoding) for member in members), default=0) >= MAX_DEPTH:
        encodings.report_too_deep(f"composite {element.name}", element)
        return None
    if sum(_parts(member.encoding) for member in members) > _MAX_PARTS:
        encodings.report.error("E12", element, f"composite {element.name} has more than {_MAX_PARTS} values")
        return None
    return Composite(
        name=element.name,
        size=members[-1].offset + wire_size(members[-1]) if members else 0,
        members=tuple(members),
        since_version=encodings.report.number(element, "sinceVersion"),
        presence=presence_of(element, encodings.report) or Presence.REQUIRED,
        remarks=remarks_of(element, encodings.report),
    )


def _parts(encoding: Encoding) -> int:
    return 1 + sum(_parts(member.encoding) for member in encoding.members) if isinstance(encoding, Composite) else 1


def _depth(encoding: Encoding) -> int:
    if not isinstance(encoding, Composite):
        return 0
    return 1 + max((_depth(member.encoding) for member in encoding.members), default=0)


def _members(element: Element, encodings: Encodings) -> list[Member]:
    """Return the members, each at its declared offset or at the end of the previous member."""
    report = encodings.report
    members: list[Member] = []
    names = set[str]()
    cursor = 0
    for child in element.children:
        if child.tag not in _MEMBERS:
            continue
        if child.name in names:
            report.error("E12", child, f"composite {element.name} has two members called {child.name}")
        encoding = encodings.named(child.get("type") or "", child) if child.tag == "ref" else encodings.resolve(child)
        if encoding is None:
            continue
        offset = _offset(child, encodings, cursor)
        if offset < cursor:
            report.error("E12", child, f"{child.name} begins at {offset}, before the end of the last member, {cursor}")
        member = _member(child, max(offset, cursor), encoding, encodings)
        members.append(member)
        names.add(child.name)
        cursor = member.offset + wire_size(member)
    return members


def _offset(child: Element, encodings: Encodings, cursor: int) -> int:
    """Return a member's declared offset, else ``cursor``; a ref without an offset takes that of the definition."""
    offset = encodings.report.given(child, "offset")
    if offset is None and child.tag == "ref":
        definition = encodings.definition(child.get("type") or "")
        offset = None if definition is None else encodings.report.given(definition, "offset")
    return cursor if offset is None else offset


def _member(child: Element, offset: int, encoding: Encoding, encodings: Encodings) -> Member:
    report = encodings.report
    value = constant(encoding)
    if value is None and presence(encoding) is Presence.CONSTANT:
        report.error("E10" if isinstance(encoding, Enum) else "E09", child, f"constant {child.name} has no value")
    return Member(
        name=child.name,
        offset=offset,
        encoding=encoding,
        presence=presence(encoding),
        constant=value,
        since_version=max(report.number(child, "sinceVersion"), encoding.since_version),
        deprecated=report.given(child, "deprecated"),
        referred=child.tag == "ref",
        description=child.get("description"),
    )


def presence(encoding: Encoding) -> Presence:
    """Return the presence that an encoding itself declares."""
    return Presence.REQUIRED if isinstance(encoding, Set) else encoding.presence


def constant(encoding: Encoding) -> int | float | str | None:
    """Return the value of a constant encoding; None if it is not constant."""
    return encoding.constant if isinstance(encoding, Scalar | Array) else None


def wire_size(member: Member) -> int:
    """Return the size of a member in its composite: 0 if it is constant."""
    return 0 if member.presence is Presence.CONSTANT else member.encoding.size


def is_variable(encoding: Encoding) -> bool:
    """Return whether an encoding has no fixed size: an array of length 0, or a composite that contains one."""
    if isinstance(encoding, Composite):
        return any(is_variable(member.encoding) for member in encoding.members)
    return isinstance(encoding, Array) and encoding.count == 0
