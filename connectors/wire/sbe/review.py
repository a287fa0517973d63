"""Looks through decoded values for what the schema does not expect. Costs time only where it is asked for.

The same finding for many entries of a group is told once: elements are named without their index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from connectors.wire.sbe.blocks import null_test
from connectors.wire.sbe.model import Array, Body, Composite, Encoding, Enum, Message, Presence, Scalar, Set
from connectors.wire.sbe.primitives import FLOATS
from connectors.wire.sbe.values import Finding, SetValue


class _Leaf(NamedTuple):
    element: str
    encoding: Encoding
    presence: Presence
    deprecated: int | None
    value: Any


def review_values(message: Message, values: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return what is odd about the values of a decoded message; they stay as they are.

    Reasons: ``null-in-required``, ``out-of-range`` (below minValue or above maxValue), ``unknown-value`` (of an
    enum), ``unknown-bits`` (of a set), ``deprecated``.
    """
    found: dict[tuple[str, str], Finding] = {}
    for leaf in _leaves(message, values, message.name):
        for reason, detail in _odd(leaf):
            found.setdefault((reason, leaf.element), Finding(reason, leaf.element, detail))
    return tuple(found.values())


def newer_values(message: Message, values: Mapping[str, Any], version: int) -> Iterator[tuple[str, str]]:
    """Yield element and detail of each enum value and set bit that the acting version does not have yet."""
    for leaf in _leaves(message, values, message.name):
        if isinstance(leaf.encoding, Enum | Set):
            for name, since in _versions(leaf.encoding, leaf.value):
                if since > version:
                    yield leaf.element, f"{name} exists since version {since}, the message is of version {version}"


def _leaves(body: Body, values: Mapping[str, Any], path: str) -> Iterator[_Leaf]:
    for field in body.fields:
        if field.name in values:
            element = f"{path}.{field.name}"
            leaf = _Leaf(element, field.encoding, field.presence, field.deprecated, values[field.name])
            yield from _inside(leaf)
    for group in body.groups:
        for entry in values.get(group.name, ()):
            yield from _leaves(group, entry, f"{path}.{group.name}")


def _inside(leaf: _Leaf) -> Iterator[_Leaf]:
    """Yield a leaf, or those inside a composite, whose first member may be null if the composite may."""
    if not isinstance(leaf.encoding, Composite):
        yield leaf
        return
    nullable = leaf.presence is Presence.OPTIONAL
    for member in leaf.encoding.members:
        presence = Presence.OPTIONAL if nullable and member.presence is Presence.REQUIRED else member.presence
        nullable = nullable and member.presence is Presence.CONSTANT
        if member.name in leaf.value:
            element, deprecated = f"{leaf.element}.{member.name}", member.deprecated or leaf.deprecated
            yield from _inside(_Leaf(element, member.encoding, presence, deprecated, leaf.value[member.name]))


def _odd(leaf: _Leaf) -> Iterator[tuple[str, str]]:
    if leaf.deprecated is not None:
        yield "deprecated", f"deprecated since version {leaf.deprecated}"
    if leaf.presence is Presence.CONSTANT:
        return
    match leaf.encoding:
        case Scalar():
            yield from _odd_number(leaf.encoding, leaf.value, leaf.presence)
        case Array(element=element):
            if isinstance(leaf.value, list):
                for number in leaf.value:
                    yield from _odd_number(element, number, leaf.presence)
        case Enum():
            if leaf.value is None and leaf.presence is Presence.REQUIRED:
                yield "null-in-required", f"the null value {leaf.encoding.null}"
            elif leaf.value is not None and leaf.value not in leaf.encoding.values.values():
                yield "unknown-value", f"{leaf.value!r} is not a value of {leaf.encoding.name}"
        case Set():
            if leaf.value.unknown:
                yield "unknown-bits", f"{leaf.value.unknown:#x} are no choices of {leaf.encoding.name}"


def _odd_number(scalar: Scalar, value: Any, presence: Presence) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        value = ord(value) if len(value) == 1 else scalar.null
    if value is None or isinstance(value, bytes):
        return
    if scalar.primitive not in FLOATS and null_test(scalar)(value):
        if presence is Presence.REQUIRED:
            yield "null-in-required", f"the null value {scalar.null}"
    elif value == value and not scalar.minimum <= value <= scalar.maximum:  # noqa: PLR0124 (NaN is a value)
        yield "out-of-range", f"{value!r} is not from {scalar.minimum} to {scalar.maximum}"


def _versions(encoding: Enum | Set, value: Any) -> Iterator[tuple[str, int]]:
    """Yield the names in the value that have a version."""
    known = encoding.values if isinstance(encoding, Enum) else encoding.choices
    present = set(value.names) if isinstance(value, SetValue) else {value}
    for raw, since in encoding.versions.items():
        if known[raw] in present:
            yield known[raw], since
