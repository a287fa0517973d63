"""Fast path: one compiled function per template, for messages exactly as the schema defines them.

It takes a third to a half of the time of the readers part by part: 1.3 of 4.0 µs for a trade, 8.6 of 20 µs for a car.

Almost all messages are: block lengths as in the schema, counts and lengths within their limits and within the bytes,
valid text. The function returns None for anything else; the readers of `connectors.wire.sbe.codec.bodies` then diagnose
the message. It checks no bounds on the way: reading past the end fails, and the last part must end where the message
does. Names from the schema appear in its source only as string literals.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from typing import Any, TypeAlias

from silverfold.connectors.wire.sbe.codec.blocks import BlockOptions, BlockSource
from silverfold.connectors.wire.sbe.codec.roles import RoleReader
from silverfold.connectors.wire.sbe.schema.model import Body, Buffer, Data, Field, Group, Message, Role
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS
from silverfold.connectors.wire.sbe.schema.text import data_codec, text_reader

CompiledDecoder: TypeAlias = "Callable[[Buffer, int], dict[str, Any] | None]"
"""Maps a message and the end of its root block to its values; None if the message needs the slow path."""

EntryFinder: TypeAlias = "Callable[[Buffer, int, int, int], tuple[array[int] | None, int] | None]"
"""Maps a message, the offset of a group's first entry, their block length and number to the offset of each entry and
their end. None if they do not fit; no offsets if an entry counts other parts than the schema has."""

_DEEPEST = 12
"""Deepest nesting of groups; Python's own limit is higher."""
_COUNTS = ("numGroups", "numVarDataFields")


def compile_decoder(message: Message, options: BlockOptions, header_size: int) -> CompiledDecoder | None:
    """Return the function for an acting version; None if the template has parts that it cannot bound."""
    source = _Source(options, has_values=True)
    try:
        source.row(message, 0, str(header_size))
    except _Unbounded:
        return None
    decode: CompiledDecoder = source.compile(_DECODE, "decode")
    return decode


def compile_entry_finder(entry: Body, options: BlockOptions) -> EntryFinder | None:
    """Return the function for entries with parts after their block; None if those cannot be bounded.

    It takes a tenth of the time of readers part by part: 0.1 of 1 µs for an entry with data.
    """
    source = _Source(options, has_values=False)
    try:
        source.row(entry, 1, "at")
    except _Unbounded:
        return None
    find: EntryFinder = source.compile(_FIND, "find")
    return find


_DECODE = """
def decode(body, at):
    try:
{}
    except Failed:
        return None
    return row0 if at == len(body) else None
"""
_FIND = """
def find(body, at, length1, count1):
    starts = array("q")
    try:
        for _ in range(count1):
            starts.append(at)
{}
    except Failed:
        return None
    return (starts, at) if at <= len(body) else None
"""


class _Unbounded(Exception):
    """Entries or parts may take no bytes, the message itself counts its parts, or groups nest too deep for Python."""


