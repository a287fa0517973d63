"""Encodes messages from values by name, in the schema's version or an older one (the reverse of decode).

Gaps between fields, padding of blocks and bytes after the end of a text are zero.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.wire.sbe.codec.blocks import field_ends, part_end
from silverfold.connectors.wire.sbe.codec.blockwriter import BlockWriter
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.packers import PackOptions, encode_text, value_fault
from silverfold.connectors.wire.sbe.codec.roles import RoleWriter
from silverfold.connectors.wire.sbe.codec.value_checks import needlessly_deprecated
from silverfold.connectors.wire.sbe.codec.values import Fault
from silverfold.connectors.wire.sbe.schema.model import Body, Data, Group, Message, Presence, Role, Schema
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS
from silverfold.connectors.wire.sbe.schema.text import codec

_NO_VALUES: Mapping[str, Any] = {}


def encode(
    schema: Schema,
    name: str,
    values: Mapping[str, Any],
    *,
    version: int | None = None,
    tolerant: bool = False,
    header: Mapping[str, Any] = _NO_VALUES,
    deprecated: Literal["allow", "warn", "refuse"] = "allow",
) -> bytes:
    """Return a complete message, including its header.

    ``values`` has the form of `decode`'s result, by name. Optional fields may be missing or None: they become null.
    Constants may be missing. Missing groups and data are empty.

    Args:
        name: The message's name.
        version: Write as this older version: newer elements are left out, and their values ignored.
        tolerant: Also write what readers accept although the schema does not: unlisted enum values and set bits, values
            outside minValue and maxValue, and null values in required fields, as `decode` returns them: None for an
            enum, the raw value for a number, empty text. None for any other required field is refused all the same.
        header: Values for header members that SBE does not define; zero by default.
        deprecated: Whether a message with anything that `value_checks.needlessly_deprecated` yields is written, written
            with a UserWarning, or refused. Other than ``allow``, this also decodes the message.

    Raises:
        InvalidValue: A value cannot be written; ``element`` is its path and ``reason`` one of ``missing``, ``type``,
            ``range``, ``constant``, ``unknown-name``, ``unknown-value``, ``null-in-required``, ``charset``,
            ``length-max``, ``count-range``, ``template-newer-than-version``, ``deprecated``.
        KeyError: The schema has no message of this name.
    """
    if deprecated not in ("allow", "warn", "refuse"):
        raise ValueError(f"deprecated is {deprecated!r}, not allow, warn or refuse")
    message = schema.messages[name]
    writer = _message_writer(schema, message, version=version, tolerant=tolerant)
    try:
        octets = writer.header(header) + writer.body.write(values)
    except Fault as fault:
        raise fault.wire_error(name, with_offset=False) from None
    found = () if deprecated == "allow" else _deprecated(schema, octets)
    if found and deprecated == "refuse":
        raise InvalidValue(f"{', '.join(found)}: deprecated", element=found[0], reason="deprecated")
    if found:
        warnings.warn(f"{', '.join(found)}: deprecated", stacklevel=2)
    return octets


def _deprecated(schema: Schema, octets: bytes) -> tuple[str, ...]:
    decoded = decode(schema, octets, text="bytes")
    return tuple(dict.fromkeys(needlessly_deprecated(decoded.message, decoded.values, decoded.header.version)))


class _MessageWriter:
    """Writes one message in one version."""

    def __init__(self, schema: Schema, message: Message, options: PackOptions) -> None:
        self.body = _BodyWriter(message, options)
        self._values = {
            "blockLength": self.body.block_length,
            "templateId": message.id,
            "schemaId": schema.id,
            "version": options.version,
            "numGroups": len(self.body.groups),
            "numVarDataFields": len(self.body.data),
        }
        composite = schema.header.composite
        self._known = frozenset(self._values)
        header_options = PackOptions(options.order, schema.version, tolerant=True)
        self._header = BlockWriter(composite.members, header_options, composite.size, lenient=True)

    def header(self, extras: Mapping[str, Any]) -> bytes:
        """Return the header's bytes."""
        return self._header.write({**extras, **self._values}, others=self._known)


def _message_writer(schema: Schema, message: Message, *, version: int | None, tolerant: bool) -> _MessageWriter:
    version = schema.version if version is None else version
    key = ("writer", message.name, version, tolerant)
    writer = schema.plans.get(key)
    if writer is None:
        if not message.since_version <= version <= schema.version:
            detail = f"version {version}, the schema has {message.since_version} to {schema.version}"
            raise InvalidValue(detail, reason="template-newer-than-version", element=message.name)
        writer = _MessageWriter(schema, message, PackOptions(schema.byte_order, version, tolerant))
        schema.plans[key] = writer
    found: _MessageWriter = writer
    return found


