"""Where a bound role lies on the wire, compiled from the schema's layout into what `struct` and numpy want.

Every read takes the wire's own block length and version: a field newer than the message, or beyond the end of its
block, is absent, and an absent role is an error (SBE 1.0, section 4.5; the rules of acting versions). Everything is
frozen and picklable. Offsets count from the start of the block, the dimensions or the data that hold the part.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from conf.errors import InvalidValue, SchemaError, TruncatedMessage
from connectors.wire.sbe.model import Body, ByteOrder, Data, Field, Group, Primitive, Schema, Structure
from connectors.wire.sbe.primitives import TRAITS
from connectors.wire.sbe.walk import Dimensions, read_data, read_dimensions

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ints:
    """Some integers of one block, read and written together.

    Args:
        format: For `struct`, with the byte order and padding, in the order of offsets.
        picks: Per integer its place in what ``format`` yields; None when the orders agree and nothing is constant.
        constants: Per integer its value where the schema makes it a constant, which has no bytes.
        end: Bytes of the block that are needed.
        since: Version of the newest of them.
        names: Per integer its name.
    """

    format: str
    picks: tuple[int, ...] | None
    constants: tuple[int | None, ...]
    end: int
    since: int
    names: tuple[str, ...]

    def read(self, body: bytes, at: int) -> tuple[int, ...]:
        """Return the integers of the block that starts at ``at``, which must be long enough (`require`)."""
        found: tuple[int, ...] = struct.unpack_from(self.format, body, at)
        if self.picks is None:
            return found
        return tuple(
            found[pick] if constant is None else constant
            for pick, constant in zip(self.picks, self.constants, strict=True)
        )

    def require(self, block: int, version: int, at: int) -> None:
        """Raise InvalidValue unless a block of this length and version holds all of them."""
        if block < self.end or version < self.since:
            raise InvalidValue(
                f"a block of {block} bytes in version {version} lacks {' or '.join(self.names)}, "
                f"which need {self.end} bytes and version {self.since}",
                offset=at,
                reason="absent",
            )

    def write(self, block: bytearray, at: int, values: Sequence[int]) -> None:
        """Write the integers; bytes between them become zero. Raises InvalidValue for one the field cannot hold."""
        picks = self.picks or tuple(range(len(values)))
        variable = [i for i, constant in enumerate(self.constants) if constant is None]
        try:
            struct.pack_into(self.format, block, at, *(values[i] for i in sorted(variable, key=picks.__getitem__)))
        except struct.error as error:
            found = ", ".join(f"{name} {value}" for name, value in zip(self.names, values, strict=True))
            raise InvalidValue(f"{found}: {error}", reason="field-range") from error


class _Part(NamedTuple):
    name: str
    offset: int
    primitive: Primitive
    size: int
    constant: int | None
    since: int


def ints(schema: Schema, *fields: Field) -> Ints:
    """Compile integer fields of one block. Enums count as their integers."""
    found = [_Part(f.name, f.offset, primitive_of(f), f.size, None, f.since_version) for f in fields]
    return _compile(schema.byte_order, found)


def structure_ints(schema: Schema, structure: Structure, *names: str) -> Ints:
    """Compile members of a message header or of group dimensions."""
    roles = [(name, structure.roles[name]) for name in names]
    return _compile(schema.byte_order, [_Part(name, r.offset, r.primitive, r.size, r.constant, 0) for name, r in roles])


def _compile(order: ByteOrder, parts: Sequence[_Part]) -> Ints:
    variable = sorted((part for part in parts if part.constant is None), key=lambda part: part.offset)
    pieces, at = [order], 0
    for part in variable:
        pieces.append("x" * (part.offset - at) + integer_code(part.primitive))
        at = part.offset + part.size
    in_order = list(variable) == list(parts)
    picks = tuple(0 if part.constant is not None else variable.index(part) for part in parts)
    return Ints(
        format="".join(pieces),
        picks=None if in_order else picks,
        constants=tuple(part.constant for part in parts),
        end=at,
        since=max((part.since for part in parts), default=0),
        names=tuple(part.name for part in parts),
    )


def integer_code(primitive: Primitive) -> str:
    """Return the `struct` code of a primitive, a char as its number."""
    return "B" if primitive is Primitive.CHAR else TRAITS[primitive].code


def primitive_of(field: Field) -> Primitive:
    """Return the primitive under a scalar or enum field."""
    encoding: Any = field.encoding
    primitive: Primitive = getattr(encoding, "encoding", encoding).primitive
    return primitive


@dataclass(frozen=True)
class Number:
    """One fixed-width field of the entries of a group, read for all entries at once."""

    name: str
    offset: int
    size: int
    dtype: str
    """As numpy writes it, byte order first."""
    since: int

    def require(self, block: int, version: int, at: int) -> None:
        """Raise InvalidValue unless entries of this block length and version hold the field."""
        if block < self.offset + self.size or version < self.since:
            raise InvalidValue(
                f"entries of {block} bytes in version {version} lack {self.name}", offset=at, reason="absent"
            )


def number(schema: Schema, field: Field) -> Number:
    """Compile one fixed-width field."""
    primitive = primitive_of(field)
    dtype = schema.byte_order + TRAITS[primitive].code if primitive is not Primitive.CHAR else "|u1"
    return Number(field.name, field.offset, field.size, dtype, field.since_version)


@dataclass(frozen=True)
class Flag:
    """A yes-or-no field: an enum with FALSE and TRUE, or a plain integer 0 or 1."""

    number: Number
    false: int
    true: int


@dataclass(frozen=True)
class Text:
    """Variable-length data that hold text or bytes."""

    found: Data
    format: str
    """Of the length, for `struct`."""
    codec: str
    """UTF-8 where the schema names no charset."""

    @property
    def name(self) -> str:
        """Name of the data."""
        return self.found.name

    def read(self, schema: Schema, body: bytes, at: int) -> str:
        """Return the text of the data at ``at``.

        Raises:
            TruncatedMessage: The length or the bytes run past the end.
            InvalidValue: ``length-max``: the length is above its limit; ``charset``: the bytes are no text.
        """
        start, end = read_data(schema, self.found, body, at)
        return self.decode(body[start:end], start)

    def decode(self, octets: bytes, at: int) -> str:
        """Return bytes found at ``at`` as text."""
        try:
            return octets.decode(self.codec)
        except UnicodeDecodeError as error:
            shown = octets[max(error.start - 8, 0) : error.start + 8].hex()
            detail = f"{self.name} is not {self.codec}: {error.reason} among {shown}"
            raise InvalidValue(detail, offset=at + error.start, reason="charset") from error

    def encode(self, value: str) -> bytes:
        """Return text in the data's charset."""
        try:
            return value.encode(self.codec)
        except UnicodeEncodeError as error:
            raise InvalidValue(f"{self.name} {value!r} is not {self.codec}", reason="charset") from error

    def write(self, octets: bytes) -> bytes:
        """Return bytes with their length, as they go on the wire."""
        if len(octets) > self.found.length.maximum:
            detail = f"{self.name} has {len(octets)} bytes, {self.found.length.maximum} are allowed"
            raise InvalidValue(detail, reason="length-max")
        head = bytearray(self.found.data_offset)
        struct.pack_into(self.format, head, self.found.length.offset, len(octets))
        return bytes(head) + octets

    def empty(self) -> bytes:
        """Return no bytes, as they go on the wire."""
        return self.write(b"")


