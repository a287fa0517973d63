"""The parts after a block: groups with their entries, and variable-length data, bound to one schema.

::

    group = dimensions, then per entry: block, nested groups, data
    data  = length, bytes

Parsing uses `connectors.wire.sbe.codec.walk`, which checks every count and length against the bytes. Entries of varying
size are walked part by part; `connectors.deephaven.protocol.columns.values` has the fast paths.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from silverfold.conf.errors import InvalidValue, SchemaError, TruncatedMessage
from silverfold.connectors.deephaven.protocol.layouts import Blocks, Ints, Number, integer_code, structure_ints
from silverfold.connectors.wire.sbe.codec.walk import Dimensions, read_data, read_dimensions
from silverfold.connectors.wire.sbe.schema.model import Body, Data, Group, Schema
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS


class OpenMessage(NamedTuple):
    """A message being read: its bytes from the header on, its acting version, and its schema."""

    schema: Schema
    body: bytes
    version: int


TextErrors: TypeAlias = Literal["strict", "replace"]
"""Invalid text raises, or has its invalid parts replaced by U+FFFD."""


@dataclass(frozen=True)
class Text:
    """Variable-length data that holds text or bytes."""

    found: Data
    length: Number
    format: str
    """`struct` format of the length."""
    codec: str
    """UTF-8 where the schema names no charset."""
    errors: TextErrors = "strict"
    """How `decode` handles invalid bytes: raises, or replaces them with U+FFFD."""

    @property
    def name(self) -> str:
        """Name of the data."""
        return self.found.name

    def find(self, opened: OpenMessage, at: int) -> tuple[int, int]:
        """Return the start and end offset of the bytes of the data at ``at``.

        Raises:
            TruncatedMessage: The length or the bytes run past the end.
            InvalidValue: ``length-max``: the length is above its limit.
        """
        return read_data(opened.schema, self.found, opened.body, at)

    def read(self, opened: OpenMessage, at: int) -> str:
        """Return the text of the data at ``at``. Raises the same errors as `find` and `decode`."""
        start, end = self.find(opened, at)
        return self.decode(opened.body[start:end], start)

    def decode(self, octets: bytes, at: int) -> str:
        """Return bytes found at ``at`` as text. Raises InvalidValue ``charset`` for invalid bytes, if strict."""
        try:
            return octets.decode(self.codec, self.errors)
        except UnicodeDecodeError as error:
            shown = octets[max(error.start - 8, 0) : error.start + 8].hex()
            detail = f"{self.name} is not {self.codec}: {error.reason} among {shown}"
            raise InvalidValue(detail, offset=at + error.start, reason="charset") from error

    def encode(self, value: str, errors: TextErrors = "strict") -> bytes:
        """Return text in the data's charset. Strict, raises InvalidValue ``charset`` for what it lacks."""
        try:
            return value.encode(self.codec, errors)
        except UnicodeEncodeError as error:
            raise InvalidValue(f"{self.name} {value!r} is not {self.codec}", reason="charset") from error

    def write(self, octets: bytes) -> bytes:
        """Return bytes with their length, as on the wire."""
        if len(octets) > self.found.length.maximum:
            detail = f"{self.name} has {len(octets)} bytes, {self.found.length.maximum} are allowed"
            raise InvalidValue(detail, reason="length-max")
        head = bytearray(self.found.data_offset)
        struct.pack_into(self.format, head, self.found.length.offset, len(octets))
        return bytes(head) + octets

    def empty(self) -> bytes:
        """Return empty data, as on the wire."""
        return self.write(b"")


def text(schema: Schema, found: Data) -> Text:
    """Compile variable-length data. Raises SchemaError for an unknown charset."""
    try:
        codec = codecs.lookup(found.charset or "utf-8").name
    except LookupError as error:
        detail = f"characterEncoding {found.charset} of data {found.name}"
        raise SchemaError(detail, file=schema.file, code="UNKNOWN_CHARSET") from error
    role = found.length
    form = schema.byte_order + integer_code(role.primitive)
    return Text(found, Number("length", role.offset, role.size, form, found.since_version), form, codec)


@dataclass(frozen=True)
class VarPart:
    """The parts after a block, in wire order: groups, then data."""

    groups: tuple[Entries, ...]
    texts: tuple[Text, ...]

    def locate(self, opened: OpenMessage, at: int) -> tuple[dict[str, int], int]:
        """Return the start offset of each part present in the message's version, by name, and the end of the last one.

        Raises TruncatedMessage or InvalidValue when a part does not fit.
        """
        offsets = {}
        for entries in self.groups:
            if opened.version >= entries.group.since_version:
                offsets[entries.name] = at
                at = entries.skip(opened, at)
        for text in self.texts:
            if opened.version >= text.found.since_version:
                offsets[text.name] = at
                at = text.find(opened, at)[1]
        return offsets, at

    def write(self, given: Mapping[str, bytes]) -> bytes:
        """Return the parts, given encoded by name; a missing one has no entries or bytes."""
        groups = [given.get(entries.name) or entries.empty() for entries in self.groups]
        texts = [given.get(text.name) or text.empty() for text in self.texts]
        return b"".join(groups + texts)


