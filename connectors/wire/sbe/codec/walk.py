"""Locates the parts after a block, without decoding them to values: a group's entries, the bytes of data.

Every count and length is checked against the bytes before use. Offsets are in bytes from the first byte of the message.
"""

from __future__ import annotations

from typing import NamedTuple

from silverfold.conf.errors import InvalidValue, TruncatedMessage
from silverfold.connectors.wire.sbe.codec.roles import RoleReader
from silverfold.connectors.wire.sbe.codec.values import Fault
from silverfold.connectors.wire.sbe.schema.model import Buffer, ByteOrder, Composite, Data, Group, Schema, Structure

MAX_EMPTY_ENTRIES = 65_536
"""Most entries of no bytes to accept in one message: its size does not bound their number."""

_COUNTS = ("numGroups", "numVarDataFields")
_new = tuple.__new__


class Dimensions(NamedTuple):
    """Location of a group's entries."""

    block_length: int
    """Block length in the message: the size of an entry up to its nested parts, and the stride of a flat group."""
    entries: int
    start: int
    """Offset of the first entry."""
    groups: int | None = None
    """Nested groups per entry, if the message carries the count."""
    data: int | None = None
    """Data per entry, if the message carries the count."""


class DimensionsReader:
    """Reads and checks the dimensions of one kind of group."""

    def __init__(self, structure: Structure, order: ByteOrder) -> None:
        names = ["blockLength", "numInGroup", *(name for name in _COUNTS if name in structure.roles)]
        self._reader = RoleReader(structure, names, order)
        self._without_counts = len(names) == 2
        self._names = names
        self._minimum, self._maximum = structure.roles["numInGroup"].minimum, structure.roles["numInGroup"].maximum

    def read(self, body: Buffer, offset: int) -> Dimensions:
        """Return the dimensions at ``offset``. Raises `Fault` if they, or the blocks they announce, do not fit."""
        start = offset + self._reader.size
        left = len(body) - start
        if left < 0:
            detail = f"dimensions need {self._reader.size} bytes, {len(body) - offset} are left"
            raise Fault(TruncatedMessage, "truncated", detail, offset)
        values = self._reader.read(body, offset)
        block_length, count = values[0], values[1]
        if block_length * count > left:
            detail = f"{count} entries of {block_length} bytes announced, {left} bytes left"
            raise Fault(InvalidValue, "count-range", detail, offset)
        if not self._minimum <= count <= self._maximum:
            detail = f"{count} entries, allowed are {self._minimum} to {self._maximum}"
            raise Fault(InvalidValue, "count-range", detail, offset)
        if self._without_counts:
            return _new(Dimensions, (block_length, count, start, None, None))
        named = dict(zip(self._names, values, strict=True))
        return Dimensions(block_length, count, start, named.get(_COUNTS[0]), named.get(_COUNTS[1]))


class LengthReader:
    """Locates the bytes of one data element."""

    def __init__(self, data: Data, order: ByteOrder) -> None:
        role = data.length
        composite = Composite("length", role.offset + role.size, ())
        self._reader = RoleReader(Structure("length", composite.size, {"length": role}, composite), ["length"], order)
        self._minimum, self._maximum = role.minimum, role.maximum
        self._data_offset = data.data_offset

    def read(self, body: Buffer, offset: int) -> tuple[int, int]:
        """Return the offsets where the bytes begin and end. Raises `Fault` if they do not fit."""
        left = len(body) - offset
        if left < self._reader.size:
            detail = f"length needs {self._reader.size} bytes, {left} are left"
            raise Fault(TruncatedMessage, "truncated", detail, offset)
        (length,) = self._reader.read(body, offset)
        if not self._minimum <= length <= self._maximum:
            detail = f"length {length}, allowed are {self._minimum} to {self._maximum}"
            raise Fault(InvalidValue, "length-max", detail, offset)
        start = offset + self._data_offset
        if start + length > len(body):
            detail = f"length {length}, {max(len(body) - start, 0)} bytes are left"
            raise Fault(TruncatedMessage, "truncated", detail, offset)
        return start, start + length


def read_dimensions(schema: Schema, group: Group, body: Buffer, offset: int) -> Dimensions:
    """Return the location of the entries of the group whose dimensions are at ``offset``.

    Do not call it for a group that is newer than the message's version: it has no dimensions there.

    Raises:
        TruncatedMessage: The dimensions do not fit.
        InvalidValue: ``count-range``: more entries than the schema allows or than the remaining bytes can hold; or, in
            a flat group, more than `MAX_EMPTY_ENTRIES` of no bytes.
    """
    key = ("dimensions", group.dimensions.name)
    reader = schema.plans.get(key)
    if reader is None:
        reader = schema.plans[key] = DimensionsReader(group.dimensions, schema.byte_order)
    try:
        dimensions: Dimensions = reader.read(body, offset)
    except Fault as fault:
        raise fault.wire_error(group.name) from None
    flat = not group.groups and not group.data
    if flat and not dimensions.block_length and dimensions.entries > MAX_EMPTY_ENTRIES:
        detail = f"{dimensions.entries} entries of no bytes, allowed are {MAX_EMPTY_ENTRIES}"
        raise InvalidValue(detail, offset=offset, reason="count-range", element=group.name)
    return dimensions


def read_data(schema: Schema, data: Data, body: Buffer, offset: int) -> tuple[int, int]:
    """Return the offsets where the bytes of the data element at ``offset`` begin and end.

    The next element begins at the end.

    Raises:
        TruncatedMessage: The length or the bytes do not fit.
        InvalidValue: ``length-max``: the length is above its limit, or null.
    """
    key = ("length", data.length, data.data_offset)
    reader = schema.plans.get(key)
    if reader is None:
        reader = schema.plans[key] = LengthReader(data, schema.byte_order)
    try:
        span: tuple[int, int] = reader.read(body, offset)
    except Fault as fault:
        raise fault.wire_error(data.name) from None
    return span