def text(schema: Schema, found: Data) -> Text:
    """Compile variable-length data. Raises SchemaError for a charset nobody knows."""
    try:
        codec = codecs.lookup(found.charset or "utf-8").name
    except LookupError as error:
        detail = f"characterEncoding {found.charset} of data {found.name}"
        raise SchemaError(detail, file=schema.file, code="UNKNOWN_CHARSET") from error
    return Text(found, schema.byte_order + integer_code(found.length.primitive), codec)


@dataclass(frozen=True)
class Parts:
    """What follows a block, in wire order: groups, then data."""

    groups: tuple[Entries, ...]
    texts: tuple[Text, ...]

    def locate(self, schema: Schema, body: bytes, at: int, version: int) -> tuple[dict[str, int], int]:
        """Return where each part that the version has starts, by its name, and where the last one ends.

        Raises TruncatedMessage or InvalidValue where a part does not fit.
        """
        places = {}
        for entries in self.groups:
            if version >= entries.group.since_version:
                places[entries.name] = at
                at = entries.skip(schema, body, at, version)
        for text in self.texts:
            if version >= text.found.since_version:
                places[text.name] = at
                at = read_data(schema, text.found, body, at)[1]
        return places, at

    def write(self, given: Mapping[str, bytes]) -> bytes:
        """Return the parts, written by name; one that is not given has no entries or bytes."""
        return b"".join([given.get(part.name) or part.empty() for part in (*self.groups, *self.texts)])


