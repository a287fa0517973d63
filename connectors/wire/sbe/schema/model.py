"""The resolved SBE schema: a tree of layouts with all names resolved.

`connectors.wire.sbe.schema.load` builds it from XML; decoders and encoders walk it. Offsets are in bytes from the start
of the enclosing block or composite. Everything is frozen and picklable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias, TypeVar


class Primitive(StrEnum):
    """The eleven primitive types of SBE 1.0."""

    CHAR = "char"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    UINT64 = "uint64"
    FLOAT = "float"
    DOUBLE = "double"


class Presence(StrEnum):
    """Whether a field has bytes on the wire, and whether it may be null."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    CONSTANT = "constant"


_T = TypeVar("_T", "Field", "Group", "Data")

ByteOrder: TypeAlias = Literal["<", ">"]
"""In the notation of `struct` and numpy."""

TimeUnit: TypeAlias = Literal["second", "millisecond", "microsecond", "nanosecond"]
"""The values of ``timeUnit`` in SBE 1.0."""

Buffer: TypeAlias = "bytes | bytearray | memoryview"
"""The bytes of a message; a memoryview must be a contiguous view of bytes."""


@dataclass(frozen=True)
class Remarks:
    """Documentation attributes of a definition, apart from its layout and values."""

    description: str | None = None
    semantic_type: str | None = None
    deprecated: int | None = None


NO_REMARKS = Remarks()


@dataclass(frozen=True)
class Scalar:
    """One primitive value. Only a char has a ``charset``."""

    name: str
    primitive: Primitive
    size: int
    null: int | float
    minimum: int | float
    maximum: int | float
    null_declared: bool = False
    max_declared: bool = False
    presence: Presence = Presence.REQUIRED
    constant: int | float | str | None = None
    charset: str | None = None
    since_version: int = 0
    remarks: Remarks = NO_REMARKS


@dataclass(frozen=True)
class Array:
    """A fixed-length array: text up to the first NUL if of char, else a list of numbers."""

    name: str
    element: Scalar
    count: int
    size: int
    presence: Presence = Presence.REQUIRED
    constant: str | None = None
    charset: str | None = None
    since_version: int = 0
    remarks: Remarks = NO_REMARKS


@dataclass(frozen=True)
class Enum:
    """Named values over a primitive."""

    name: str
    encoding: Scalar
    size: int
    null: int
    values: Mapping[int, str]
    """Raw value → name. The raw value of a char is its code."""
    versions: Mapping[int, int] = field(default_factory=dict)
    """Raw value → sinceVersion, unless it is 0."""
    since_version: int = 0
    presence: Presence = Presence.REQUIRED
    deprecated_values: Mapping[int, int] = field(default_factory=dict)
    """Raw value → version in which it was deprecated."""
    descriptions: Mapping[int, str] = field(default_factory=dict)
    """Raw value → description, if it has one."""
    remarks: Remarks = NO_REMARKS

    def raw(self, name: str) -> int:
        """Return the raw value called ``name``, the last of several; raises KeyError if there is none."""
        return {known: value for value, known in self.values.items()}[name]

    def unnamed(self, raw: int) -> int | str:
        """Return the decoded form of an unnamed value: a char's character unless that is a name, else the number."""
        is_char = self.encoding.primitive is Primitive.CHAR and chr(raw) not in self.values.values()
        return chr(raw) if is_char else raw


@dataclass(frozen=True)
class Set:
    """Named bits over an unsigned primitive; bit 0 is the least significant."""

    name: str
    encoding: Scalar
    size: int
    choices: Mapping[int, str]
    """Bit number → name."""
    versions: Mapping[int, int] = field(default_factory=dict)
    since_version: int = 0
    deprecated_values: Mapping[int, int] = field(default_factory=dict)
    """Bit number → version in which it was deprecated."""
    descriptions: Mapping[int, str] = field(default_factory=dict)
    """Bit number → description, if it has one."""
    remarks: Remarks = NO_REMARKS


@dataclass(frozen=True)
class Member:
    """A member of a composite."""

    name: str
    offset: int
    encoding: Encoding
    presence: Presence
    constant: int | float | str | None = None
    since_version: int = 0
    deprecated: int | None = None
    referred: bool = False
    """The member is a ref: its encoding is a named one, not its own."""
    description: str | None = None


