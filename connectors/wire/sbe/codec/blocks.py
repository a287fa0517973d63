"""Reads blocks: the fixed-size part of a message or of a group's entry, or a composite.

A block is compiled to a Python function, once per acting version: one `struct` that skips the gaps, then one dict
display with the composites nested in it. Absent fields have no key, nulls are None, constants need no bytes. Names from
a schema appear in the source only as string literals; everything else is passed in as objects.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.wire.sbe.codec.values import Fault, SetValue
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Buffer,
    ByteOrder,
    Composite,
    Encoding,
    Enum,
    Field,
    Member,
    Presence,
    Primitive,
    Scalar,
    Set,
)
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS, stored_value
from silverfold.connectors.wire.sbe.schema.text import (
    DEFAULT_CHARSET,
    TextMode,
    codec,
    fixed_text_codec,
    fixed_text_reader,
)

_MAX_TARGETS = 16
"""Arrays up to this many elements are unpacked element by element; longer ones as one value."""

Read: TypeAlias = Callable[[Buffer, int], dict[str, Any]]
ReadAll: TypeAlias = Callable[[Buffer], list[dict[str, Any]]]


class BlockOptions(NamedTuple):
    """What a block reader depends on besides its fields."""

    order: ByteOrder
    version: int
    """Acting version: newer fields are absent."""
    text: TextMode = "strict"


class _Leaf(NamedTuple):
    """One value unpacked by `struct`; text has a reader that may fail."""

    path: tuple[str, ...]
    offset: int
    size: int
    code: str
    targets: list[str]
    charset: str = ""
    text: Callable[[bytes], Any] | None = None


class BlockReader:
    """Reads the fields of a block that are present at one version and length.

    ``read(body, offset)`` returns the values of the block at ``offset``, which must have ``size`` bytes. ``read_all``
    returns those of consecutive blocks of ``length`` bytes each; it is None if blocks take no bytes. Both raise
    UnicodeError for invalid text: `fault` then locates it.
    """

    __slots__ = ("_leaves", "length", "read", "read_all", "size")

    def __init__(self, source: BlockSource, display: str, length: int) -> None:
        self._leaves = source.leaves
        self.size = max((leaf.offset + leaf.size for leaf in source.leaves), default=0)
        """Required bytes: the end of the last field."""
        self.length = max(length, self.size)
        self.read: Read
        self.read_all: ReadAll | None
        self.read, self.read_all = source.compile(display, self.length)

    def fault(self, body: Buffer, offset: int) -> Fault:
        """Return the fault for the invalid text in the block at ``offset``."""
        for leaf in self._leaves:
            start = offset + leaf.offset
            raw = bytes(body[start : start + leaf.size])
            try:
                if leaf.text is not None:
                    leaf.text(raw)
            except UnicodeError:
                fault = charset_fault(raw, leaf.charset, start)
                fault.path += reversed(leaf.path)
                return fault
        raise AssertionError("text was invalid a moment ago")


def charset_fault(raw: Buffer, charset: str, offset: int) -> Fault:
    """Return the fault for bytes that cannot be decoded as text."""
    known = codec(charset) is not None
    detail = f"bytes {bytes(raw[:32]).hex()} are not {charset}" if known else f"charset {charset} is not known"
    return Fault(InvalidValue, "charset", detail, offset)


class BlockPlan:
    """The readers of one block at one acting version, by block length on the wire.

    Args:
        length: Length of the block in the schema, in bytes.
    """

    def __init__(self, parts: Sequence[Field | Member], options: BlockOptions, length: int) -> None:
        self._parts = [part for part in parts if part.since_version <= options.version]
        self._options = options
        self._length = length
        self.full = self._reader(self._parts)
        self._partial: dict[int, BlockReader] = {}

    def reader(self, wire_block_length: int) -> BlockReader:
        """Return the reader for a block of this length on the wire: fields that end beyond it are absent."""
        if wire_block_length >= self.full.size:
            return self.full
        parts = [part for part in self._parts if part_end(part, self._options.version) <= wire_block_length]
        if len(parts) not in self._partial:
            self._partial[len(parts)] = self._reader(parts)
        return self._partial[len(parts)]

    def _reader(self, parts: Sequence[Field | Member]) -> BlockReader:
        source = BlockSource(self._options)
        return BlockReader(source, source.display(parts), self._length)


def part_end(part: Field | Member, version: int) -> int:
    """Return the end of a part in its block, in bytes, at a version: newer members of a composite do not count."""
    if part.presence is Presence.CONSTANT:
        return 0
    if not isinstance(part.encoding, Composite):
        return part.offset + part.encoding.size
    members = [member for member in part.encoding.members if member.since_version <= version]
    return part.offset + max((part_end(member, version) for member in members), default=0)


def field_ends(field: Field) -> tuple[tuple[int, int], ...]:
    """Return (version, end) pairs of a field, ascending: a composite may grow. Ends are in bytes from the block."""
    return tuple((version, part_end(field, version)) for version in sorted({0, *member_versions(field.encoding)}))


def member_versions(encoding: Encoding) -> Iterator[int]:
    """Yield the sinceVersion of all members of a composite, nested ones included."""
    for member in encoding.members if isinstance(encoding, Composite) else ():
        yield member.since_version
        yield from member_versions(member.encoding)


class BlockSource:
    """Builds the Python source of a block's reader, and the objects it refers to.

    Args:
        objects: Objects of an enclosing function that reads more than this block; this block's are added to them.
    """

    def __init__(self, options: BlockOptions, objects: dict[str, Any] | None = None) -> None:
        self.leaves: list[_Leaf] = []
        self._options = options
        self._objects: dict[str, Any] = {} if objects is None else objects
        self._objects["SetValue"] = SetValue

    @property
    def targets(self) -> str:
        """Variables that one block is unpacked to; a display of the block refers to them."""
        return "".join(f"{target}, " for leaf in self.leaves for target in leaf.targets)

    def layout(self, length: int) -> struct.Struct:
        """Return the `struct` that unpacks a block of ``length`` bytes; with 0, only up to its last field."""
        return struct.Struct(self._options.order + _format(self.leaves, length))

    def compile(self, display: str, length: int) -> tuple[Read, ReadAll | None]:
        """Return the functions for one block, and for consecutive blocks of ``length`` bytes."""
        targets = self.targets
        self._objects |= {"unpack": self.layout(0).unpack_from, "unpack_all": self.layout(length).iter_unpack}
        unpacked = f"    ({targets}) = unpack(body, offset)\n" if targets else ""
        source = f"def read(body, offset):\n{unpacked}    return {display}\n"
        if targets:
            source += f"def read_all(body):\n    return [{display} for ({targets}) in unpack_all(body)]\n"
        exec(source, self._objects)  # noqa: S102 (made from literals and our own names only)
        return self._objects["read"], self._objects.get("read_all")

    def display(
        self, parts: Sequence[Field | Member], *, base: int = 0, path: tuple[str, ...] = (), nullable: bool = False
    ) -> str:
        """Return a dict display of the parts; with ``nullable``, the first part on the wire may be null."""
        items = []
        for part in parts:
            constant = part.presence is Presence.CONSTANT
            if part.since_version <= self._options.version:
                optional = nullable or part.presence is Presence.OPTIONAL
                member_path = (*path, part.name)
                value = (
                    self.name_of(part.constant)
                    if constant
                    else self._value(part.encoding, base + part.offset, member_path, optional=optional)
                )
                items.append(f"{part.name!r}: {value}")
            nullable = nullable and constant
        return f"{{{', '.join(items)}}}"

    def _value(self, encoding: Encoding, offset: int, path: tuple[str, ...], *, optional: bool) -> str:
        """Return the expression for one value at ``offset``."""
        match encoding:
            case Scalar(primitive=Primitive.CHAR) | Array(element=Scalar(primitive=Primitive.CHAR)):
                return self._text(encoding, offset, path, optional=optional)
            case Scalar():
                value = self._leaf(encoding, offset, path)
                return self._nullable(value, encoding) if optional else value
            case Array():
                return self._list(encoding, offset, path, optional=optional)
            case Enum():
                code = "B" if encoding.size == 1 else ""
                return f"{self.name_of(_names(encoding))}[{self._leaf(encoding, offset, path, code=code)}]"
            case Set():
                return self._set(encoding, self._leaf(encoding, offset, path))
            case Composite():
                return self.display(encoding.members, base=offset, path=path, nullable=optional)

    def _list(self, encoding: Array, offset: int, path: tuple[str, ...], *, optional: bool) -> str:
        if optional or encoding.count > _MAX_TARGETS:
            read = self.name_of(_list_reader(encoding, self._options.order, optional=optional))
            return f"{read}({self._leaf(encoding, offset, path)})"
        return f"[{self._leaf(encoding, offset, path, count=encoding.count)}]"

    def _set(self, encoding: Set, value: str) -> str:
        if encoding.size > 1:
            return f"SetValue({value}, {self.name_of(encoding.choices)})"
        every = tuple(SetValue(raw, encoding.choices) for raw in range(256))
        return f"{self.name_of(every)}[{value}]"

    def _text(self, encoding: Scalar | Array, offset: int, path: tuple[str, ...], *, optional: bool) -> str:
        null = int(encoding.element.null if isinstance(encoding, Array) else encoding.null)
        charset = encoding.charset or DEFAULT_CHARSET
        read = fixed_text_reader(charset, self._options.text)
        value = self._leaf(encoding, offset, path, text=(charset, read))
        text = f"{self.name_of(read)}({value})"
        if (codec_name := fixed_text_codec(charset, self._options.text)) is not None:
            text = f"{value}.partition(NUL)[0].decode({codec_name!r})"
            self._objects["NUL"] = b"\0"
        return f"(None if {value}[0] == {null} else {text})" if optional else text

    def _nullable(self, value: str, scalar: Scalar) -> str:
        null = wire_null(scalar)
        if isinstance(null, float):
            test = f"{value} != {value}" if math.isnan(null) else f"{value} == {self.name_of(null)}"
        else:
            test = f"{value} == {null}"
        return f"(None if {test} else {value})"

    def _leaf(
        self,
        encoding: Encoding,
        offset: int,
        path: tuple[str, ...],
        *,
        text: tuple[str, Callable[[bytes], Any]] | None = None,
        count: int = 1,
        code: str = "",
    ) -> str:
        """Return the variables for a value: one, or one for each of ``count`` elements of an array."""
        first = f"v{len(self.leaves)}"
        targets = [first, *(f"{first}_{index}" for index in range(1, count))]
        code = code or slot_code(encoding)
        if isinstance(encoding, Array) and count == encoding.count:
            code = f"{count}{TRAITS[encoding.element.primitive].code}"
        self.leaves.append(_Leaf(path, offset, encoding.size, code, targets, *(text or ())))
        return ", ".join(targets)

    def name_of(self, value: Any) -> str:
        """Return the name by which the source can refer to an object."""
        name = f"k{len(self._objects)}"
        self._objects[name] = value
        return name


def _format(leaves: Sequence[_Leaf], length: int) -> str:
    parts, cursor = [], 0
    for leaf in leaves:
        parts.append(f"{leaf.offset - cursor}x{leaf.code}")
        cursor = leaf.offset + leaf.size
    return f"{''.join(parts)}{max(length - cursor, 0)}x"


def slot_code(encoding: Encoding) -> str:
    """Return the `struct` code of an encoding: its primitive's, or raw bytes for arrays and composites."""
    match encoding:
        case Scalar():
            return TRAITS[encoding.primitive].code
        case Enum() | Set():
            return TRAITS[encoding.encoding.primitive].code
        case _:
            return f"{encoding.size}s"


