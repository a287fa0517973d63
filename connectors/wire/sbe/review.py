"""Looks through decoded values for what the schema does not expect. Costs time only where it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from connectors.wire.sbe.model import Body, Composite, Encoding, Enum, Set
from connectors.wire.sbe.values import SetValue


def newer_values(body: Body, values: Mapping[str, Any], version: int, *, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield element and detail of each enum value and set bit that the acting version does not have yet."""
    path = path or body.name
    for field in body.fields:
        if field.name in values:
            yield from _newer(field.encoding, values[field.name], version, f"{path}.{field.name}")
    for group in body.groups:
        for entry in values.get(group.name, ()):
            yield from newer_values(group, entry, version, path=f"{path}.{group.name}")


def _newer(encoding: Encoding, value: Any, version: int, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(encoding, Composite):
        for member in encoding.members:
            if member.name in value:
                yield from _newer(member.encoding, value[member.name], version, f"{path}.{member.name}")
    elif isinstance(encoding, Enum | Set):
        for name, since in _names(encoding, value):
            if since > version:
                yield path, f"{name} exists since version {since}, the message is of version {version}"


def _names(encoding: Enum | Set, value: Any) -> Iterator[tuple[str, int]]:
    """Yield the names in the value that have a version."""
    known = encoding.values if isinstance(encoding, Enum) else encoding.choices
    present = set(value.names) if isinstance(value, SetValue) else {value}
    for raw, since in encoding.versions.items():
        if known[raw] in present:
            yield known[raw], since