class _BodyWriter:
    """Writes the body of a message or an entry."""

    def __init__(self, body: Body, options: PackOptions) -> None:
        self.block_length = _block_length(body, options.version)
        self._block = BlockWriter(body.fields, options, body.block_length)
        self.groups = [_GroupWriter(group, options) for group in body.groups if group.since_version <= options.version]
        self.data = [_DataWriter(data, options) for data in body.data if data.since_version <= options.version]
        self._others = frozenset([*(group.name for group in body.groups), *(data.name for data in body.data)])

    def write(self, values: Mapping[str, Any]) -> bytes:
        """Return block, groups and data."""
        if not isinstance(values, Mapping):
            raise value_fault("type", f"{values!r} is not a mapping of values by name")
        parts = [self._block.write(values, others=self._others)[: self.block_length]]
        parts += [group.write(_entries(values, group.name)) for group in self.groups]
        parts += [data.write(values.get(data.name)) for data in self.data]
        return b"".join(parts)


def _entries(values: Mapping[str, Any], name: str) -> Iterable[Any]:
    """Return a group's entries; none if the group is missing."""
    entries = values.get(name)
    if entries is None:
        return ()
    if not isinstance(entries, Iterable) or isinstance(entries, str | bytes | Mapping):
        fault = value_fault("type", f"{entries!r} is not a list of entries")
        fault.path.append(name)
        raise fault
    return entries


def _block_length(body: Body, version: int) -> int:
    """Return the length of a block in a version: the full block, or up to the end of that version's last field."""
    wire = [field for field in body.fields if field.presence is not Presence.CONSTANT]
    newest = max((max(field.since_version, field_ends(field)[-1][0]) for field in wire), default=0)
    if newest <= version:
        return body.block_length
    return max((part_end(field, version) for field in wire if field.since_version <= version), default=0)


class _GroupWriter:
    def __init__(self, group: Group, options: PackOptions) -> None:
        self.name = group.name
        self._entry = _BodyWriter(group, options)
        self._dimensions = RoleWriter(group.dimensions, options.order)
        self._count = group.dimensions.roles["numInGroup"]

    def write(self, entries: Iterable[Mapping[str, Any]]) -> bytes:
        """Return dimensions and entries."""
        parts: list[bytes] = []
        for entry in entries:
            try:
                parts.append(self._entry.write(entry))
            except Fault as fault:
                fault.path.append(f"{self.name}[{len(parts)}]")
                raise
        try:
            return self._write_dimensions(len(parts)) + b"".join(parts)
        except Fault as fault:
            fault.path.append(self.name)
            raise

    def _write_dimensions(self, count: int) -> bytes:
        _check_size(count, self._count, "count-range", "entries")
        return self._dimensions.write(
            blockLength=self._entry.block_length,
            numInGroup=count,
            numGroups=len(self._entry.groups),
            numVarDataFields=len(self._entry.data),
        )


def _check_size(number: int, role: Role, reason: str, what: str) -> None:
    """Raise if a number exceeds the role's limits; the null value of its primitive is never written."""
    highest = min(role.maximum, int(TRAITS[role.primitive].maximum))
    if not role.minimum <= number <= highest:
        raise value_fault(reason, f"{number} {what}, allowed are {role.minimum} to {highest}")


class _DataWriter:
    def __init__(self, data: Data, options: PackOptions) -> None:
        self.name = data.name
        self._charset = data.charset
        self._codec = None if data.charset is None else codec(data.charset)
        self._role = data.length
        gap = data.data_offset - data.length.offset - data.length.size
        code = TRAITS[data.length.primitive].code
        self._length = struct.Struct(f"{options.order}{data.length.offset}x{code}{max(gap, 0)}x")

    def write(self, value: Any) -> bytes:
        """Return length and bytes; None is written as empty, since SBE has no null data."""
        try:
            raw = b"" if value is None else self._bytes(value)
            _check_size(len(raw), self._role, "length-max", "bytes")
        except Fault as fault:
            fault.path.append(self.name)
            raise
        return self._length.pack(len(raw)) + raw

    def _bytes(self, value: Any) -> bytes:
        if self._charset is not None:
            return encode_text(value, self._charset, self._codec)
        if not isinstance(value, bytes | bytearray | memoryview):
            raise value_fault("type", f"{value!r} is not bytes")
        return bytes(value)