def wire_null(scalar: Scalar) -> int | float:
    """Return the null value as it is read back: a float rounded to the primitive's precision."""
    return stored_value(scalar.null, scalar.primitive)


def null_test(scalar: Scalar) -> Callable[[Any], bool]:
    """Return a predicate for a number's null value: any NaN, unless a float declares another null value."""
    null = wire_null(scalar)
    if isinstance(null, float) and math.isnan(null):
        return math.isnan
    return lambda raw: bool(raw == null)


def _list_reader(array: Array, order: ByteOrder, *, optional: bool) -> Callable[[bytes], Any]:
    unpack = struct.Struct(f"{order}{array.count}{TRAITS[array.element.primitive].code}").unpack
    if not optional:
        return lambda raw: list(unpack(raw))
    is_null = null_test(array.element)

    def read(raw: bytes) -> list[Any] | None:
        values = [None if is_null(element) else element for element in unpack(raw)]
        return None if values.count(None) == len(values) else values

    return read


class _Names(dict[int, "str | None"]):
    """Maps an enum's wire value to its name, None for null; unknown values map to themselves."""

    def __missing__(self, raw: int) -> Any:
        return raw


def _names(enum: Enum) -> _Names | tuple[Any, ...]:
    """Return the names by wire value; for a size of one byte, a tuple indexed by the unsigned byte."""
    names = _Names({**enum.values, enum.null: None})
    if enum.encoding.primitive is Primitive.CHAR:
        return tuple(names.get(raw, enum.unnamed(raw)) for raw in range(256))
    if enum.size == 1:
        code = TRAITS[enum.encoding.primitive].code
        return tuple(names[raw] for (raw,) in struct.iter_unpack(code, bytes(range(256))))
    return names