@dataclass(frozen=True)
class Entries:
    """A group: its dimensions, then per entry a block and the parts after it."""

    group: Group
    dimensions: Ints
    """blockLength and numInGroup."""
    parts: Parts

    @property
    def name(self) -> str:
        """Name of the group."""
        return self.group.name

    @property
    def most(self) -> int:
        """Entries a message may hold: those the schema allows, and never the count's null value (SBE 1.0)."""
        role = self.group.dimensions.roles["numInGroup"]
        return min(role.maximum, int(TRAITS[role.primitive].maximum))

    def open(self, schema: Schema, body: bytes, at: int, version: int) -> Dimensions:
        """Read the dimensions at ``at``; a group newer than the message has no entries.

        Raises:
            TruncatedMessage: The dimensions run past the end.
            InvalidValue: ``count-range``: a count outside its limits, or more entries than bytes are left for.
        """
        if version < self.group.since_version:
            return Dimensions(self.group.block_length, 0, at)
        return read_dimensions(schema, self.group, body, at)

    def skip(self, schema: Schema, body: bytes, at: int, version: int) -> int:
        """Return where the group at ``at`` ends. Raises as `open` and `Parts.locate`."""
        found = self.open(schema, body, at, version)
        if not self.parts.groups and not self.parts.texts:
            return found.start + found.entries * found.block_length
        return self.walk(schema, body, found, version).end

    def walk(self, schema: Schema, body: bytes, found: Dimensions, version: int, wanted: str = "") -> Walked:
        """Go through the entries part by part; slow, and exact about what does not fit.

        Args:
            wanted: Name of a part whose places are returned beside the starts of the entries.

        Raises:
            TruncatedMessage, InvalidValue: As `open` and `Parts.locate`; also when entries lack ``wanted``.
        """
        starts, places, at = [], [], found.start
        for _ in range(found.entries):
            starts.append(at)
            here, at = self.parts.locate(schema, body, self._after_block(body, at, found), version)
            if wanted:
                if wanted not in here:
                    raise InvalidValue(f"{self.name} in version {version} lacks {wanted}", offset=at, reason="absent")
                places.append(here[wanted])
        return Walked(starts, places, at)

    def write(self, count: int) -> bytes:
        """Return the dimensions of ``count`` entries."""
        dimensions = bytearray(self.group.dimensions.size)
        self.dimensions.write(dimensions, 0, (self.group.block_length, count))
        return bytes(dimensions)

    def empty(self) -> bytes:
        """Return the group without entries."""
        return self.write(0)

    def _after_block(self, body: bytes, at: int, found: Dimensions) -> int:
        if at + found.block_length > len(body):
            detail = f"a block of {self.name} needs {found.block_length} bytes, {len(body) - at} are left"
            raise TruncatedMessage(detail, offset=at, reason="truncated")
        return at + found.block_length


class Walked(NamedTuple):
    """Where entries start, where their wanted part starts, and where the last one ends."""

    starts: list[int]
    places: list[int]
    end: int


def entries(schema: Schema, group: Group) -> Entries:
    """Compile a group and what is nested in it."""
    dimensions = structure_ints(schema, group.dimensions, "blockLength", "numInGroup")
    return Entries(group, dimensions, parts(schema, group))


def parts(schema: Schema, body: Body) -> Parts:
    """Compile the groups and data of a message or group."""
    groups = tuple(entries(schema, group) for group in body.groups)
    return Parts(groups, tuple(text(schema, found) for found in body.data))


def strided(body: bytes, found: Number, at: int, count: int, stride: int) -> npt.NDArray[Any]:
    """Return a view of one field of ``count`` blocks that follow each other from ``at``."""
    return np.ndarray((count,), found.dtype, body, at + found.offset, (stride,))


def gathered(octets: Bytes, found: Number, starts: Longs) -> npt.NDArray[Any]:
    """Return one field of blocks that start anywhere."""
    at = starts + found.offset
    if found.size == 1:
        return octets[at].view(found.dtype)
    return octets[at[:, None] + np.arange(found.size)].view(found.dtype).reshape(-1)
