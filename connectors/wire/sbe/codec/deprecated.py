"""Finds deprecated enum values and set choices in messages, at little cost.

A message is read only as far as they can occur, and not at all once all those of its template have been seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from silverfold.conf.errors import WireError
from silverfold.connectors.wire.sbe.codec.decode import MessageReader
from silverfold.connectors.wire.sbe.codec.value_checks import deprecated_values
from silverfold.connectors.wire.sbe.schema.model import (
    Body,
    Buffer,
    Composite,
    Encoding,
    Enum,
    Field,
    Group,
    Message,
    Presence,
    Schema,
    Set,
)


class DeprecatedValues:
    """The deprecated values and choices that have not been seen yet, by template.

    Args:
        reported: Paths of those already reported, such as ``Order.side.Sell``.
    """

    def __init__(self, schema: Schema, reported: Collection[str]) -> None:
        possible = {message.name: set(_body_paths(message, message.name)) for message in schema.messages.values()}
        self._left = {name: paths.difference(reported) for name, paths in possible.items()}
        messages = [_prune_message(message) for message in schema.messages.values() if self._left[message.name]]
        self._reader = MessageReader(
            replace(
                schema,
                messages={message.name: message for message in messages},
                templates={message.id: message for message in messages},
            ),
            text="bytes",
        )

    def find_new(self, message: str, body: Buffer) -> list[str]:
        """Return the paths that occur in a message for the first time, if deprecated in the message's version.

        A message that cannot be read has none.
        """
        left = self._left[message]
        if not left:
            return []
        try:
            decoded = self._reader.read(body)
        except WireError:
            return []
        present = dict.fromkeys(deprecated_values(decoded.message, decoded.values, decoded.header.version))
        new = [path for path in present if path in left]
        left.difference_update(new)
        return new


def _body_paths(body: Body, path: str) -> Iterator[str]:
    for field in body.fields:
        yield from _field_paths(field, path)
    for group in body.groups:
        yield from _body_paths(group, f"{path}.{group.name}")


def _field_paths(field: Field, path: str) -> Iterator[str]:
    if field.presence is not Presence.CONSTANT:
        yield from _encoding_paths(field.encoding, f"{path}.{field.name}")


def _encoding_paths(encoding: Encoding, path: str) -> Iterator[str]:
    match encoding:
        case Composite():
            for member in encoding.members:
                yield from _encoding_paths(member.encoding, f"{path}.{member.name}")
        case Enum():
            yield from (f"{path}.{encoding.values[raw]}" for raw in encoding.deprecated_values)
        case Set():
            yield from (f"{path}.{encoding.choices[bit]}" for bit in encoding.deprecated_values)


def _prune_message(message: Message) -> Message:
    """Return a message without fields that cannot have any, and without the parts after the last group that can."""
    groups = message.groups
    while groups and not any(_body_paths(groups[-1], "")):
        groups = groups[:-1]
    return replace(message, fields=_prune_fields(message), groups=tuple(map(_prune_group, groups)), data=())


def _prune_group(group: Group) -> Group:
    """Return a group without fields that cannot have any; its nested groups and data are still needed for skipping."""
    return replace(group, fields=_prune_fields(group), groups=tuple(map(_prune_group, group.groups)))


def _prune_fields(body: Body) -> tuple[Field, ...]:
    return tuple(field for field in body.fields if any(_field_paths(field, "")))