@dataclass(frozen=True)
class Composite:
    """Members at fixed offsets."""

    name: str
    size: int
    members: tuple[Member, ...]
    since_version: int = 0
    presence: Presence = Presence.REQUIRED
    remarks: Remarks = NO_REMARKS

    def member(self, name: str) -> Member:
        """Return the member called ``name``; raises KeyError if there is none."""
        for member in self.members:
            if member.name == name:
                return member
        raise KeyError(name)


Encoding: TypeAlias = "Scalar | Array | Enum | Set | Composite"


@dataclass(frozen=True)
class Field:
    """A field of a root block or of a group's entry block."""

    name: str
    id: int
    offset: int
    size: int
    encoding: Encoding
    presence: Presence
    constant: int | float | str | None = None
    since_version: int = 0
    """Effective version: the larger of its own and its type's."""
    deprecated: int | None = None
    semantic_type: str | None = None
    """Its own, else its type's."""
    extras: Mapping[str, str] = field(default_factory=dict)
    """Attributes of foreign namespaces, by ``{namespace}name``. Not interpreted."""
    epoch: str = "unix"
    time_unit: str = "nanosecond"
    time_unit_declared: bool = field(default=False, compare=False)
    """``timeUnit`` is given, not the default of SBE 1.0."""
    description: str | None = None


@dataclass(frozen=True)
class Role:
    """One member of a structural composite: header, dimensions, or a length."""

    offset: int
    primitive: Primitive
    size: int
    minimum: int
    maximum: int
    constant: int | None = None


@dataclass(frozen=True)
class Structure:
    """A structural composite with its members by name (SBE 1.0: message header, group dimensions)."""

    name: str
    size: int
    roles: Mapping[str, Role]
    composite: Composite


@dataclass(frozen=True)
class Data:
    """Variable-length data: a length, then bytes at ``data_offset`` from the start of the length's composite."""

    name: str
    id: int
    length: Role
    data_offset: int
    charset: str | None
    """None if the data are bytes, not text."""
    since_version: int = 0
    deprecated: int | None = None
    type_name: str = ""
    type_deprecated: int | None = None
    semantic_type: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class Body:
    """Common part of messages and groups: a block, then groups, then data, in this order on the wire."""

    name: str
    block_length: int
    """Effective length: the larger of the declared and the computed length."""
    content_length: int
    fields: tuple[Field, ...]
    groups: tuple[Group, ...]
    data: tuple[Data, ...]
    since_version: int
    deprecated: int | None

    def field(self, name: str) -> Field:
        """Return the field called ``name``; raises KeyError if there is none."""
        return _named(self.fields, name)

    def group(self, name: str) -> Group:
        """Return the group called ``name``; raises KeyError if there is none."""
        return _named(self.groups, name)

    def data_field(self, name: str) -> Data:
        """Return the data called ``name``; raises KeyError if there is none."""
        return _named(self.data, name)


@dataclass(frozen=True)
class Group(Body):
    """A repeating group: dimensions, then entries."""

    id: int
    dimensions: Structure
    semantic_type: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class Message(Body):
    """A message template."""

    id: int
    """Template id."""
    semantic_type: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class Schema:
    """A complete schema.

    ``plans`` caches what readers and writers compile from the tree on first use, for as long as the schema lives. It is
    not part of the schema's value and is not pickled.
    """

    file: str
    package: str
    id: int
    version: int
    byte_order: ByteOrder
    header: Structure
    messages: Mapping[str, Message]
    """By name."""
    templates: Mapping[int, Message]
    """By template id."""
    encodings: Mapping[str, Encoding]
    warnings: tuple[str, ...] = ()
    """Each as ``file:line: code: text``."""
    description: str | None = None
    semantic_version: str | None = None
    default_dimensions: Structure | None = None
    """The dimensions called ``groupSizeEncoding``, if defined."""
    data_types: tuple[Data, ...] = ()
    """The layout of a data element of each data type, used or not."""
    plans: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "plans": {}}


def deprecated_since(part: Field | Member | Data) -> int | None:
    """Return the version in which an element is deprecated: its own, or its type's if that is earlier."""
    of_type = part.type_deprecated if isinstance(part, Data) else part.encoding.remarks.deprecated
    return min((version for version in (part.deprecated, of_type) if version is not None), default=None)


def _named(elements: tuple[_T, ...], name: str) -> _T:
    for element in elements:
        if element.name == name:
            return element
    raise KeyError(name)
