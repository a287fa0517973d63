"""Says what differs between two schemas in a few lines, for logs: versions, and elements that came, went or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conf.errors import SchemaError
from connectors.wire.sbe.model import Body, Schema
from connectors.wire.sbe.schema import load_schema

_MOST = 50
"""Lines that are told one by one."""


def what_changed(before: bytes, now: Schema) -> list[str]:
    """Return what a schema has that an earlier one had not, and the reverse; elements by their paths.

    Args:
        before: The earlier one's XML. If it cannot be read alone, as when it includes files, that is all that is said.
    """
    try:
        old = load_schema(before, file="the last schema")
    except SchemaError as error:
        return [f"the last schema cannot be compared: {error.detail}"]
    lines = [] if old.version == now.version else [f"version {old.version} became {now.version}"]
    had, has = dict(_elements(old)), dict(_elements(now))
    lines += [f"{path} is new" for path in has.keys() - had.keys()]
    lines += [f"{path} is gone" for path in had.keys() - has.keys()]
    lines += [f"{path} is another" for path in had.keys() & has.keys() if had[path] != has[path]]
    told = sorted(lines)
    return told if len(told) <= _MOST else [*told[:_MOST], f"and {len(told) - _MOST} more"]


def _elements(schema: Schema) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for message in schema.messages.values():
        found[message.name] = message.id
        _add(found, message, message.name)
    return found


def _add(found: dict[str, Any], body: Body, path: str) -> None:
    for part in (body.fields, body.data):
        found.update({f"{path}.{each.name}": each for each in part})
    for group in body.groups:
        found[f"{path}.{group.name}"] = group.dimensions
        _add(found, group, f"{path}.{group.name}")
