"""The layout of a block's fields on the wire, compiled from the schema for `struct` and numpy.

Every read takes the block length and version from the wire. A field newer than the message, or beyond the end of its
block, is absent, and an absent role is an error (SBE 1.0, section 4.5; the rules of acting versions). Everything is
frozen and picklable. Offsets count from the start of the block.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.wire.sbe.schema.model import (
    Body,
    ByteOrder,
    Enum,
    Field,
    Presence,
    Primitive,
    Scalar,
    Schema,
    Structure,
)
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ints:
    """Integers of one block, read and written together.

    Args:
        format: For `struct`, with byte order and padding, in order of offsets.
        picks: Per integer, its index in the values that ``format`` yields; None when the orders agree and nothing is
            constant.
        constants: Per integer, its value where the schema makes it a constant, which has no bytes.
        end: Number of bytes of the block that are needed.
        since: Version of the newest of them.
        names: Per integer, its name.
    """

    format: str
    picks: tuple[int, ...] | None
    constants: tuple[int | None, ...]
    end: int
    since: int
    names: tuple[str, ...]

    def read(self, body: bytes, at: int) -> tuple[int, ...]:
        """Return the integers of the block that starts at ``at``, which must be long enough (see `require`)."""
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
        """Write the integers; bytes between them become zero. Raises InvalidValue for a value the field cannot hold."""
        picks = self.picks or tuple(range(len(values)))
        variable = [i for i, constant in enumerate(self.constants) if constant is None]
        try:
            struct.pack_into(self.format, block, at, *(values[i] for i in sorted(variable, key=picks.__getitem__)))
        except struct.error as error:
            found = ", ".join(f"{name} {value}" for name, value in zip(self.names, values, strict=True))
            raise InvalidValue(f"{found}: {error}", reason="field-range") from error


NullDefaults: TypeAlias = tuple[tuple[str, int, float], ...]
"""Optional fields of a block: `struct` format, offset and null value."""


def null_defaults(schema: Schema, body: Body, given: Collection[Field]) -> NullDefaults:
    """Compile the optional scalars and enums of a block that are not in ``given``: they are written as null."""
    return tuple(
        (schema.byte_order + TRAITS[primitive_of(field)].code.replace("c", "B"), field.offset, field.encoding.null)
        for field in body.fields
        if field.presence is Presence.OPTIONAL and isinstance(field.encoding, Scalar | Enum) and field not in given
    )


class _Member(NamedTuple):
    name: str
    offset: int
    primitive: Primitive
    size: int
    constant: int | None
    since: int


def ints(schema: Schema, *fields: Field) -> Ints:
    """Compile integer fields of one block. Enums are read as their integers."""
    found = [_Member(f.name, f.offset, primitive_of(f), f.size, None, f.since_version) for f in fields]
    return _compile(schema.byte_order, found)


def structure_ints(schema: Schema, structure: Structure, *names: str) -> Ints:
    """Compile members of a message header or of group dimensions."""
    roles = [(name, structure.roles[name]) for name in names]
    return _compile(
        schema.byte_order, [_Member(name, r.offset, r.primitive, r.size, r.constant, 0) for name, r in roles]
    )


def _compile(order: ByteOrder, parts: Sequence[_Member]) -> Ints:
    variable = sorted((part for part in parts if part.constant is None), key=lambda part: part.offset)
    pieces: list[str] = [order]
    at = 0
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
    """Return the `struct` code of a primitive; a char is read as a number."""
    return "B" if primitive is Primitive.CHAR else TRAITS[primitive].code


def primitive_of(field: Field) -> Primitive:
    """Return the primitive of a scalar or enum field."""
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
    """numpy type string, byte order first."""
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
    dtype = schema.byte_order + TRAITS[primitive].code if primitive is not Primitive.CHAR else "B"
    return Number(field.name, field.offset, field.size, dtype, field.since_version)


@dataclass(frozen=True)
class Flag:
    """A Boolean field: an enum with FALSE and TRUE, or an integer 0 or 1."""

    number: Number
    false: int
    true: int


class Blocks(NamedTuple):
    """The blocks of a group's entries, read field by field.

    Args:
        body: The message.
        version: Its acting version.
        length: Length of each block on the wire.
        total: Number of blocks.
        at: Start of the first block.
        starts: Start of each block; None when they are contiguous.
        error_offset: Offset in the message to report in errors.
    """

    body: bytes
    version: int
    length: int
    total: int
    at: int
    error_offset: int
    starts: Longs | None = None

    def read(self, found: Number) -> npt.NDArray[Any]:
        """Return one field of all blocks, raw, in wire byte order; a view where the blocks are contiguous.

        Raises:
            InvalidValue: ``absent``: the blocks lack the field.
        """
        if not self.total:
            return np.empty(0, found.dtype)
        found.require(self.length, self.version, self.error_offset)
        if self.starts is None:
            return np.ndarray((self.total,), found.dtype, self.body, self.at + found.offset, (self.length,))
        return gather_field(np.frombuffer(self.body, np.uint8), found, self.starts)

    def flags(self, flag: Flag) -> npt.NDArray[np.bool_]:
        """Return a Boolean field of all blocks. Raises InvalidValue ``simple-bool`` for a third value."""
        raw = self.read(flag.number)
        true: npt.NDArray[np.bool_] = raw == flag.true
        if not (true | (raw == flag.false)).all():
            wrong = raw[~(true | (raw == flag.false))][0]
            raise InvalidValue(f"{flag.number.name} is {wrong}", offset=self.error_offset, reason="simple-bool")
        return true


def gather_field(octets: Bytes, found: Number, starts: Longs) -> npt.NDArray[Any]:
    """Return one field of blocks at arbitrary offsets."""
    at = starts + found.offset
    picked = octets[at] if found.size == 1 else octets[at[:, None] + np.arange(found.size)]
    values: npt.NDArray[Any] = picked.view(found.dtype).reshape(-1)
    return values


def write_blocks(length: int, *columns: tuple[Number, npt.NDArray[Any]]) -> bytes:
    """Return contiguous blocks of ``length`` bytes: the columns, given in their wire type, and zeros between."""
    octets = np.zeros((len(columns[0][1]), length), np.uint8)
    for found, raw in columns:
        octets[:, found.offset : found.offset + found.size] = raw.view(np.uint8).reshape(len(raw), found.size)
    return octets.tobytes()