class _Source:
    """Builds the lines of a function, and the objects they refer to; without values, it only steps over the parts."""

    def __init__(self, options: BlockOptions, *, has_values: bool) -> None:
        self._options = options
        self._has_values = has_values
        self._lines: list[str] = []
        self._objects: dict[str, Any] = {"Failed": (struct.error, UnicodeError, OverflowError), "array": array}

    def compile(self, function: str, name: str) -> Any:
        """Return the compiled function."""
        lines = "\n".join(f"        {line}" for line in self._lines)
        exec(function.format(lines), self._objects)  # noqa: S102 (made from literals and our own names only)
        return self._objects[name]

    def _add(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _name_of(self, value: object) -> str:
        return BlockSource(self._options, self._objects).name_of(value)

    def _block(self, body: Body) -> tuple[BlockSource, str]:
        """Return a block's source, and the dict display of its values."""
        source = BlockSource(self._options, self._objects)
        return source, source.display([field for field in body.fields if self._has(field)])

    def row(self, body: Body, depth: int, at: str) -> None:
        """Add the lines that read ``row{depth}``: the block at ``at``, and the parts from the variable ``at`` on."""
        if self._has_values:
            block, display = self._block(body)
            if block.targets:
                self._add(depth, f"{block.targets}= {self._name_of(block.layout(0).unpack_from)}(body, {at})")
            self._add(depth, f"row{depth} = {display}")
        if depth:
            self._add(depth, f"at += length{depth}")
        for group in body.groups:
            if self._has(group):
                self._group(group, depth)
        for data in body.data:
            if self._has(data):
                self._data(data, depth)

    def _has(self, part: Field | Group | Data) -> bool:
        return part.since_version <= self._options.version

    def _group(self, group: Group, depth: int) -> None:
        """Add the lines that read a group: all entries at once if nothing follows their blocks, else in a loop."""
        roles, inner = group.dimensions.roles, depth + 1
        counted = [name for name in _COUNTS if name in roles]
        if (counted and self._has_values) or not group.dimensions.size or depth == _DEEPEST:
            raise _Unbounded
        parts = {"numGroups": sum(map(self._has, group.groups)), "numVarDataFields": sum(map(self._has, group.data))}
        reader = RoleReader(group.dimensions, ["blockLength", "numInGroup", *counted], self._options.order)
        counts = ", *counts" if counted else ""
        self._add(depth, f"length{inner}, count{inner}{counts} = {self._name_of(reader.read)}(body, at)")
        if counted:
            self._add(depth, f"if counts != {[parts[name] for name in counted]}: return None, at")
        self._add(depth, f"at += {reader.size}")
        self._limit(depth, f"count{inner}", roles["numInGroup"])
        if any(parts.values()):
            self._entries(group, depth)
        else:
            self._flat_entries(group, depth)

    def _limit(self, depth: int, variable: str, role: Role) -> None:
        traits = TRAITS[role.primitive]
        if role.minimum > traits.lowest:
            self._add(depth, f"if {variable} < {role.minimum}: return None")
        if role.maximum < traits.highest:
            self._add(depth, f"if {variable} > {role.maximum}: return None")

    def _flat_entries(self, group: Group, depth: int) -> None:
        if not self._has_values:
            self._add(depth, f"at += length{depth + 1} * count{depth + 1}")
            return
        block, display = self._block(group)
        if not block.targets:
            raise _Unbounded
        layout = block.layout(group.block_length)
        self._add(depth, f"if length{depth + 1} != {layout.size}: return None")
        self._add(depth, f"end = at + {layout.size} * count{depth + 1}")
        unpack = self._name_of(layout.iter_unpack)
        self._add(depth, f"row{depth}[{group.name!r}] = [{display} for {block.targets}in {unpack}(body[at:end])]")
        self._add(depth, "at = end")

    def _entries(self, group: Group, depth: int) -> None:
        inner = depth + 1
        if self._has_values:
            self._add(depth, f"if length{inner} < {self._block(group)[0].layout(0).size}: return None")
            self._add(depth, f"row{depth}[{group.name!r}] = rows{inner} = []")
        self._add(depth, f"for _ in range(count{inner}):")
        self.row(group, inner, "at")
        if self._has_values:
            self._add(inner, f"rows{inner}.append(row{inner})")

    def _data(self, data: Data, depth: int) -> None:
        size = data.length.offset + data.length.size
        layout = struct.Struct(f"{self._options.order}{data.length.offset}x{TRAITS[data.length.primitive].code}")
        self._add(depth, f"length, = {self._name_of(layout.unpack_from)}(body, at)")
        assert layout.size == size <= data.data_offset
        self._limit(depth, "length", data.length)
        self._add(depth, f"at += {data.data_offset}; end = at + length")
        if self._has_values:
            self._add(depth, f"row{depth}[{data.name!r}] = {self._value(data)}")
        self._add(depth, "at = end")

    def _value(self, data: Data) -> str:
        if data.charset is None:
            return "bytes(body[at:end])"
        if (name := data_codec(data.charset, self._options.text)) is not None:
            return f"str(body[at:end], {name!r})"
        return f"{self._name_of(text_reader(data.charset, self._options.text))}(body[at:end])"
