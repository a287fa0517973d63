"""Skips groups and data that a newer sender added to a counted message (header and dimensions carry the counts).

The wire does not tell the layout of an unknown part. It is assumed to use the schema's default dimensions, and the one
length layout that all data of the schema share; in a schema without data, the one that its data types share (the rule
of compatible schema extension, SBE 1.0, chapter 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from silverfold.connectors.wire.sbe.codec.walk import DimensionsReader, LengthReader
from silverfold.connectors.wire.sbe.schema.model import Body, Buffer, Data, Primitive, Schema
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS

MAX_DEPTH = 32
"""Deepest nesting of unknown groups."""


class Unskippable(Exception):
    """The schema does not imply the layout of an unknown part."""


class Skipper:
    """Finds the end of unknown parts. Takes linear time in the bytes: each step consumes at least one."""

    def __init__(self, schema: Schema) -> None:
        self._dimensions: DimensionsReader | None = None
        if schema.default_dimensions is not None:
            self._dimensions = DimensionsReader(schema.default_dimensions, schema.byte_order)
        layouts = {data_layout(data): data for data in known_data(schema)}
        self._length: LengthReader | None = None
        if len(layouts) == 1:
            known = next(iter(layouts.values()))
            highest = int(TRAITS[known.length.primitive].maximum)
            length = replace(known.length, minimum=0, maximum=highest)
            self._length = LengthReader(replace(known, length=length), schema.byte_order)

    def skip(self, body: Buffer, offset: int, *, groups: int, data: int, depth: int = 0) -> int:
        """Return the offset after the given numbers of groups and data.

        Raises:
            Unskippable: The schema has no default dimensions, none that count nested parts, or several length layouts.
            Fault: The parts do not fit the message.
        """
        for _ in range(groups):
            offset = self._skip_group(body, offset, depth)
        for _ in range(data):
            if self._length is None:
                raise Unskippable
            offset = self._length.read(body, offset)[1]
        return offset

    def _skip_group(self, body: Buffer, offset: int, depth: int) -> int:
        if self._dimensions is None or depth >= MAX_DEPTH:
            raise Unskippable
        dimensions = self._dimensions.read(body, offset)
        groups, data = dimensions.groups, dimensions.data
        if groups is None or data is None:
            raise Unskippable
        if not groups and not data:
            return dimensions.start + dimensions.block_length * dimensions.entries
        offset = dimensions.start
        for _ in range(dimensions.entries):
            offset = self.skip(body, offset + dimensions.block_length, groups=groups, data=data, depth=depth + 1)
        return offset


def known_data(schema: Schema) -> Sequence[Data]:
    """Return the data of a schema's messages, or of its types while no message has any."""
    return list(_all_data(schema.messages.values())) or schema.data_types


def data_layout(data: Data) -> tuple[Primitive, int, int | None, int]:
    """Return the layout of length and bytes; length limits are left out, as they do not apply to unknown data."""
    return data.length.primitive, data.length.offset, data.length.constant, data.data_offset


def _all_data(bodies: Iterable[Body]) -> Iterator[Data]:
    for body in bodies:
        yield from body.data
        yield from _all_data(body.groups)