@dataclass(frozen=True)
class Entries:
    """A group: its dimensions, then per entry a block and the parts after it."""

    group: Group
    dimensions: Ints
    """blockLength and numInGroup."""
    tail: VarPart

    @property
    def name(self) -> str:
        """Name of the group."""
        return self.group.name

    @property
    def max_entries(self) -> int:
        """Most entries that a message may hold: the schema's limit, and never the count's null value (SBE 1.0)."""
        role = self.group.dimensions.roles["numInGroup"]
        return min(role.maximum, int(TRAITS[role.primitive].maximum))

    def open(self, opened: OpenMessage, at: int) -> Dimensions:
        """Read the dimensions at ``at``; a group newer than the message has no entries.

        Raises:
            TruncatedMessage: The dimensions run past the end.
            InvalidValue: ``count-range``: a count outside its limits, or more entries than the remaining bytes can
                hold.
        """
        if opened.version < self.group.since_version:
            return Dimensions(self.group.block_length, 0, at)
        return read_dimensions(opened.schema, self.group, opened.body, at)

    def blocks(self, opened: OpenMessage, at: int) -> tuple[Blocks, int]:
        """Return the blocks of the group at ``at``, skipping the parts after each, and the end of the group.

        Raises the same errors as `open` and `VarPart.locate`.
        """
        found = self.open(opened, at)
        starts, end = None, found.start + found.entries * found.block_length
        if self.tail.groups or self.tail.texts:
            walked = self.walk(opened, found)
            starts, end = np.array(walked.starts, np.int64), walked.end
        return Blocks(opened.body, opened.version, found.block_length, found.entries, found.start, at, starts), end

    def skip(self, opened: OpenMessage, at: int) -> int:
        """Return the end of the group at ``at``. Raises the same errors as `open` and `VarPart.locate`."""
        return self.blocks(opened, at)[1]

    def walk(self, opened: OpenMessage, found: Dimensions, wanted: str = "") -> EntryOffsets:
        """Walk the entries part by part; slow, and exact about errors.

        Args:
            wanted: Name of a part whose offsets are returned beside the starts of the entries.

        Raises:
            TruncatedMessage, InvalidValue: As `open` and `VarPart.locate`; also when entries lack ``wanted``.
        """
        starts, offsets, at = [], [], found.start
        for _ in range(found.entries):
            starts.append(at)
            here, at = self.tail.locate(opened, self._after_block(opened.body, at, found))
            if wanted:
                if wanted not in here:
                    raise InvalidValue(
                        f"{self.name} in version {opened.version} lacks {wanted}", offset=at, reason="absent"
                    )
                offsets.append(here[wanted])
        return EntryOffsets(starts, offsets, at)

    def announce(self, count: int) -> bytes:
        """Return the dimensions for ``count`` entries. Raises InvalidValue ``count-range`` above `max_entries`."""
        if count > self.max_entries:
            raise InvalidValue(f"{self.name}: {count} entries, {self.max_entries} are allowed", reason="count-range")
        dimensions = bytearray(self.group.dimensions.size)
        self.dimensions.write(dimensions, 0, (self.group.block_length, count))
        return bytes(dimensions)

    def write(self, written: Sequence[bytes]) -> bytes:
        """Return the group of encoded entries. Raises the same errors as `announce`."""
        return self.announce(len(written)) + b"".join(written)

    def write_entry(self, given: Mapping[str, bytes], ids: Ints | None = None, values: Sequence[int] = ()) -> bytes:
        """Return one entry: its integers, zeros in the rest of its block, and the parts after it."""
        block = bytearray(self.group.block_length)
        if ids is not None:
            ids.write(block, 0, values)
        return bytes(block + self.tail.write(given))

    def empty(self) -> bytes:
        """Return the group without entries."""
        return self.announce(0)

    def _after_block(self, body: bytes, at: int, found: Dimensions) -> int:
        if at + found.block_length > len(body):
            detail = f"a block of {self.name} needs {found.block_length} bytes, {len(body) - at} are left"
            raise TruncatedMessage(detail, offset=at, reason="truncated")
        return at + found.block_length


class EntryOffsets(NamedTuple):
    """Start offsets of the entries and of their wanted part, and the end of the last entry."""

    starts: list[int]
    offsets: list[int]
    end: int


def entries(schema: Schema, group: Group) -> Entries:
    """Compile a group and its nested groups."""
    dimensions = structure_ints(schema, group.dimensions, "blockLength", "numInGroup")
    return Entries(group, dimensions, tail(schema, group))


def tail(schema: Schema, body: Body) -> VarPart:
    """Compile the groups and data of a message or group."""
    groups = tuple(entries(schema, group) for group in body.groups)
    return VarPart(groups, tuple(text(schema, found) for found in body.data))
